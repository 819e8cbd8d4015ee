"""Treatments in complete blocks: values by hand, agreement with SciPy, and error rates by simulation."""

import numpy as np
import pytest
from scipy import stats

from evenhand.evaluation.statistics.hypothesis_tests import compare_treatments


def test_three_treatments_in_two_blocks_by_hand():
    # The blocks have means 2 and 12, the treatments 6, 7 and 8 (mean 7). Without noise the rows would be 1, 2, 3 and
    # 11, 12, 13, so the residuals are 1, −1, 0 and −1, 1, 0.
    compared = compare_treatments(np.array([[2.0, 1.0, 3.0], [10.0, 13.0, 13.0]]))
    assert compared.means == pytest.approx([6, 7, 8])
    # σ² is the sum of squares, 4, over (2 − 1)(3 − 1) = 2 degrees of freedom: 2. Between treatments, the mean square is
    # 2 · (1 + 0 + 1) / 2 = 2. So F = 2 / 2 = 1, whose p-value is ½ for 2 and 2 degrees of freedom.
    assert compared.p_value == pytest.approx(0.5)
    assert compared.half_width == pytest.approx(stats.t.ppf(0.975, 2) * np.sqrt(2 * 2 / (3 * 2)))


def test_two_treatments_give_the_paired_t_test():
    values = np.random.default_rng(0).normal(size=(9, 2))
    compared, paired = compare_treatments(values), stats.ttest_rel(values[:, 0], values[:, 1])
    assert compared.p_value == pytest.approx(paired.pvalue)
    interval = paired.confidence_interval()
    assert 2 * compared.half_width == pytest.approx((interval.high - interval.low) / 2)  # of half of the difference


def test_values_without_noise():
    effects = np.array([0.1, 0.2, 0.4])
    compared = compare_treatments(effects + np.arange(4)[:, None])
    assert compared.p_value == 0 and compared.half_width == pytest.approx(0, abs=1e-9)
    rng = np.random.default_rng(3)
    for n, k in ((2, 3), (4, 3), (5, 6), (2, 9)):
        blocks = rng.random((n, 1)) * 10.0 ** rng.integers(-6, 6)
        assert compare_treatments(np.repeat(blocks, k, axis=1)).p_value == 1


def test_intervals_and_p_values_keep_their_rates():
    rng, effects = np.random.default_rng(2), np.array([-0.1, 0.0, 0.1])
    covered, rejected = [], []
    for _ in range(2000):
        noise = rng.normal(size=(4, 1)) + rng.normal(size=(4, 3))
        compared = compare_treatments(noise + effects)
        deviations = compared.means - compared.means.mean()
        covered.append(np.abs(deviations - effects) <= compared.half_width)
        rejected.append(compare_treatments(noise).p_value < 0.05)
    assert np.mean(covered) == pytest.approx(0.95, abs=0.01)
    assert np.mean(rejected) == pytest.approx(0.05, abs=0.015)
