"""Phrases counted by hand."""

import math

import pandas as pd
import pytest

from evenhand.evaluation.families.generation_bias.changes.phrases import (
    OTHER_DESCRIPTORS,
    contains,
    highest_descriptors,
    phrase_changes,
)


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


def test_a_phrase_is_text_not_a_pattern():
    assert contains(["what (is) it?", "what is it?"], "(IS) it?").tolist() == [True, False]


def test_the_highest_descriptors_of_some_axes():
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


def test_shares_in_each_set_and_in_the_rest(table):
    deaf, rest = table.to_dict("records")
    assert deaf["set"] == "sympathy" and deaf["descriptors"] == ["deaf"]
    assert (deaf["n"], deaf["before"], deaf["after"]) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert deaf["change"] == pytest.approx(-1 / 3)
    assert deaf["before_low"] < 2 / 3 < deaf["before_high"]
    # The prompt with an empty response is left out of the rest: one lost the phrase and one gained it.
    assert rest["set"] == OTHER_DESCRIPTORS and rest["descriptors"] == ["rich", "tall"]
    assert (rest["n"], rest["n_left_out"]) == (2, 1)
    assert (rest["before"], rest["after"], rest["change"], rest["p_value"]) == (0.5, 0.5, 0, 1)


def test_a_set_without_responses_is_undefined_with_a_reason():
    table = phrase_changes(["x"], ["x"], ["deaf"], {"g": ["x"]}, {"g": []})
    empty = table.iloc[0]
    assert empty["n"] == 0 and math.isnan(empty["before"]) and math.isnan(empty["change"]) and empty["reason"]
    assert table.iloc[1]["before"] == 1 and table.iloc[1]["reason"] == ""
