"""How numbers, intervals and foreign text are written."""

import math

import pytest

from evenhand.evaluation.report.numbers import (
    decimals_for,
    decimals_for_interval,
    display_name,
    interval,
    number,
    p_value,
    sanitize,
)


@pytest.mark.parametrize(
    ("value", "decimals", "sign", "text"),
    [
        (1.005e3, 2, False, "1,005.00"),
        (-0.2, 2, False, "−0.20"),
        (-0.001, 2, False, "0.00"),
        (0.001, 2, True, "0.00"),
        (0.58, 2, True, "+0.58"),
        (math.inf, 2, False, "∞"),
        (math.nan, 2, True, "–"),
    ],
)
def test_a_number_has_a_unicode_minus_and_zero_has_no_sign(value, decimals, sign, text):
    assert number(value, decimals, sign) == text


def test_small_columns_get_more_decimals():
    assert decimals_for([197.0, 0.001]) == 2
    assert decimals_for([0.5, 0.2]) == 2
    assert decimals_for([0.05]) == 3  # two significant digits
    assert decimals_for([math.nan]) == decimals_for([0.0]) == 2


@pytest.mark.parametrize(
    ("bounds", "decimals", "expected"),
    [
        ((0.0004, 0.0041), 2, 3),  # half of the width is 0.00185: two steps of 0.001
        ((-0.00132, -0.00078), 3, 4),  # was "−0.001 [−0.001, −0.001]"
        ((14.52, 17.04), 2, 2),
        ((15.7799, 15.7801), 2, 2),  # two digits of 15 are enough
        ((0.5, 0.5), 2, 2),
        ((-math.inf, 1.0), 2, 2),
        ((0.0, 1e-12), 2, 6),
        (None, 1, 1),
    ],
)
def test_an_interval_has_enough_digits_to_differ(bounds, decimals, expected):
    assert decimals_for_interval(bounds, decimals) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("/a/b/loop/kto/tune/adapter", "kto/tune/adapter"), ("/model", "model"), ("org/m", "org/m"), ("./m", "./m")],
)
def test_a_display_name_is_the_end_of_an_absolute_path(name, expected):
    assert display_name(name) == expected


def test_interval_and_p_value_as_text():
    assert interval((-0.1, 2.346), 2) == "[−0.10, 2.35]"
    assert interval(None) == ""
    assert [p_value(p) for p in (0.0005, 0.0123, 0.58, 0.00002)] == ["0.0005", "0.012", "0.58", "< 0.0001"]


def test_hidden_characters_become_codes_and_letters_are_unchanged():
    assert sanitize("a\u202eb\x1bc\x00") == "a⟨U+202E⟩b⟨U+001B⟩c⟨U+0000⟩"
    assert sanitize("one\r\ntwo\nthree\rfour") == "one↵ two↵ three↵ four"
    assert sanitize("\ud800").encode("utf-8") == "⟨U+D800⟩".encode()
    assert sanitize("👩🏽‍🦽 العربية é") == "👩🏽‍🦽 العربية é"
    assert sanitize("x" * 12, max_length=10) == "x" * 10 + " … (2 more characters)"
