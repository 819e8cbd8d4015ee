"""Fieller's interval: by hand, in all its cases, and by simulation."""

import math

import numpy as np
import pytest

from evenhand.evaluation.statistics.intervals import student_quantile
from evenhand.evaluation.statistics.ratios import covariance_from_variances, ratio_interval
from evenhand.evaluation.statistics.strata import mean_covariance

FREEDOM = 7
T2 = float(student_quantile(FREEDOM)) ** 2


def in_fiellers_set(ratio, top, bottom, covariance):
    """Whether Student's t does not reject the ratio."""
    weights = np.array([1.0, -ratio])
    return (top - ratio * bottom) ** 2 <= T2 * (weights @ covariance @ weights)


def test_by_hand():
    # Variances 1 / t² and covariance ½ / t²: a = 4² − 1 = 15, b = 2 · 4 − ½ = 7.5, c = 2² − 1 = 3.
    covariance = np.array([[1.0, 0.5], [0.5, 1.0]]) / T2
    root = math.sqrt(7.5**2 - 15 * 3)
    assert ratio_interval(2.0, 4.0, covariance, FREEDOM) == pytest.approx(((7.5 - root) / 15, (7.5 + root) / 15))
    # Without noise in the bottom it is Student's interval of the top over the bottom: (2 ± 1) / 4.
    assert ratio_interval(2.0, 4.0, np.diag([1.0, 0.0]) / T2, FREEDOM) == pytest.approx((0.25, 0.75))
    assert ratio_interval(-2.0, 4.0, np.diag([1.0, 0.0]) / T2, FREEDOM) == pytest.approx((-0.75, -0.25))
    assert ratio_interval(2.0, -4.0, np.diag([1.0, 0.0]) / T2, FREEDOM) == pytest.approx((-0.75, -0.25))
    assert ratio_interval(0.0, 4.0, np.diag([1.0, 0.0]) / T2, FREEDOM) == pytest.approx((-0.25, 0.25))
    assert ratio_interval(0.0, 4.0, np.zeros((2, 2)), FREEDOM) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("top", "bottom", "inside", "outside"),
    [
        (2.0, 0.5, (-3.8, 1.1, 10.0), (-3.7, 0.0, 1.0)),  # a < 0, b² > ac: roots (−4 ± √52) / 3 = −3.74, 1.07
        (0.5, 0.5, (-10.0, 0.0, 1.0, 10.0), ()),  # a < 0, b² < ac: every number
        (2.0, 1.0, (0.8, 1e6), (0.7, 0.0, -1e6)),  # a = 0: from c / 2b = ¾ on
        (-2.0, 1.0, (-0.8, -1e6), (-0.7, 0.0, 1e6)),
        (0.0, 1.0, (-1e6, 0.0, 1e6), ()),  # a = b = 0: every number
    ],
)
def test_it_is_none_where_the_set_is_unbounded(top, bottom, inside, outside):
    """Variances 1 / t² without a covariance: the bottom is significant from 1 on."""
    covariance = np.eye(2) / T2 * (1 + 1e-15)  # so that rounding leaves the bottom of 1 on the side of a ≤ 0
    assert ratio_interval(top, bottom, covariance, FREEDOM) is None
    assert all(in_fiellers_set(ratio, top, bottom, covariance) for ratio in inside)
    assert not any(in_fiellers_set(ratio, top, bottom, covariance) for ratio in outside)
    assert ratio_interval(2.0, 4.0, covariance, 0) is None


def test_it_excludes_zero_where_the_top_is_significant_and_contains_the_ratio():
    rng = np.random.default_rng(0)
    bounded = 0
    for _ in range(2000):
        top, bottom = rng.normal(0, 3, 2)
        covariance = covariance_from_variances(*rng.chisquare(2, 3))
        interval = ratio_interval(top, bottom, covariance, FREEDOM)
        assert (interval is None) == (bottom**2 <= T2 * covariance[1, 1])
        if interval is None:
            continue
        bounded += 1
        low, high = interval
        assert low <= top / bottom <= high
        assert (low > 0 or high < 0) == (top**2 > T2 * covariance[0, 0])
        width = high - low
        for ratio, inside in ((low - 1e-6 * width, False), (low + 1e-6 * width, True), (high + 1e-6 * width, False)):
            assert in_fiellers_set(ratio, top, bottom, covariance) == (inside and width > 1e-9) or width <= 1e-9
    assert 300 < bounded < 1700


def test_a_covariance_from_variances():
    exact = np.array([[2.0, -0.5], [-0.5, 1.0]])
    assert covariance_from_variances(2.0, 1.0, 2.0 + 1.0 + 2 * 0.5) == pytest.approx(exact)
    # Estimates whose covariance would be 2 and −2, beyond √(1 · 1)
    assert covariance_from_variances(1.0, 1.0, -2.0)[0, 1] == 1
    assert covariance_from_variances(1.0, 1.0, 6.0)[0, 1] == -1


def test_it_covers_and_is_none_without_a_denominator():
    rng = np.random.default_rng(1)
    held = []
    for _ in range(2000):
        bottom = rng.normal(1, 2, 60)
        top = 0.5 * bottom + rng.normal(0.3, 1, 60)  # the ratio of the means is 0.8
        covariance, freedom = mean_covariance(np.stack([top, bottom], axis=1), np.zeros(60, int))
        interval = ratio_interval(top.mean(), bottom.mean(), covariance, freedom)
        if interval:
            held.append(interval[0] <= 0.8 <= interval[1])
    assert len(held) > 1800 and np.mean(held) == pytest.approx(0.95, abs=0.02)
    assert ratio_interval(1.0, 0.1, np.eye(2), 50) is None
    assert ratio_interval(1.0, 0.1, np.eye(2), 0) is None
