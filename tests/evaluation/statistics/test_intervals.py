"""Intervals and detectable effects against hand-derived ones, and how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from evenhand.evaluation.statistics.hypothesis_tests import reach_of_mean, reach_of_sign_test, sign_test
from evenhand.evaluation.statistics.intervals import (
    bootstrap,
    bootstrap_t_interval,
    mean_interval,
    normal_interval,
    percentile_interval,
    share_change_interval,
    share_interval,
    spread_interval,
)
from evenhand.evaluation.statistics.scores import share_change

pytestmark = pytest.mark.filterwarnings("error")


def test_intervals_of_shares_are_the_known_ones():
    # 0 of 4 with z² = 3.8415: the upper end is z² / (n + z²) = 3.8415 / 7.8415
    low, high = share_interval(0, 4)
    assert low == 0 and high == pytest.approx(3.8414588 / 7.8414588)
    assert share_interval(0, 0) is None
    assert share_interval(13, 20) == pytest.approx(tuple(stats.binomtest(13, 20).proportion_ci(method="wilson")))
    before = np.array([True] * 9 + [False] * 11)
    after = np.array([True] * 6 + [False] * 10 + [True] * 4)
    known = share_change("x", before, after)
    assert share_change_interval(1.0 * after - before) == pytest.approx(known.interval)
    assert sign_test(np.sign(1.0 * after - before)) == pytest.approx(known.p_value)
    assert sign_test(np.array([1, 1, 1, 1, -1, 0, 0])) == pytest.approx(2 * (1 + 5) / 2**5)  # ties are dropped


def test_a_difference_of_equal_numbers_has_no_interval_of_no_width():
    values = np.array([0.2, 0.5, 0.9])
    assert bootstrap((values, values), lambda old, new, axis: (new - old).mean(axis=axis), 0) == (0.0, None)


@pytest.mark.parametrize("n", [10, 30])
def test_the_bootstrap_t_covers_the_mean_of_few_and_skewed_values(n):
    # Percentiles of the mean held it in 78 % (10) and 88 % (30) of such samples.
    rng, runs = np.random.default_rng(n), 500
    samples = rng.gamma(0.5, size=(runs, n)) - 0.5
    found = [bootstrap_t_interval(values, run, resamples=999) for run, values in enumerate(samples)]
    assert 0.92 < np.mean([low <= 0 <= high for low, high in found]) < 0.985


def test_means_p_values_and_percentiles():
    values = np.array([0.5, 0.7, 0.9, 0.1])
    error = stats.sem(values)
    assert mean_interval(values) == pytest.approx(stats.t.interval(0.95, 3, values.mean(), error))
    assert mean_interval(values, bounds=(0.0, 0.6))[1] == 0.6
    assert mean_interval(values[:1]) is None and mean_interval(np.full(3, 0.1)) is None
    assert math.isnan(normal_interval(math.nan, 1.0, (0.0, 1.0))[0])
    assert percentile_interval(np.arange(41.0)) == pytest.approx((1, 39))


@pytest.mark.parametrize("n", [6, 20, 212, 1508])
def test_the_reach_of_the_sign_test_has_the_power_it_says(n):
    """Over all outcomes: the probability, at that share, of a p-value of at most 5 %."""
    share = 0.5 + reach_of_sign_test(n) / 100
    outcomes = np.arange(n + 1)
    p_values = np.minimum(1, 2 * stats.binom.cdf(np.minimum(outcomes, n - outcomes), n, 0.5))
    assert stats.binom.pmf(outcomes, n, share)[p_values <= 0.05].sum() == pytest.approx(0.8, abs=1e-4)
    if n > 20:  # Steinborn et al. 2022, §3.2, argues with the normal approximation
        assert reach_of_sign_test(n) == pytest.approx(100 * 2.8016 * 0.5 / math.sqrt(n), rel=0.06)
    assert math.isnan(reach_of_sign_test(5))  # five of five: p = 1/16


@pytest.mark.parametrize("n", [3, 5, 10, 25, 50])
def test_the_reach_of_a_mean_has_the_power_it_says(n):
    """In 20,000 samples of normal values with standard deviation 1 whose mean is that far from 0."""
    shown = np.random.default_rng(n).normal(size=n)
    reach = reach_of_mean((shown - shown.mean()) / shown.std(ddof=1))
    samples = np.random.default_rng(0).normal(reach, 1.0, size=(20_000, n))
    found = stats.ttest_1samp(samples, 0.0, axis=1).pvalue <= 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.012)  # four standard errors


@pytest.mark.parametrize("slope", [1.0, 3.0, 8.0, 20.0, 1000.0])
def test_the_interval_of_a_spread_holds_its_estimate_however_skewed(slope):
    """An estimate of 0 shows no spread; the approximation of the quantile turns round at a skewness of 8 or so."""
    low, high = spread_interval(0.0, 1.0, slope, math.inf)
    assert low < 0 < high
