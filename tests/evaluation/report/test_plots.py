"""Scales and ticks."""

import pytest

from evenhand.evaluation.report.plots import Scale, scale_for, ticks


def test_a_scale_maps_its_bounds_to_the_ends():
    scale = Scale(-10, 30, 2, 98)
    assert (scale(-10), scale(30), scale(10)) == (2, 98, 50)


def test_a_scale_includes_zero_and_all_finite_values():
    scale = scale_for([4.0, 9.0, float("nan"), float("inf")], 0, 100)
    assert scale.low == 0 and scale.high > 9
    assert scale_for([], 0, 100).high > 0
    assert scale_for([-3.0, -1.0], 0, 100).low < -3 < 0 < scale_for([-3.0, -1.0], 0, 100).high


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 5, 10]), (0, 3.9, [0, 1, 2, 3]), (-0.2, 1, [0, 0.5, 1]), (0.5, 0.97, [0.6, 0.8])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(Scale(low, high, 0, 100)) == pytest.approx(expected)
