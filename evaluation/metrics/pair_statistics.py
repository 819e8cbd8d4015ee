"""Errors, intervals, tests and the reach of tests for means of one number per sentence pair.

A percentage of pairs is such a mean: each pair counts 100, 0, or 50 where the two sentences tie. That half is why the
intervals of shares are written out here.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

LEVEL, POWER = 0.05, 0.8  # of the tests whose reach is reported: the customary ones
Z = float(stats.norm.ppf(1 - LEVEL / 2))
RESAMPLES = 9999  # scipy's default, with which the standard errors of paper 001 were made
NUMBERS_AT_ONCE = 1 << 20  # float64 numbers held by one batch of resamples: 8 MiB stay in the caches

Interval = tuple[float, float]


def bootstrap(
    data: tuple[np.ndarray, ...], statistic: Callable[..., Any], seed: int
) -> tuple[float | None, Interval | None]:
    """Return the standard error and the 95 % percentile interval of a statistic of (n,) arrays, resampled together.

    Paper 001, §3.2, by scipy.stats.bootstrap. Percentiles and not BCa, which corrects little in a mean of bounded
    numbers and has no answer where all are equal. Neither is there for one pair; where nothing varies the error is 0
    and there is no interval.
    """
    n = len(data[0])
    if n < 2:
        return None, None
    if all(np.ptp(each) == 0 for each in data):
        return 0.0, None
    result = stats.bootstrap(
        data,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, NUMBERS_AT_ONCE // n),
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = (float(bound) for bound in result.confidence_interval)
    return float(result.standard_error), (low, high)


def wilson_interval(percentages: np.ndarray) -> Interval | None:
    """Return Wilson's 95 % interval (1927) of the mean of n percentages of 0, 50 or 100; None for fewer than two.

    >>> [round(bound, 2) for bound in wilson_interval(np.array([100.0] * 8 + [0.0] * 2))]
    [49.02, 94.33]
    """
    n = len(percentages)
    if n < 2:
        return None
    share = float(percentages.mean()) / 100
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return 100 * max(0.0, centre - half), 100 * min(1.0, centre + half)


def paired_interval(differences: np.ndarray) -> Interval | None:
    """Return the 95 % interval of the mean of n differences of percentages (Agresti and Min 2005); None below two.

    As in `evaluation.metrics.paired_change`: half a pair is added to each of the four outcomes, so that the interval
    keeps its width where no pair changed.
    """
    if len(differences) < 2:
        return None
    changes, n = differences / 100, len(differences) + 2
    centre = float(changes.sum()) / n
    half = Z * math.sqrt(float((changes**2).sum()) + 1 - n * centre**2) / n
    return 100 * max(-1.0, centre - half), 100 * min(1.0, centre + half)


def sign_test(signs: np.ndarray) -> float | None:
    """Return the p-value of the exact two-sided sign test of (n,) signs −1, 0, 1; zeros are dropped, 1 if all are."""
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
    needed = int(stats.binom.isf(LEVEL / 2, n, 0.5)) + 1 if n else 1  # pairs of one kind, for the test to reject
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
