"""Errors, intervals and tests for means over pairs: they are the known ones, and do what they say."""

import math

import numpy as np
import pytest
from scipy import stats

from evaluation.metrics import pair_statistics
from evaluation.metrics.pair_statistics import (
    bootstrap,
    paired_interval,
    reach_of_mean,
    reach_of_sign_test,
    sign_test,
    t_test,
    wilson_interval,
)
from evaluation.metrics.paired_change import share_change, share_interval

pytestmark = pytest.mark.filterwarnings("error")


def test_intervals_of_shares_are_the_known_ones():
    hits = np.array([100.0] * 13 + [0.0] * 7)
    assert wilson_interval(hits) == pytest.approx([100 * bound for bound in share_interval(13, 20)])
    before = np.array([True] * 9 + [False] * 11)
    after = np.array([True] * 6 + [False] * 10 + [True] * 4)
    known = share_change("x", before, after)
    assert paired_interval(100.0 * after - 100.0 * before) == pytest.approx([100 * bound for bound in known.interval])
    assert sign_test(np.sign(1.0 * after - before)) == pytest.approx(known.p_value)
    assert sign_test(np.array([1, 1, 1, 1, -1, 0, 0])) == pytest.approx(2 * (1 + 5) / 2**5)  # ties are dropped


def test_intervals_cover_the_truth(monkeypatch):
    """True mean 0 of skewed pair scores in [−1, 1]; true share 0.6 with a tenth of ties on top."""
    monkeypatch.setattr(pair_statistics, "RESAMPLES", 499)
    rng, means, shares, runs = np.random.default_rng(5), 0, 0, 400
    for run in range(runs):
        values = rng.beta(1, 3, 80) - 0.25
        low, high = bootstrap((values,), np.mean, run)[1]
        means += low <= 0 <= high
        hits = rng.choice([100.0, 0.0, 50.0], 80, p=[0.54, 0.36, 0.1])
        low, high = wilson_interval(hits)
        shares += low <= 59 <= high
    # 95 % of 400 runs, give or take three standard errors (0.011 each); ties make Wilson's a little wide.
    assert 0.91 < means / runs < 0.985 and 0.93 < shares / runs < 1


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
    values = np.array([-0.1, 0.1] * 50)
    assert reach_of_mean(values) == pytest.approx((1.959964 + 0.841621) * 0.1 * math.sqrt(100 / 99) / 10, rel=1e-6)


@pytest.mark.parametrize("values", [[], [3.0], [3.0, 3.0]])
def test_what_does_not_vary_has_no_interval(values):
    values = np.array(values)
    assert bootstrap((values,), np.mean, 0) == (0.0 if len(values) == 2 else None, None)
    assert t_test(values, 0.0) is None and math.isnan(reach_of_mean(values))
