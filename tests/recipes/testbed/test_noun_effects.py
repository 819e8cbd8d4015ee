"""Nouns that matter: the grammar's truth with them, and that FGB* finds it by the prompts that `sample_cells` draws."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.datasets.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.datasets.prompts import sample_cells, select_prompts, split_prompts
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import find_score
from evenhand.evaluation.statistics.cells import arrange_cells, to_codes
from evenhand.evaluation.statistics.u_statistics import descriptor_spread
from evenhand.recipes.testbed import grammar

GENDERED = ["Latina", "Latino", "lesbian"]
DESCRIPTORS = [*GENDERED, "Deaf", "gorgeous", "left-handed"]
TRIALS = {2: 200, 4: 80, 8: 40, 16: 20, 32: 20}  # by responses to a cell
COLUMNS = ["text", "template", "axis", "descriptor", "noun", "noun_gender"]


@pytest.fixture(scope="module")
def prompts():
    """The measured side of a split by noun: 15 of the 30 nouns, about 5 of each gender."""
    wanted = {"descriptor": DESCRIPTORS, "template": list(grammar.plan().base)[::3]}
    phrases = {"noun_phrase_type": ["descriptor_noun", "noun_descriptor"]}
    prompts = select_prompts(generate_prompts(load_taxonomy()), **wanted, **phrases)
    return split_prompts(prompts, "noun", 0.5, seed=0)[1].select_columns(COLUMNS)


def expected_styles(rows):
    return grammar.style_distribution(rows["template"], rows["descriptor"], nouns=rows["noun"])


def test_the_truth_is_the_variance_of_means_over_a_descriptors_own_nouns(monkeypatch):
    # "a" is asked with both nouns, (1, 0) and (0, 1), and "b" with the first alone: means (½, ½) and (1, 0).
    rows = pd.DataFrame({"template": "t", "descriptor": list("aabb"), "noun": ["man", "mom", "man", "man"]})
    monkeypatch.setattr(
        grammar, "style_distribution", lambda t, d, nouns: np.array([[noun == "man", noun == "mom"] for noun in nouns])
    )
    scores = grammar.truth(rows, np.eye(2), with_nouns=True)
    assert find_score(scores, "fgb").value == pytest.approx(2 / 16)
    assert find_score(scores, "fgb_corrected").value == pytest.approx(2 / 8)


def test_nouns_matter_and_those_of_a_gender_are_alike(prompts):
    rows = prompts.to_pandas().query("descriptor == 'left-handed' and template == \"I'm {noun_phrase}.\"")
    p = pd.DataFrame(expected_styles(rows)).groupby(rows["noun_gender"].to_numpy())
    assert p.mean().var(ddof=0).sum() > 0.005  # between the genders, and within each
    assert p.var(ddof=0).sum(axis=1).min() > 0.005
    with pytest.raises(InputError, match="noun: 'mon' is unknown; did you mean"):
        grammar.style_distribution(["I'm {noun_phrase}."], ["Deaf"], nouns=["mon"])


@pytest.mark.parametrize("per_cell", TRIALS)
def test_fgb_star_is_right_at_any_number_of_responses(prompts, per_cell):
    """Style vectors are the expected ones, so that nothing but the draw of the nouns is noise.

    Nouns without replacement give an FGB* that is 5 to 12 of these standard errors too low.
    """
    truth = grammar.truth(prompts.to_pandas(), with_nouns=True)
    true = [find_score(truth, metric).value for metric in ("fgb_corrected", "fgb_pooled_corrected")]
    found = []
    for seed in range(TRIALS[per_cell]):
        rows = sample_cells(prompts, per_cell, seed).to_pandas()
        cells = arrange_cells(expected_styles(rows), to_codes(rows["template"]), to_codes(rows["descriptor"]))
        found.append([descriptor_spread(cells, pooled=pooled).corrected.value for pooled in (False, True)])
    error = np.std(found, axis=0, ddof=1) / TRIALS[per_cell] ** 0.5
    assert (abs(np.mean(found, axis=0) - true) < 4 * error).all()
