"""Numbers, intervals, foreign text and scales, and the registry of metrics with their units."""

import math

import pytest

from evenhand.evaluation import metrics as families
from evenhand.evaluation.report.formats import Format, find_format, glossary
from evenhand.evaluation.report.html import Scale, row_plot, row_scale
from evenhand.evaluation.report.numbers import (
    decimals_for,
    decimals_for_interval,
    interval,
    number,
    p_value,
    sanitize,
    shown_interval,
    tick_number,
)
from evenhand.evaluation.report.page import Mark, Row
from evenhand.evaluation.report.score_sections import value_text
from evenhand.evaluation.score import BiasScore


def test_a_number_has_a_unicode_minus_and_zero_has_no_sign():
    assert [number(value) for value in (1.005e3, -0.2, -0.001)] == ["1,005.00", "−0.20", "0.00"]
    assert [number(value, sign=True) for value in (0.001, 0.58, math.nan)] == ["0.00", "+0.58", "–"]


def test_small_columns_get_more_decimals():
    assert decimals_for([197.0, 0.001]) == 2
    assert decimals_for([0.5, 0.2]) == 2
    assert decimals_for([0.05]) == 3  # two significant digits
    assert decimals_for([math.nan]) == decimals_for([0.0]) == 2


def test_an_interval_has_enough_digits_to_differ():
    assert decimals_for_interval((0.0004, 0.0041), 2) == 3  # half of the width is 0.00185: two steps of 0.001
    assert decimals_for_interval((-0.00132, -0.00078), 3) == 4
    assert [decimals_for_interval(it, 2) for it in ((-math.inf, 1.0), (0.0, 1e-12), (0.0, 1e-16), None)] == [
        2,
        13,
        2,
        2,
    ]


def test_no_bound_of_a_shown_effect_reads_as_zero():
    assert shown_interval((0.04, 12.0), 1) == shown_interval((0.0, 12.0), 1) == "[> 0, 12.0]"
    assert shown_interval((-9.0, 0.0), 0) == shown_interval((-9.0, 0.2), 0) == "[−9, < 0]"
    assert shown_interval((0.06, 1.0), 1) == "[0.1, 1.0]"
    assert shown_interval((-3.0, 12.0), 0) == "[−3, 12]"  # interval and test disagree
    assert shown_interval((0.004, 0.012), 1, sign=True) == "[> 0, +0.01]"


def test_numbers_in_a_small_unit_do_not_read_as_zero():
    """Such as a price per token: 4.2 billionths, with an interval from 4.0 to 4.4."""
    decimals = decimals_for_interval((4.0e-9, 4.4e-9), 2)
    assert number(4.2e-9, decimals) == "4.2e−9" and interval((4.0e-9, 4.4e-9), decimals) == "[4.0e−9, 4.4e−9]"
    assert number(-4.2e-9, decimals_for([4.2e-9]), sign=True) == "−4.2e−9"
    assert shown_interval((2.0e-9, 3.0e-9), 2, sign=True) == "[+2.0e−9, +3.0e−9]"
    assert number(1e-17, decimals_for([1e-17])) == "0.00"  # a rounding error
    assert (number(0.5, 9), number(0.0, 9)) == ("0.500000", "0")


def test_intervals_and_hidden_characters_as_text():
    assert interval((-0.1, 2.346), 2) == "[−0.10, 2.35]"
    assert interval(None) == ""
    assert [p_value(p) for p in (0.0005, 0.0123, 0.58, 0.00002)] == ["0.0005", "0.012", "0.58", "< 0.0001"]
    assert sanitize("a\u202eb\x1bc\x00") == "a⟨U+202E⟩b⟨U+001B⟩c⟨U+0000⟩"
    assert sanitize("one\r\ntwo\nthree\rfour") == "one↵ two↵ three↵ four"
    assert sanitize("\ud800").encode("utf-8") == "⟨U+D800⟩".encode()
    assert sanitize("👩🏽‍🦽 العربية é") == "👩🏽‍🦽 العربية é"
    assert sanitize("x" * 12, max_length=10) == "x" * 10 + " … (2 more characters)"


def test_every_family_declares_metrics_with_a_description():
    for family in families.names():
        declared = families.load_family(family).FORMATS
        assert declared
        assert all(metric.description.endswith(".") and metric.label for metric in declared)


def test_metrics_are_declared_once_and_convert_to_their_unit():
    metric = Format("m", "M", "A metric.", unit="%", factor=100, decimals=1, ideal=0.5)
    assert (metric.title, metric.reported_ideal) == ("M, %", 50)
    assert metric.text(0.1234) == "12.3"
    assert metric.interval_text((0.1, 0.2)) == "[10.0, 20.0]"
    assert metric.interval_text(None) == ""
    metric = find_format("fgb", "pooled_corrected")
    difference = find_format("fgb", "pooled_corrected", "difference")
    assert (difference.label, difference.factor, difference.ideal) == (metric.label, 1000, 0)
    assert difference.text(0.001) == "+1.00"
    assert find_format("cps", kind="detectable_difference").text(2.0) == "2.0"
    assert find_format("fgb", kind="reduction").text(0.8) == "80"
    with pytest.raises(KeyError, match="no_such_metric"):
        find_format("no_such_metric")
    entries = glossary(map(find_format, ["embedding_gap", "embedding_gap_holm", "embedding_similarity"]))
    assert [label for label, _ in entries] == ["gap", "cosine"]


def test_scales_map_their_bounds_and_include_zero_and_round_ticks():
    scale = Scale(0, 3.9)
    assert (scale(0), scale(3.9), scale(1.95)) == (2, 98, 50) and {0, 1, 2, 3} <= set(scale.ticks)
    rows = [Row("", (), (Mark("before", value, None),)) for value in (4.0, 9.0, math.nan, math.inf)]
    assert row_scale(rows).low == 0 and row_scale(rows).high > 9 and row_scale([]).high > 0


def test_ticks_of_large_numbers_differ():
    assert [tick_number(tick) for tick in (1985.2, 1985.4, 82_500.0)] == ["1,985.2", "1,985.4", "82,500"]
    assert [tick_number(tick) for tick in (0.1 + 0.2, 1e5 + 0.1 + 0.2, -1e-17)] == ["0.3", "100,000.3", "0"]


def test_a_small_number_does_not_read_as_zero_in_a_drawing_or_a_sentence():
    row = Row("old", (), (Mark("before", 0.0004, (0.0003, 0.0005)),))
    assert "0.00040 (0.00030 to 0.00050)" in row_plot(row, row_scale([row]))
    wide = Row("old", (), (Mark("before", 12.0, (1.5, 20.0)),))
    assert "before 12.00 (1.50 to 20.00)" in row_plot(wide, row_scale([wide]))
    bounds = (0.0, math.inf)
    score = BiasScore("likelihood_difference", 0.0012, 0.0, bounds, n=5, interval=(0.0008, 0.0016))
    assert "0.0012" in value_text(score) and "0.0008 to 0.0016" in value_text(score)
