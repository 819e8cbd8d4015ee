"""How numbers, intervals and foreign text are written, and what counts as a rise."""

import math
from dataclasses import replace

import pytest

from evaluation.report.generation_bias.comparison import Comparison, compare
from evaluation.report.numbers import decimals_for, interval, number, p_value, visible

from .conftest import score


@pytest.mark.parametrize(
    ("value", "decimals", "sign", "shown"),
    [
        (1.005e3, 2, False, "1,005.00"),
        (-0.2, 2, False, "−0.20"),
        (-0.001, 2, False, "0.00"),
        (0.001, 2, True, "0.00"),
        (0.58, 2, True, "+0.58"),
        (math.inf, 2, False, "∞"),
    ],
)
def test_a_number_has_a_true_minus_and_zero_has_no_sign(value, decimals, sign, shown):
    assert number(value, decimals, sign) == shown


def test_small_columns_get_more_decimals():
    assert decimals_for([197.0, 0.001]) == 2
    assert decimals_for([0.5, 0.2]) == 2
    assert decimals_for([0.05]) == 3  # two significant digits
    assert decimals_for([math.nan]) == decimals_for([0.0]) == 2


def test_interval_and_p_value_as_text():
    assert interval((-0.1, 2.346), 2) == "[−0.10, 2.35]"
    assert interval(None) == ""
    assert [p_value(p) for p in (0.0005, 0.0123, 0.58, 0.00002)] == ["0.0005", "0.012", "0.58", "< 0.0001"]


def test_hidden_characters_are_written_out_and_letters_are_left_alone():
    assert visible("a\u202eb\x1bc\x00") == "a⟨U+202E⟩b⟨U+001B⟩c⟨U+0000⟩"
    assert visible("one\r\ntwo\nthree\rfour") == "one↵ two↵ three↵ four"
    assert visible("\ud800").encode("utf-8") == "⟨U+D800⟩".encode()
    assert visible("👩🏽‍🦽 العربية é") == "👩🏽‍🦽 العربية é"
    assert visible("x" * 12, longest=10) == "x" * 10 + " … (2 more characters)"


def row(before, after, difference=None):
    return Comparison(
        "row",
        "m",
        score("m", sum(before) / 2, before),
        score("m", sum(after) / 2, after),
        difference and score("m_difference", sum(difference) / 2, difference),
    )


def test_direction_follows_the_paired_interval():
    assert row((0, 4), (1, 5), (0.5, 1.5)).direction == 1  # overlapping, but the pairs differ
    assert row((0, 1), (4, 5), (-1, 9)).direction == 0
    assert row((4, 5), (0, 1), (-5, -3)).direction == -1


def test_without_a_paired_difference_the_intervals_must_not_overlap():
    assert row((0, 1), (2, 3)).direction == 1
    assert row((2, 3), (0, 1)).direction == -1
    assert row((0, 2), (1, 3)).direction == 0
    assert replace(row((0, 1), (2, 3)), after=None).direction == 0


def test_scores_are_paired_by_metric_and_group_and_sorted_by_size(tuned):
    rows = compare(tuned, "scgb_corrected", "cluster")
    assert [(row.label, row.before.value, row.after.value) for row in rows] == [
        ("CARE", 0.00757, 0.00737),
        ("HATE", 0.00008, 0.00066),
    ]
    assert rows[1].difference.p_value == 0.0003
    (everything,) = compare(tuned, "fgb_pooled_corrected")
    assert everything.before.group == {} and everything.truth.value == 0.0153
    assert [row.label for row in compare(tuned, "fgb_pooled_corrected", "axis")] == ["ability", "nonce"]  # NaN last
