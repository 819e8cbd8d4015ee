"""The reach of a test is the effect that it finds with the power it says."""

import doctest
import math

import numpy as np
import pytest
from scipy import stats

from evenhand.evaluation.statistics import one_sample_tests as module
from evenhand.evaluation.statistics.one_sample_tests import reach_of_mean, reach_of_sign_test, sign_test

pytestmark = pytest.mark.filterwarnings("error")


@pytest.mark.parametrize("n", [6, 20, 212, 1508])
def test_the_reach_of_the_sign_test_has_the_power_it_says(n):
    """Over all outcomes: the probability, at that share, of a p-value of at most 5 %."""
    share = 0.5 + reach_of_sign_test(n) / 100
    outcomes = np.arange(n + 1)
    p_values = np.minimum(1, 2 * stats.binom.cdf(np.minimum(outcomes, n - outcomes), n, 0.5))
    assert stats.binom.pmf(outcomes, n, share)[p_values <= 0.05].sum() == pytest.approx(0.8, abs=1e-4)
    if n > 20:  # 001 §3.2 argues with the normal approximation
        assert reach_of_sign_test(n) == pytest.approx(100 * 2.8016 * 0.5 / math.sqrt(n), rel=0.06)
    assert math.isnan(reach_of_sign_test(5))  # five of five: p = 1/16


def test_the_reach_of_a_mean():
    values = np.array([-0.1, 0.1] * 5000)
    assert reach_of_mean(values) == pytest.approx((1.959964 + 0.841621) * 0.1 / 100, rel=1e-3)
    few = reach_of_mean(values[:4]) / reach_of_mean(np.array([-0.1, 0.1])) * 2**-0.5
    assert few < 0.5  # of two values hardly anything is significant


@pytest.mark.parametrize("n", [3, 5, 10, 25, 50])
def test_the_reach_of_a_mean_has_the_power_it_says(n):
    """In 20,000 samples of normal values with standard deviation 1 whose mean is that far from 0."""
    shown = np.random.default_rng(n).normal(size=n)
    reach = reach_of_mean((shown - shown.mean()) / shown.std(ddof=1))
    samples = np.random.default_rng(0).normal(reach, 1.0, size=(20_000, n))
    found = stats.ttest_1samp(samples, 0.0, axis=1).pvalue <= 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.012)  # four standard errors


def test_nothing_to_test():
    assert sign_test(np.array([])) is None and sign_test(np.zeros(3)) == 1


def test_examples_of_the_docstrings():
    assert doctest.testmod(module).failed == 0
