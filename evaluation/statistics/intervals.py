"""Confidence intervals, and the one level that all of them have.

Functions that a score has its interval from; where the data decide whether there is one, they return None. The exact
and the approximate ones alike are (low, high) in the unit of the value.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize, stats

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


# Of a spread, which is not negative while its estimate may be.


def spread_interval(value: float, noise: float, slope: float, freedom: float) -> Interval:
    """Return the 95 % interval of a spread θ ≥ 0 from an unbiased estimate that may be negative, such as FGB*.

    The estimate is a sum of squares of normal numbers less its noise, so it is about λ (χ²_ν(θ/λ) − ν), a non-central
    χ² shifted to have mean θ. Its variance is noise + slope · θ with noise = 2 λ² ν and slope = 4 λ, its third
    cumulant slope (noise + 3/2 slope · θ). The interval holds each θ that the value is not too far from (Neyman
    1937): not above its 97.5 % quantile, by Wilson and Hilferty's cube (1931), and not below the quantile of a normal
    number, which is further away than that of a χ². The χ²'s own would be right if noise and slope were known; they
    are estimated, and where they are too low the value mostly is too. For θ < 0 the distribution is that of 0, moved,
    so that an interval ends below 0 as seldom as one ends below a true 0. A plain value ± 1.96 standard errors ends
    below the truth far more often than it begins above: a value that is low by chance has a variance that is.

    Quantiles of the normal distribution are Student's, with the degrees of freedom of the covariances within cells.

    >>> [round(bound, 2) for bound in spread_interval(0.0, 1.0, 1.0, math.inf)]  # skewed
    [-2.38, 4.66]
    >>> [round(bound, 2) for bound in spread_interval(100.0, 1.0, 0.0, math.inf)]  # normal
    [98.04, 101.96]
    """
    quantile = float(student_quantile(freedom))

    def excess(theta: float, upper: bool) -> float:
        spread = max(theta, 0.0)
        variance = noise + slope * spread
        skewness = slope * (noise + 1.5 * slope * spread) / variance**1.5
        reach = -quantile if upper else _skewed(quantile, skewness)
        return value - theta - math.sqrt(variance) * reach

    def root(upper: bool) -> float:
        reach = math.sqrt(noise + slope * abs(value))
        while excess(value - reach, upper) <= 0 or excess(value + reach, upper) >= 0:
            reach *= 2
        return float(optimize.brentq(excess, value - reach, value + reach, args=(upper,), rtol=1e-9))

    return root(False), root(True)


def _skewed(z: float, skewness: float) -> float:
    """Return the quantile of a χ² in standard units at a normal quantile z (Wilson and Hilferty 1931)."""
    if skewness < 1e-6:
        return z
    return 2 / skewness * (max(1 + skewness * z / 6 - skewness**2 / 36, 0.0) ** 3 - 1)


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


def bootstrap_t_interval(values: np.ndarray, seed: int, resamples: int = RESAMPLES) -> Interval | None:
    """Return the 95 % bootstrap-t interval of the mean of (n,) independent values; None where they do not vary.

    Efron (1981), "Nonparametric standard errors and confidence intervals"; DiCiccio and Efron (1996), "Bootstrap
    confidence intervals", §4. t* = (x̄* − x̄) / (s* / √n) of each resample stands for t = (x̄ − μ) / (s / √n), so the
    interval is x̄ − t*₀.₉₇₅ s/√n to x̄ − t*₀.₀₂₅ s/√n: it allows for the estimated s, and for skewed values, which
    percentiles of x̄* do not (80 to 91 % below 100 values). Where more than 2.5 % of the resamples hold one value alone
    and lie to one side, which happens for two or three values, the quantiles are Student's.
    """
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    if n < 2 or np.ptp(values) == 0:
        return None
    rng, mean, spread = np.random.default_rng(seed), values.mean(), values.std(ddof=1)
    size, found = max(1, NUMBERS_AT_ONCE // n), []
    for first in range(0, resamples, size):
        drawn = values[rng.integers(0, n, (min(size, resamples - first), n))]
        away, s = drawn.mean(axis=1) - mean, drawn.std(axis=1, ddof=1)
        alike = s <= 1e-12 * spread  # but for rounding; t* is infinite
        t = away * math.sqrt(n) / np.where(alike, 1.0, s)
        found.append(np.where(alike, np.copysign(math.inf, away), t))
    low, high = np.quantile(np.concatenate(found), TAILS, method="inverted_cdf")
    if not math.isfinite(low) or not math.isfinite(high):
        high = student_quantile(n - 1)
        low = -high
    error = spread / math.sqrt(n)
    return float(mean - high * error), float(mean - low * error)


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
