"""The pairs' exact truth against sums over all sentences and against hand-derived numbers, and the model against it."""

import json
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.sentence_pairs import read_sentence_pairs
from evenhand.evaluation.metrics.sentence_pairs.metric import find_shared_positions, make_masked_pair_table
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.likelihood.masked import masked_log_probabilities, tokenize_sentences
from evenhand.evaluation.models.loading import load_masked_model
from evenhand.evaluation.score import find_score
from evenhand.recipes.testbed import MASKED_MODEL, PAIRS
from tools.testbed import pairs
from tools.testbed.build import MEASURED
from tools.testbed.check import divergence

UNPLANTED = ["pet", "drink", "colour"]
# Small enough to write all its sentences down; "in" and "old" stand in several places, the groups differ in length.
SMALL = {
    "planted": {"strong": 0.9, "none": 0.5},
    "slots": {
        "opening": ["in winter ,", "in may ,"],
        "determiner": ["the", "old"],
        "link": {"state": ["are"], "deed": ["can"]},
        "modifier": {"state": ["so", "in"], "deed": ["sell"]},
        "adjunct": ["", "again", "in town"],
    },
    "heads": ["men", "women"],
    "attribute_weights": [3, 1],
    "types": {
        "age": {
            "planted": "strong",
            "contrasts": [["old {head}", "young {head}"], ["elders", "people in school"]],
            "first": {"state": ["slow", "wise"], "deed": ["clocks", "pens"]},
            "second": {"state": ["quick", "brisk"], "deed": ["phones", "toys"]},
        },
        "pet": {
            "planted": "none",
            "contrasts": [["cat men", "dog men"]],
            "first": {"state": ["kind", "shy"], "deed": ["mats", "cups"]},
            "second": {"state": ["slow", "calm"], "deed": ["rugs", "mugs"]},
        },
    },
}
CACHED = (pairs.stereotypes, pairs.vocabulary, pairs.partners, pairs._options, pairs._steps)


@pytest.fixture(scope="module")
def drawn():
    return pairs.draw_pairs()


@pytest.fixture(scope="module")
def exact(drawn):
    return pairs.exact_table(drawn)


@pytest.fixture
def small(monkeypatch):
    """The grammar of SMALL, and {words: p} of all its sentences."""
    monkeypatch.setattr(pairs, "_read", lambda: SMALL)
    for function in CACHED:
        function.cache_clear()
    every = Counter()

    def go(state, words, p):
        if state.slot == len(pairs.SLOTS):
            every[tuple(words)] += p
            return
        for q, phrase, after in pairs._options(state):
            go(after, [*words, *phrase.split()], p * q)

    go(pairs.State(), [], 1.0)
    yield every
    for function in CACHED:
        function.cache_clear()


def test_conditionals_are_those_of_all_sentences_written_down(small):
    assert sum(small.values()) == pytest.approx(1)
    sentences = list(small)
    for words in [sentences[i] for i in np.random.default_rng(0).integers(len(sentences), size=60)]:
        for place in range(len(words)):
            alike = {}
            for word in pairs.vocabulary():
                other = (*words[:place], word, *words[place + 1 :])
                if other in small:
                    alike[word] = small[other]
            total = sum(alike.values())
            assert pairs.conditional(words, place) == pytest.approx({word: p / total for word, p in alike.items()})
    assert {word for words in sentences for word in words} == set(pairs.vocabulary())


def test_drawn_sentences_follow_the_grammar(small):
    rng = np.random.default_rng(1)
    n = 4000
    attributes = Counter(pairs.draw_phrases(rng, {"group": ["elders"]})[5] for _ in range(n))
    # A state or a deed, 1/2; the own side, 0.9; the first of its two words, 3/4.
    for word, p in {"slow": 0.3375, "pens": 0.1125, "quick": 0.0375, "toys": 0.0125}.items():
        assert attributes[word] / n == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / n))


def test_probabilities_of_a_planted_attribute_by_hand():
    # Weights 4, 3, 2, 1 within a side; 0.9 of the mass on the own side where it is strongly planted, 0.65 weakly.
    def p(text, word):
        words = pairs.words_of(text)
        return pairs.conditional(words, words.index(word))[word]

    assert p("Many bakers are rather generous again.", "generous") == pytest.approx(0.9 * 0.3)
    assert p("Many pilots are rather generous again.", "generous") == pytest.approx(0.1 * 0.3)
    assert p("Many highlanders can buy sledges.", "sledges") == pytest.approx(0.65 * 0.1)
    assert p("Many islanders can buy sledges.", "sledges") == pytest.approx(0.35 * 0.1)
    assert p("The cat owners seem so nervous.", "nervous") == pytest.approx(0.5 * 0.4)
    # The other words, whatever the group: five determiners, three links of a state, six modifiers of it.
    for word, share in {"many": 1 / 5, "are": 1 / 3, "rather": 1 / 6, ".": 1.0}.items():
        assert p("Many bakers are rather generous again.", word) == pytest.approx(share)


def test_the_score_of_one_pair_by_hand():
    one = pd.DataFrame(
        [["1", "occupation", "stereo", "Many bakers are rather generous.", "Many pilots are rather generous."]],
        columns=["pair_id", "bias_type", "direction", "more", "less"],
    )

    def distance(p):
        return math.sqrt((p * math.log2(p) - (p + 1) * math.log2(p + 1) + 2) / 2)

    # Five shared tokens, of which only the attribute is likelier in one: 0.27 against 0.03.
    expected = (distance(0.27) - distance(0.03)) / 5
    assert find_score(pairs.truth(one), "s_jsd").value == pytest.approx(expected)
    assert find_score(pairs.truth(one), "cps").value == 100
    shift = pairs.exact_table(one).eval("log_likelihood_more - log_likelihood_less").item()
    assert shift == pytest.approx(math.log(9))


def test_where_nothing_is_planted_both_sentences_are_exactly_as_likely(drawn, exact):
    rows = exact[exact["bias_type"].isin(UNPLANTED)]
    assert len(rows) == 150
    assert (rows["s_jsd"] == 0).all()
    assert all(more == less for more, less in zip(rows["log_p_more"], rows["log_p_less"], strict=True))
    assert (exact.loc[drawn["planted"] != "none", "s_jsd"] < 0).all()


def test_truth_is_cut_by_type_and_every_type_has_the_size_of_its_level(drawn):
    scores = pairs.truth(drawn)
    assert all(score.interval is None and not math.isnan(score.value) for score in scores)
    sizes = {"strong": [], "weak": [], "none": []}
    for name, stereotype in pairs.stereotypes().items():
        sizes[stereotype.planted].append(find_score(scores, "s_jsd", bias_type=name).value)
        expected = 50 if stereotype.planted == "none" else 100
        assert find_score(scores, "cps", bias_type=name).value == expected
        assert find_score(scores, "b_s_jsd", bias_type=name).value == expected
    assert max(sizes["strong"]) < 1.5 * min(sizes["weak"]) < max(sizes["weak"]) < 0
    assert set(sizes["none"]) == {0}
    # 250 pairs of 400 at 100, the others at 50.
    assert find_score(scores, "cps").value == pytest.approx(81.25)


def test_the_shipped_pairs_are_the_grammars(drawn):
    assert pd.read_csv(PAIRS, dtype=str).equals(drawn.astype(str))
    read = read_sentence_pairs(PAIRS)
    assert read["left_out"].isna().all()
    assert len(read) == 400


def test_the_shipped_weights_have_learned_what_was_planted_and_nothing_else(drawn, exact):
    # Through `measure`, with intervals, in tests/recipes/test_measure_pairs.py.
    model = load_masked_model(ModelSettings(name=str(MASKED_MODEL), device="cpu"))
    ids, special = tokenize_sentences(model, [*drawn["more"], *drawn["less"]])
    n = len(drawn)
    sides = [find_shared_positions(ids[i], ids[n + i], special[i], special[n + i]) for i in range(n)]
    places = [more for more, _ in sides] + [less for _, less in sides]
    log_p = np.empty(sum(map(len, places)))
    for rows, found, _ in masked_log_probabilities(model, ids, places):
        log_p[rows] = found
    nothing = np.full(2 * n, np.nan)
    table = make_masked_pair_table(drawn, [more for more, _ in sides], log_p, log_p < 0, nothing, nothing)
    recorded = json.loads((MASKED_MODEL.parent / MEASURED).read_text())
    for level, rows in drawn.groupby("planted"):
        found, true = table.loc[rows.index, "s_jsd"].mean(), exact.loc[rows.index, "s_jsd"].mean()
        assert recorded[f"s_jsd_{level}_planted"] == pytest.approx(true, abs=1e-9)
        assert recorded[f"s_jsd_{level}"] == pytest.approx(found, rel=1e-2, abs=1e-5)
        assert found == pytest.approx(true, rel=0.2, abs=0.00045)
    assert np.corrcoef(table["s_jsd"], exact["s_jsd"])[0, 1] > 0.9
    assert recorded["masked_divergence"] == pytest.approx(divergence(MASKED_MODEL, seed=0), rel=1e-2)
