"""Changes of styles and phrases, by hand and against planted ones."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.changes.phrases import (
    OTHER_DESCRIPTORS,
    contains,
    highest_descriptors,
    phrase_changes,
)
from evenhand.evaluation.metrics.generation_bias.changes.style_changes import (
    descriptor_clusters,
    descriptor_styles,
    moved_descriptors,
    style_changes,
)
from evenhand.evaluation.statistics.cells import arrange_cells, complete_descriptors
from evenhand.evaluation.statistics.spread import descriptor_spread
from tests.measured_runs import styled_columns


def responses(probability, n, templates=2, seed=0):
    """Return styled responses: the first style is drawn with probability[d], else the second; (d, t) has n each."""
    rng = np.random.default_rng(seed)
    d = np.repeat(np.arange(len(probability)), n * templates)
    t = np.tile(np.repeat(np.arange(templates), n), len(probability))
    hit = rng.random(len(d)) < np.asarray(probability)[d]
    vectors = np.stack([hit, ~hit], axis=1).astype(np.float32)
    names = [f"d{i:02d}" for i in d]
    return styled_columns(vectors, [f"t{i}" for i in t], names, ["axis"] * len(d), ("Kind", "Rude"))


def with_vectors(styled, vectors):
    return replace(styled, vectors=np.asarray(vectors, dtype=np.float32))


def test_by_hand_and_corrected_for_noise():
    # Two descriptors, one template, two equal responses each: no noise. Means of Kind 0.2 and 0.6 before: variance
    # (ddof 1) 0.08; 0.4 and 0.4 after: 0.
    frame = styled_columns(np.zeros((4, 2)), ["t"] * 4, ["a", "a", "b", "b"], ["x"] * 4, ("Kind", "Rude"))
    before = with_vectors(frame, [[0.2, 0.8], [0.2, 0.8], [0.6, 0.4], [0.6, 0.4]])
    after = with_vectors(frame, [[0.4, 0.6]] * 4)
    table = style_changes(before, after).set_index("style")
    assert table.loc["Kind", "before"] == pytest.approx(0.08) and table.loc["Kind", "after"] == pytest.approx(0)
    assert table.loc["Kind", "change"] == pytest.approx(-0.08)
    assert table.loc["Kind", "mean_before"] == pytest.approx(0.4) == table.loc["Kind", "mean_after"]
    assert np.isnan(table.loc["Kind", "change_low"])  # two responses to a cell: no interval
    assert table.loc["Kind", "reason"] == ""
    # Two responses at 0 and 1 to each of two descriptors: means 1/2, within-cell variance 1/2, so 0 − (1/2)/2 = −1/4.
    frame = styled_columns(np.zeros((4, 2)), ["t"] * 4, ["a", "a", "b", "b"], ["x"] * 4, ("Kind", "Rude"))
    noisy = with_vectors(frame, [[0, 1], [1, 0], [0, 1], [1, 0]])
    assert style_changes(noisy, noisy)["before"].tolist() == pytest.approx([-0.25, -0.25])


def test_scores_equal_pooled_fgb_of_one_style():
    before, after = responses([0.1, 0.5, 0.9, 0.4], 5), responses([0.4, 0.5, 0.6, 0.4], 5, seed=1)
    table = style_changes(before, after, n_intervals=1).set_index("style")
    template, descriptor = (
        np.unique(names, return_inverse=True)[1] for names in (before.table["template"], before.table["descriptor"])
    )
    cells = complete_descriptors(
        arrange_cells(np.concatenate([before.vectors, after.vectors], axis=1), template, descriptor)
    )
    for style, place in (("Kind", 0), ("Rude", 1)):
        for side, column in (("before", place), ("after", 2 + place)):
            weights = np.zeros(4)
            weights[column] = 1
            expected = descriptor_spread(cells, weights, pooled=True).corrected
            assert table.loc[style, side] == pytest.approx(expected.value, rel=1e-5)
            if np.isfinite(table.loc[style, f"{side}_low"]):
                assert (table.loc[style, f"{side}_low"], table.loc[style, f"{side}_high"]) == expected.interval
    assert table["p_value"].notna().sum() == 1  # as many intervals as asked for


def test_only_a_planted_change_is_significant():
    uneven, even = [0.1, 0.3, 0.5, 0.7, 0.9] * 4, [0.5] * 20
    many = [style_changes(responses(uneven, 4, seed=seed), responses(even, 4), n_intervals=0) for seed in range(40)]
    found = np.array([table.set_index("style").loc["Kind", "before"] for table in many])
    # True variance of the uneven: 0.08 × 20/19.
    assert found.mean() == pytest.approx(0.08 * 20 / 19, abs=3 * found.std() / np.sqrt(len(found)))
    fell = style_changes(responses(uneven, 10), responses(even, 10, seed=1)).set_index("style")
    assert fell.loc["Kind", "change_high"] < 0 and fell.loc["Kind", "p_value"] < 1e-4
    same = style_changes(responses(uneven, 10), responses(uneven, 10, seed=1)).set_index("style")
    assert same.loc["Kind", "change_low"] < 0 < same.loc["Kind", "change_high"]


def test_the_order_of_rows_does_not_matter_and_an_empty_response_is_counted():
    before, after = responses([0.1, 0.9, 0.5], 8), responses([0.5, 0.5, 0.5], 8, seed=1)
    order = np.random.default_rng(0).permutation(len(before))

    def shuffled(styled):
        return replace(styled, table=styled.table.iloc[order].reset_index(drop=True), vectors=styled.vectors[order])

    one, other = style_changes(before, after), style_changes(shuffled(before), shuffled(after))
    for name in ("change", "change_low", "before_high"):
        assert np.allclose(one[name], other[name], equal_nan=True)
    vectors = after.vectors.copy()
    vectors[0] = np.nan
    assert style_changes(before, with_vectors(after, vectors))["n_left_out"].tolist() == [1, 1]


def test_one_descriptor_is_undefined_and_means_are_over_templates():
    table = style_changes(responses([0.5], 4), responses([0.5], 4))
    assert table["change"].isna().all() and table["reason"].str.contains("no template has two").all()
    # Descriptor a has three responses to t0 (Kind 0) and one to t1 (Kind 1): its mean over templates is 1/2, not 1/4.
    styled = styled_columns(
        np.array([[0, 1], [0, 1], [0, 1], [1, 0], [np.nan, np.nan]]),
        ["t0", "t0", "t0", "t1", "t1"],
        ["a"] * 5,
        ["x"] * 5,
        ("Kind", "Rude"),
    )
    means = descriptor_styles(styled)
    assert means.loc[("a", "x")].tolist() == [0.5, 0.5]
    assert descriptor_clusters(means, {"ALL": (0, 1), "RUDE": (1,)}).loc[("a", "x")].tolist() == [1, 0.5]


def test_descriptors_with_the_largest_changes():
    before = descriptor_styles(responses([0.0] * 6, 1)) * 0
    after = before.copy()
    before["Kind"], after["Kind"] = [0.5, 0.5, 0.5, 0.5, 0.1, 0.1], [0.1, 0.4, 0.5, 0.3, 0.9, 0.2]
    moved = moved_descriptors(before, after, ["Kind"], n_each=2)
    assert moved["descriptor"].tolist() == ["d00", "d03", "d04", "d05"]  # two falls, two rises, largest first
    assert np.allclose(moved["change"], [-0.4, -0.2, 0.8, 0.1])
    assert np.allclose(moved["before"], [0.5, 0.5, 0.1, 0.1])


@pytest.mark.parametrize(
    ("response", "found"),
    [
        ("I'm sorry to hear that.", True),
        ("Oh. I’M  SORRY\nTO HEAR it!", True),
        ("I'm sorry.", False),
        ("", False),
        ("I'm sorry to heart-attack", True),  # as in the paper, a phrase may end inside a word
    ],
)
def test_contains(response, found):
    assert contains([response], "i'm sorry to hear").tolist() == [found]


def test_phrases_are_text_and_descriptors_are_ranked_by_b():
    assert contains(["what (is) it?", "what is it?"], "(IS) it?").tolist() == [True, False]
    bias = pd.DataFrame(
        {
            "descriptor": list("abcde"),
            "axis": ["ability", "ability", "age", "religion", "ability"],
            "before": [0.1, 0.3, 0.9, 0.3, math.nan],
        }
    )
    assert highest_descriptors(bias, ["ability", "religion"]) == ["b", "d", "a"]
    assert highest_descriptors(bias, ["ability"], 1) == ["b"]
    assert highest_descriptors(bias, ["nonce"]) == []


@pytest.fixture
def table():
    before = ["so sorry", "so sorry", "what?", "so sorry", "", "ok"]
    after = ["fine", "so sorry", "ok", "ok", "so sorry", "so sorry"]
    descriptor = ["deaf", "deaf", "deaf", "rich", "rich", "tall"]
    return phrase_changes(before, after, descriptor, {"sympathy": ["so sorry"]}, {"sympathy": ["deaf"]})


def test_shares_in_each_set_and_in_the_rest_by_hand(table):
    deaf, rest = table.to_dict("records")
    assert deaf["set"] == "sympathy" and deaf["descriptors"] == ["deaf"]
    assert (deaf["n"], deaf["before"], deaf["after"]) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert deaf["change"] == pytest.approx(-1 / 3)
    assert deaf["before_low"] < 2 / 3 < deaf["before_high"]
    # The prompt with an empty response is left out of the rest: one lost the phrase and one gained it.
    assert rest["set"] == OTHER_DESCRIPTORS and rest["descriptors"] == ["rich", "tall"]
    assert (rest["n"], rest["n_left_out"]) == (2, 1)
    assert (rest["before"], rest["after"], rest["change"], rest["p_value"]) == (0.5, 0.5, 0, 1)
    table = phrase_changes(["x"], ["x"], ["deaf"], {"g": ["x"]}, {"g": []})
    empty = table.iloc[0]
    assert empty["n"] == 0 and math.isnan(empty["before"]) and math.isnan(empty["change"]) and empty["reason"]
    assert table.iloc[1]["before"] == 1 and table.iloc[1]["reason"] == ""
