"""Confidence intervals, and the one level that all of them have.

Functions that a score has its interval from; where the data decide whether there is one, they return None. The exact
and the approximate ones alike are (low, high) in the unit of the value.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
_UPPER = (1 + CONFIDENCE) / 2
Z = float(stats.norm.ppf(_UPPER))  # of a normal distribution, CONFIDENCE lies within ± Z standard deviations
TAILS = (round(1 - _UPPER, 12), _UPPER)  # the quantiles of a percentile interval; 1 − 0.975 is not 0.025 in float64

RESAMPLES = 9999  # scipy's default, with which the standard errors of paper 001 were made
NUMBERS_AT_ONCE = 1 << 20  # float64 numbers held by one batch of resamples: 8 MiB stay in the caches

Interval = tuple[float, float]
ANY = (-math.inf, math.inf)


def interval_around(value: float, half: float, bounds: Interval = ANY) -> Interval:
    """Return value ± half, cut to the bounds.

    >>> interval_around(0.9, 0.25, (0.0, 1.0))
    (0.65, 1.0)
    """
    low, high = float(value - half), float(value + half)
    return max(low, bounds[0]), min(high, bounds[1])


# Of a number with a standard error.


def normal_interval(value: float, error: float, bounds: Interval = ANY) -> Interval:
    """Return the 95 % interval of a number whose error is normal with this standard error, cut to the bounds."""
    return interval_around(value, Z * error, bounds)


def normal_p_value(value: float, error: float) -> float:
    """Return the two-sided p-value of a true value of 0, the error being normal with this standard error above 0."""
    return float(2 * stats.norm.sf(abs(value) / error))


def student_quantile(freedom: Any) -> Any:
    """Return the 97.5 % quantile of Student's t by degrees of freedom, a number or an array of them.

    >>> round(float(student_quantile(1)), 3)
    12.706
    """
    return stats.t.ppf(_UPPER, freedom)


def mean_interval(values: np.ndarray, quantile: float = Z, bounds: Interval = ANY) -> Interval | None:
    """Return the 95 % interval of the mean of (n,) independent values, mean ± quantile · s / √n; None below two.

    The quantile is Z for the normal approximation, `student_quantile(n - 1)` for Student's interval.

    >>> [round(bound, 3) for bound in mean_interval(np.array([1.0, 2.0, 3.0]))]  # 2 ± 1.96 / √3
    [0.868, 3.132]
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2:
        return None
    return interval_around(values.mean(), quantile * values.std(ddof=1) / math.sqrt(len(values)), bounds)


# Of a share, and of what changed in one. Each has two forms that differ by rounding alone (some 1e-16): the first, of
# whole counts, is that of the scores of responses and translations, the second, where a tie counts one half, that of
# sentence pairs. Either in the other's place would change the last digit of scores that have been written.


def share_interval(hits: int, n: int) -> Interval | None:
    """Return the 95 % interval of a share, hits of n (Wilson 1927); None if n is 0."""
    if not n:
        return None
    interval = stats.binomtest(hits, n).proportion_ci(CONFIDENCE, method="wilson")
    return (float(interval.low), float(interval.high))


def share_interval_with_ties(share: float, n: int) -> Interval:
    """Return Wilson's interval (1927) of a share of n, in [0, 1], to which a tie may have added one half.

    >>> [round(bound, 4) for bound in share_interval_with_ties(0.8, 10)]
    [0.4902, 0.9433]
    """
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return interval_around(centre, half, (0.0, 1.0))


def share_change_interval(gained: int, lost: int, n: int) -> Interval:
    """Return the 95 % interval of the change of a share of n things seen twice, (gained − lost) / n; in [−1, 1].

    Agresti and Min (2005), "Simple improved confidence intervals for comparing matched proportions": half a thing is
    added to each of the four outcomes, so that the interval keeps its width where nothing changed.
    """
    centre = (gained - lost) / (n + 2)
    variance = ((gained + lost + 1) - (gained - lost) ** 2 / (n + 2)) / (n + 2) ** 2
    return normal_interval(centre, math.sqrt(variance), (-1.0, 1.0))


def share_change_interval_with_ties(changes: np.ndarray) -> Interval:
    """Return the same interval from the (n,) changes of each thing, −1, 0 or 1, and ± ½ from or to a tie."""
    n = len(changes) + 2
    centre = float(changes.sum()) / n
    half = Z * math.sqrt(float((changes**2).sum()) + 1 - n * centre**2) / n
    return interval_around(centre, half, (-1.0, 1.0))


# By resampling.


def percentile_interval(resampled: np.ndarray) -> Interval:
    """Return the 95 % percentile interval of a statistic from its values in (b,) resamples."""
    low, high = np.quantile(resampled, TAILS)
    return float(low), float(high)


def bootstrap(
    data: tuple[np.ndarray, ...], statistic: Callable[..., Any], seed: int, resamples: int = RESAMPLES
) -> tuple[float | None, Interval | None]:
    """Return the standard error and the 95 % percentile interval of a statistic of (n,) arrays, resampled together.

    Paper 001, §3.2, by scipy.stats.bootstrap. Percentiles and not BCa, which corrects little in a mean of bounded
    numbers and has no answer where all are equal. Neither is there for n = 1; where nothing varies the error is 0 and
    there is no interval.

    Args:
        data: arrays of one length n, whose rows belong together.
        statistic: of such arrays, along `axis`.
        seed, resamples: of the bootstrap.
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
        n_resamples=resamples,
        batch=max(1, NUMBERS_AT_ONCE // n),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = (float(bound) for bound in result.confidence_interval)
    return float(result.standard_error), (low, high)
