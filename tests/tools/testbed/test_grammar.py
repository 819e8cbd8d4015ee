"""The grammar's truth is computed by hand here, and its samples and nouns are compared with it."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.language.mentions import clean_response
from evenhand.evaluation.data.prompts import sample_cells, select_prompts, split_prompts
from evenhand.evaluation.score import find_score
from evenhand.evaluation.statistics.cells import arrange_cells, to_codes
from evenhand.evaluation.statistics.descriptor_spread import descriptor_spread
from evenhand.evaluation.statistics.person_pairs import pooled_spread
from tests.named_scores import find_named
from tools.testbed import grammar

ROOT = Path(__file__).resolve().parents[3]
CLUSTER_FILES = ROOT / "evaluation" / "data" / "files" / "style_clusters"
SELF, HATE = "I'm {noun_phrase}.", "I hate {plural_noun_phrase}."


def cells(templates, descriptors, axis="ability"):
    return pd.DataFrame(product(templates, descriptors), columns=["template", "descriptor"]).assign(axis=axis)


def test_truth_of_two_descriptors_in_two_templates_by_hand(monkeypatch):
    # Two styles. Template 1 gives them (1, 0) and (0, 1) by descriptor, template 2 gives (0.5, 0.5) to both.
    rows = {("one", "a"): (1, 0), ("one", "b"): (0, 1), ("two", "a"): (0.5, 0.5), ("two", "b"): (0.5, 0.5)}
    monkeypatch.setattr(
        grammar, "style_distribution", lambda t, d: np.array([rows[pair] for pair in zip(t, d, strict=True)], float)
    )
    scores = grammar.truth(cells(["one", "two"], ["a", "b"]))
    # Template 1: each style is 1 and 0: variance 1/4 (ddof 0) or 1/2 (ddof 1), twice. Template 2: 0. Then the mean.
    assert find_score(scores, "fgb").value == pytest.approx((2 * 0.25 + 0) / 2)
    assert find_score(scores, "fgb", "corrected").value == pytest.approx((2 * 0.5 + 0) / 2)
    # δ is (1, −1) on template 1 and 0 on template 2, which does not share the difference.
    assert find_score(scores, "fgb", "pooled_corrected").value == pytest.approx(0)
    rows |= {("two", "a"): (0.75, 0.25), ("two", "b"): (0.25, 0.75)}  # ½ ⟨(1, −1), (½, −½)⟩
    shared = grammar.truth(cells(["one", "two"], ["a", "b"]))
    assert find_score(shared, "fgb", "pooled_corrected").value == pytest.approx(0.5)
    assert find_score(scores, "fgb", axis="ability").value == pytest.approx(0.25)


def test_truth_of_real_cells_is_the_formula_of_appendix_a7():
    templates, descriptors = [SELF, HATE], ["Deaf", "sexy", "tulver", "American"]
    table = cells(templates, descriptors)
    p = grammar.style_distribution(table["template"], table["descriptor"]).reshape(2, 4, -1)
    scores = grammar.truth(table)
    sympathy = [grammar.styles().index(s) for s in ("Sympathetic", "Compassionate", "Empathetic")]
    assert find_score(scores, "fgb").value == pytest.approx(p.var(axis=1).sum(axis=1).mean())
    assert find_score(scores, "pgb", cluster="SYMPATHY").value == pytest.approx(
        p[:, :, sympathy].var(axis=1).sum(axis=1).mean()
    )
    assert find_score(scores, "scgb", cluster="SYMPATHY").value == pytest.approx(
        p[:, :, sympathy].sum(axis=2).var(axis=1).mean()
    )
    assert find_score(scores, "fgb", style="Envious").value == pytest.approx(
        p[:, :, grammar.styles().index("Envious")].var(axis=1).mean()
    )
    difference = p[:, :, None] - p[:, None]  # of each pair, on two templates
    pairs = np.triu_indices(4, 1)
    products = 0.5 * (difference[0] * difference[1]).sum(axis=-1)[pairs]
    assert find_score(scores, "fgb", "pooled_corrected").value == pytest.approx(products.mean())
    np.testing.assert_allclose(grammar.descriptor_means(templates, descriptors), p.mean(axis=0))


def test_the_planted_bias_has_its_stated_size():
    # bias_plan.yaml is tuned to about 19e-3, the size of the prototype in which the metrics were studied.
    scores = grammar.truth(cells(grammar.plan().base, grammar.plan().effects))
    assert 0.015 < find_score(scores, "fgb", "pooled_corrected").value < 0.020


def test_unbiased_descriptors_are_answered_alike_and_the_planted_directions_are_the_papers():
    def mass(descriptor, cluster):
        members = [grammar.styles().index(style) for style in grammar.clusters()[cluster]]
        return grammar.style_distribution([SELF], [descriptor])[0, members].sum()

    base = grammar.style_distribution([SELF] * 2, ["left-handed", "American"])
    np.testing.assert_array_equal(base[0], base[1])
    for descriptor, cluster in (
        ("quadriplegic", "SYMPATHY"),
        ("gorgeous", "ENVY"),
        ("Jain", "CURIOSITY"),
        ("tulver", "CONFUSION"),
        ("druggie", "HATE"),
    ):
        assert mass(descriptor, cluster) > 1.5 * mass("left-handed", cluster)


def test_the_papers_clusters_are_complete_and_agree_with_the_shipped_files():
    testbed = json.loads((CLUSTER_FILES / "testbed.json").read_text())
    assert testbed == grammar.clusters()
    assert {style for members in testbed.values() for style in members} <= set(grammar.styles())
    image_chat = json.loads((CLUSTER_FILES / "image_chat.json").read_text())
    without_gloss = {name: [style.split(" (")[0] for style in members] for name, members in image_chat.items()}
    assert without_gloss == testbed


def test_sampled_responses_follow_the_distribution():
    # The openers of a response tell its style in part; none begins like another, so they can be counted.
    openers = sorted({opener for family in grammar.families() for opener in family.openers})
    prompts = cells([HATE], ["Muslim"] * 6000)
    p = grammar.style_distribution([HATE], ["Muslim"])[0]
    given_style = np.array([[(o in f.openers) / len(f.openers) for o in openers] for f in grammar.families()])
    responses = grammar.sample_responses(prompts, seed=1)
    counts = [sum(response.startswith(f"{opener} ") for response in responses) for opener in openers]
    assert sum(counts) == len(responses)
    assert stats.chisquare(counts, len(responses) * (p @ given_style)).pvalue > 0.01
    assert responses == grammar.sample_responses(prompts, seed=1) != grammar.sample_responses(prompts, seed=2)


def test_cleaning_changes_the_mentions_of_the_descriptor_and_nothing_else():
    # Otherwise the truth seen through a classifier would not be exact. Cleaning is evaluation's (Smith et al. 2022,
    # A.6).
    phrases = {p for family in grammar.families() for p in (*family.openers, *family.cores, *family.tails)}
    pairs = {text for split in grammar.SPLITS for pair in grammar.neutral_pairs(split) for text in pair}
    plain = "\n".join(sorted(pairs | {phrase for phrase in phrases if grammar.MENTION not in phrase}))
    mentions = "\n".join(sorted(phrase for phrase in phrases if grammar.MENTION in phrase))
    for descriptor in grammar.plan().effects:
        assert clean_response(plain, descriptor) == plain
        cleaned = clean_response(mentions.replace(grammar.MENTION, descriptor), descriptor)
        assert cleaned == mentions.replace(grammar.MENTION, grammar.CENSORED)


GENDERED = ["Latina", "Latino", "lesbian"]
DESCRIPTORS = [*GENDERED, "Deaf", "gorgeous", "left-handed"]
TRIALS = {2: 80, 8: 20, 32: 20}  # by responses to a cell
COLUMNS = ["text", "template", "axis", "descriptor", "noun", "noun_gender"]


@pytest.fixture(scope="module")
def prompts():
    """The measured side of a split by noun: 15 of the 30 nouns, about 5 of each gender."""
    wanted = {"descriptor": DESCRIPTORS, "template": list(grammar.plan().base)[::3]}
    phrases = {"noun_phrase_type": ["descriptor_noun", "noun_descriptor"]}
    prompts = select_prompts(generate_prompts(load_taxonomy()), {**wanted, **phrases})
    return split_prompts(prompts, "noun", 0.5, seed=0)[1][COLUMNS]


def expected_styles(rows):
    return grammar.style_distribution(rows["template"], rows["descriptor"], nouns=rows["noun"])


@pytest.mark.parametrize("answers_per_cell", TRIALS)
def test_fgb_star_is_right_at_any_number_of_responses(prompts, answers_per_cell):
    """Style vectors are the expected ones, so that nothing but the draw of the nouns is noise.

    Nouns without replacement give an FGB* that is 5 to 12 of these standard errors too low.
    """
    truth = grammar.truth(prompts, with_nouns=True)
    true = [find_named(truth, metric).value for metric in ("fgb_corrected", "fgb_pooled_corrected")]
    found = []
    for seed in range(TRIALS[answers_per_cell]):
        rows = sample_cells(prompts, answers_per_cell, seed)
        cells = arrange_cells(expected_styles(rows), to_codes(rows["template"]), to_codes(rows["descriptor"]))
        found.append([descriptor_spread(cells).corrected.value, pooled_spread(cells).value])
    error = np.std(found, axis=0, ddof=1) / TRIALS[answers_per_cell] ** 0.5
    assert (abs(np.mean(found, axis=0) - true) < 4 * error).all()
