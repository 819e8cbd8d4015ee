"""Intervals against hand-derived ones and against each other, and how often they hold the truth."""

import doctest
import math

import numpy as np
import pytest
from scipy import stats

from evenhand.evaluation.statistics import intervals as module
from evenhand.evaluation.statistics.intervals import (
    CONFIDENCE,
    TAILS,
    Z,
    bootstrap,
    bootstrap_t_interval,
    mean_interval,
    normal_interval,
    normal_p_value,
    percentile_interval,
    share_change_interval_with_ties,
    share_interval,
    share_interval_with_ties,
    student_quantile,
)
from evenhand.evaluation.statistics.one_sample_tests import reach_of_mean, sign_test, t_test
from evenhand.evaluation.statistics.paired_change import share_change

pytestmark = pytest.mark.filterwarnings("error")


def test_the_level():
    assert CONFIDENCE == 0.95 and TAILS == (0.025, 0.975)
    assert pytest.approx(1.959963984540054, abs=1e-15) == Z


def test_wilson():
    # 0 of 4 with z² = 3.8415: the upper end is z² / (n + z²) = 3.8415 / 7.8415
    low, high = share_interval(0, 4)
    assert low == 0 and high == pytest.approx(3.8414588 / 7.8414588)
    assert share_interval(0, 0) is None


def test_intervals_of_shares_are_the_known_ones():
    assert share_interval_with_ties(13 / 20, 20) == pytest.approx(share_interval(13, 20))
    before = np.array([True] * 9 + [False] * 11)
    after = np.array([True] * 6 + [False] * 10 + [True] * 4)
    known = share_change("x", before, after)
    assert share_change_interval_with_ties(1.0 * after - before) == pytest.approx(known.interval)
    assert sign_test(np.sign(1.0 * after - before)) == pytest.approx(known.p_value)
    assert sign_test(np.array([1, 1, 1, 1, -1, 0, 0])) == pytest.approx(2 * (1 + 5) / 2**5)  # ties are dropped


def test_intervals_cover_the_truth():
    """True mean 0 of skewed pair scores in [−1, 1]; true share 0.6 with a tenth of ties on top."""
    rng, means, shares, runs = np.random.default_rng(5), 0, 0, 400
    for run in range(runs):
        values = rng.beta(1, 3, 80) - 0.25
        low, high = bootstrap((values,), np.mean, run, resamples=499)[1]
        means += low <= 0 <= high
        hits = rng.choice([1.0, 0.0, 0.5], 80, p=[0.54, 0.36, 0.1])
        low, high = share_interval_with_ties(hits.mean(), 80)
        shares += low <= 0.59 <= high
    # 95 % of 400 runs, give or take three standard errors (0.011 each); ties make Wilson's a little wide.
    assert 0.91 < means / runs < 0.985 and 0.93 < shares / runs < 1


@pytest.mark.parametrize("n", [10, 30])
def test_the_bootstrap_t_covers_the_mean_of_few_and_skewed_values(n):
    # Percentiles of the mean held it in 78 % (10) and 88 % (30) of such samples.
    rng, runs = np.random.default_rng(n), 500
    samples = rng.gamma(0.5, size=(runs, n)) - 0.5
    found = [bootstrap_t_interval(values, run, resamples=999) for run, values in enumerate(samples)]
    assert 0.92 < np.mean([low <= 0 <= high for low, high in found]) < 0.985


def test_the_bootstrap_t_is_nearly_students_interval_for_many_normal_values():
    values = np.random.default_rng(0).normal(3, 2, 2000)
    assert bootstrap_t_interval(values, 1) == pytest.approx(mean_interval(values), abs=0.01)
    scaled = bootstrap_t_interval(5 - 2 * values, 1)  # equivariant, turned round as well
    assert scaled == pytest.approx([5 - 2 * bound for bound in bootstrap_t_interval(values, 1)[::-1]], abs=0.02)


def test_two_values_have_students_interval():
    assert bootstrap_t_interval(np.array([1.0, 2.0]), 0) == pytest.approx((1.5 - 12.706205 / 2, 1.5 + 12.706205 / 2))


@pytest.mark.parametrize("values", [[], [3.0], [3.0, 3.0]])
def test_what_does_not_vary_has_no_interval(values):
    values = np.array(values)
    assert bootstrap((values,), np.mean, 0) == (0.0 if len(values) == 2 else None, None)
    assert bootstrap_t_interval(values, 0) is None
    assert t_test(values, 0.0) is None and math.isnan(reach_of_mean(values))


def test_the_interval_of_a_mean_is_that_of_the_normal_or_of_students_distribution():
    values = np.array([0.5, 0.7, 0.9, 0.1])
    error = stats.sem(values)
    assert mean_interval(values) == pytest.approx(stats.norm.interval(0.95, values.mean(), error))
    assert mean_interval(values, student_quantile(3)) == pytest.approx(stats.t.interval(0.95, 3, values.mean(), error))
    assert mean_interval(values, bounds=(0.0, 0.6))[1] == 0.6
    assert mean_interval(values[:1]) is None


def test_a_p_value_is_below_5_percent_where_the_interval_leaves_out_0():
    for value in (1.95, 1.97):
        assert (normal_p_value(value, 1.0) < 0.05) == (normal_interval(value, 1.0)[0] > 0)
    assert math.isnan(normal_interval(math.nan, 1.0, (0.0, 1.0))[0])


def test_a_percentile_interval_leaves_out_a_fortieth_at_either_end():
    assert percentile_interval(np.arange(41.0)) == pytest.approx((1, 39))


def test_examples_of_the_docstrings():
    assert doctest.testmod(module).failed == 0
