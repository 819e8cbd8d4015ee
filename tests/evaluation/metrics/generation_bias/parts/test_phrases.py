"""Phrases, parroting and probabilities by descriptor, by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.parts.corpus import cluster_means
from evenhand.evaluation.metrics.generation_bias.parts.phrases import (
    OTHER_DESCRIPTORS,
    highest_descriptors,
    parroting_changes,
    phrase_changes,
    repeated_prompts,
)
from tests.measured_runs import styled_columns


def test_means_are_over_templates_first():
    # Descriptor a has three responses to t0 (Kind 0) and one to t1 (Kind 1): its mean over templates is 1/2, not 1/4.
    vectors = np.array([[0, 1], [0, 1], [0, 1], [1, 0], [np.nan, np.nan]])
    styled = styled_columns(vectors, ["t0", "t0", "t0", "t1", "t1"], ["a"] * 5, ["x"] * 5, ("Kind", "Rude"))
    means = cluster_means(styled, {"ALL": (0, 1), "RUDE": (1,)})
    assert means.loc[("a", "x")].tolist() == [1, 0.5]


def test_parroting_by_descriptor_largest_rise_first():
    def side(*repeats):
        names = {"deaf": "ability", "rich": "class", "tall": "body"}
        descriptor = ["deaf", "deaf", "rich", "rich", "rich", "tall"]
        templates = ["t", "u", "t", "u", "u", "t"]
        styled = styled_columns(
            np.eye(2)[[0] * 6], templates, descriptor, [names[it] for it in descriptor], ("Kind", "Rude")
        )
        styled.table["text"] = "I like moms."
        styled.table["response"] = ["i like moms" if it else "Oh?" for it in repeats]
        return styled

    repeated = repeated_prompts(side(1, 1, 0, 0, 1, 0), side(1, 0, 1, 0, 1, 0))
    by_template = parroting_changes(repeated, ["template"])
    assert by_template[["template", "n", "before", "after"]].values.tolist() == [
        ["t", 3, 1 / 3, 2 / 3],
        ["u", 3, 2 / 3, 1 / 3],
    ]
    by_cell = parroting_changes(repeated, ["template", "descriptor"]).set_index(["template", "descriptor"])
    assert by_cell["change"].to_dict() == {("t", "rich"): 1, ("t", "deaf"): 0, ("t", "tall"): 0} | {
        ("u", "rich"): 0,
        ("u", "deaf"): -1,
    }
    assert by_cell.loc[("u", "rich"), "n"] == 2
    table = parroting_changes(repeated, ["descriptor", "axis"])
    assert table["descriptor"].tolist() == ["rich", "tall", "deaf"]
    assert table["n"].tolist() == [3, 1, 2]
    assert table["before"].tolist() == [1 / 3, 0, 1] and table["after"].tolist() == [2 / 3, 0, 0.5]
    assert np.allclose(table["change"], [1 / 3, 0, -0.5])


def test_descriptors_are_ranked_by_b():
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


def test_shares_of_a_phrase_in_each_set_and_in_the_rest_by_hand():
    before = ["I’m SO  sorry (truly)", "i'm so sorry (", "i'm so sorry", "I'm so sorry (", "", "ok"]
    after = ["fine", "I'm so sorry (", "ok", "ok", "I'm so sorry (", "I'm so sorry ("]
    descriptor = ["deaf", "deaf", "deaf", "rich", "rich", "tall"]
    table = phrase_changes(before, after, descriptor, {"sympathy": ["i'm SO sorry ("]}, {"sympathy": ["deaf"]})
    deaf, rest = table.to_dict("records")
    assert (deaf["set"], deaf["n"]) == ("sympathy", 3)
    assert (deaf["before"], deaf["after"]) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert deaf["change"] == pytest.approx(-1 / 3) and deaf["low"] < -1 / 3 < deaf["high"]
    # The prompt with an empty response is left out of the rest: one lost the phrase and one gained it.
    assert (rest["set"], rest["n"]) == (OTHER_DESCRIPTORS, 2)
    assert (rest["before"], rest["after"], rest["change"], rest["p"]) == (0.5, 0.5, 0, 1)
    empty, whole = phrase_changes(["x"], ["x"], ["deaf"], {"g": ["x"]}, {"g": []}).to_dict("records")
    assert empty["n"] == 0 and math.isnan(empty["before"]) and math.isnan(empty["change"])
    assert whole["before"] == 1
