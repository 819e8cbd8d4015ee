"""Tests of one number per sentence pair, or per prompt, and the smallest effect that they would find."""

import math

import numpy as np
from scipy import stats

from evenhand.evaluation.statistics.intervals import TAILS, Z

POWER = 0.8  # of the tests whose reach is reported, at the two-sided 5 % level: the customary ones


def sign_test(signs: np.ndarray) -> float | None:
    """Return the p-value of the exact two-sided sign test of (n,) signs −1, 0, 1; zeros are dropped, 1 if all are.

    Of changes from 0 to 1 and from 1 to 0 it is the exact test of McNemar (1947). None for n = 0.
    """
    if not len(signs):
        return None
    up, down = int((signs > 0).sum()), int((signs < 0).sum())
    return float(stats.binomtest(up, up + down).pvalue) if up + down else 1.0


def t_test(values: np.ndarray, mean: float) -> float | None:
    """Return the p-value of the two-sided t-test that (n,) values have this mean; None where they do not vary."""
    return float(stats.ttest_1samp(values, mean).pvalue) if len(values) > 1 and np.ptp(values) > 0 else None


def reach_of_sign_test(n: int) -> float:
    """Return how far from 50 % a share must lie for `sign_test` on n pairs to find it with 80 % power at 5 %.

    In percentage points, by the exact binomial distribution; NaN below six pairs, where nothing is significant.

    >>> round(reach_of_sign_test(6), 2)  # all six must agree: 0.8 ** (1 / 6) − ½
    46.35
    """
    needed = int(stats.binom.isf(TAILS[0], n, 0.5)) + 1 if n else 1  # pairs of one kind, for the test to reject
    if needed > n:
        return math.nan
    # P(at least k of n | p) = POWER, solved for p: a binomial's tail is the distribution function of a beta.
    return 100 * (float(stats.beta.ppf(POWER, needed, n - needed + 1)) - 0.5)


def reach_of_mean(values: np.ndarray) -> float:
    """Return how far from its ideal a mean of (n,) such values must lie to be found with 80 % power at 5 %.

    (z₀.₉₇₅ + z₀.₈)·sd/√n, in the values' unit; NaN where they do not vary.
    """
    if len(values) < 2 or np.ptp(values) == 0:
        return math.nan
    return (Z + float(stats.norm.ppf(POWER))) * float(values.std(ddof=1)) / math.sqrt(len(values))
