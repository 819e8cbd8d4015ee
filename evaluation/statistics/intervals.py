"""95 % confidence intervals of scores: (low, high) in the unit of the score, None if undefined."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize, stats

CONFIDENCE = 0.95
_UPPER = (1 + CONFIDENCE) / 2
Z = float(stats.norm.ppf(_UPPER))  # a normal number lies within ± Z standard deviations with CONFIDENCE
TAILS = (round(1 - _UPPER, 12), _UPPER)  # the quantiles of a percentile interval; 1 − 0.975 is not 0.025 in float64

RESAMPLES = 9999  # scipy's default, which paper 001 used for its standard errors
NUMBERS_PER_BATCH = 1 << 20  # float64 numbers of one batch of resamples: 8 MiB stay in the caches

Interval = tuple[float, float]
ANY = (-math.inf, math.inf)


def interval_around(value: float, half: float, bounds: Interval = ANY) -> Interval:
    """Return the interval from value − half to value + half, clipped to the bounds.

    >>> interval_around(0.9, 0.25, (0.0, 1.0))
    (0.65, 1.0)
    """
    low, high = float(value - half), float(value + half)
    return max(low, bounds[0]), min(high, bounds[1])


# Values with a standard error.


def normal_interval(value: float, error: float, bounds: Interval = ANY) -> Interval:
    """Return the 95 % interval of a value with a normally distributed error, value ± 1.96 `error`, within the bounds.

    `error` is the standard error.
    """
    return interval_around(value, Z * error, bounds)


def normal_p_value(value: float, error: float) -> float:
    """Return the two-sided p-value of the z-test of a true value of 0 with the standard error `error` > 0."""
    return float(2 * stats.norm.sf(abs(value) / error))


def student_quantile(freedom: Any) -> Any:
    """Return the 97.5 % quantile of Student's t for degrees of freedom, a number or an array.

    >>> round(float(student_quantile(1)), 3)
    12.706
    """
    return stats.t.ppf(_UPPER, freedom)


def mean_interval(values: np.ndarray, quantile: float = Z, bounds: Interval = ANY) -> Interval | None:
    """Return the 95 % interval of the mean of (n,) independent values with standard deviation s; None for n < 2.

    The interval is mean ± quantile · s / √n. `quantile` is Z for the normal approximation, or
    `student_quantile(n - 1)` for Student's interval.

    >>> [round(bound, 3) for bound in mean_interval(np.array([1.0, 2.0, 3.0]))]  # 2 ± 1.96 / √3
    [0.868, 3.132]
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2:
        return None
    return interval_around(values.mean(), quantile * values.std(ddof=1) / math.sqrt(len(values)), bounds)


# A spread is not negative, but an unbiased estimate of a spread may be negative.


def spread_interval(value: float, noise: float, slope: float, freedom: float) -> Interval:
    """Return the 95 % interval of a spread θ ≥ 0 from an unbiased estimate that may be negative, such as FGB*.

    The estimate is a sum of squares of normal numbers minus the expected noise. Its distribution is approximately
    λ (χ²_ν(θ/λ) − ν), a non-central χ² with ν degrees of freedom and scale λ, shifted to have mean θ. The variance is
    noise + slope · θ with noise = 2 λ² ν and slope = 4 λ; the third cumulant is slope (noise + 3/2 slope · θ).

    The interval contains each θ for which the value is neither above the 97.5 % quantile of the estimate (Wilson and
    Hilferty 1931) nor below the 2.5 % quantile (Neyman 1937). The 2.5 % quantile is taken from a normal distribution,
    which is wider than the χ²: noise and slope are estimated, and both estimates tend to be low when the value is low.
    (For the same reason value ± 1.96 standard errors ends below the truth too often.) For θ < 0 the distribution for
    θ = 0 is shifted. Student's quantiles replace normal quantiles.

    Args:
        value: the estimate.
        noise: variance of the estimate if the spread is 0.
        slope: increase of the variance per unit of spread.
        freedom: degrees of freedom of the covariances within cells.

    The interval is skewed if noise dominates, and nearly normal if the spread is large:

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
        reach = -quantile if upper else skewed_quantile(quantile, skewness)
        return value - theta - math.sqrt(variance) * reach

    def root(upper: bool) -> float:
        reach = math.sqrt(noise + slope * abs(value))
        while excess(value - reach, upper) <= 0 or excess(value + reach, upper) >= 0:
            reach *= 2
        return float(optimize.brentq(excess, value - reach, value + reach, args=(upper,), rtol=1e-9))

    return root(False), root(True)


def skewed_quantile(z: float, skewness: float) -> float:
    """Return the quantile of a standardised χ² that corresponds to the normal quantile z (Wilson and Hilferty 1931)."""
    if skewness < 1e-6:
        return z
    return 2 / skewness * (max(1 + skewness * z / 6 - skewness**2 / 36, 0.0) ** 3 - 1)


# Shares and changes of shares. Each interval has two functions: one for whole counts, and one for sentence pairs, where
# a tie counts one half. Both functions give the same interval for whole counts up to rounding (1e-16).


def share_interval(hits: int, n: int) -> Interval | None:
    """Return the 95 % interval of the share hits / n (Wilson 1927); None if n is 0."""
    if not n:
        return None
    interval = stats.binomtest(hits, n).proportion_ci(CONFIDENCE, method="wilson")
    return (float(interval.low), float(interval.high))


def share_interval_with_ties(share: float, n: int) -> Interval:
    """Return Wilson's 95 % interval (1927) of a share of n items, in [0, 1], in which a tie counts one half.

    >>> [round(bound, 4) for bound in share_interval_with_ties(0.8, 10)]
    [0.4902, 0.9433]
    """
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return interval_around(centre, half, (0.0, 1.0))


def share_change_interval(gained: int, lost: int, n: int) -> Interval:
    """Return the 95 % interval of the change of a share of n paired items, (gained − lost) / n, in [−1, 1].

    `gained` and `lost` are the numbers of items that have the property only after, and only before.
    Agresti and Min (2005), "Simple improved confidence intervals for comparing matched proportions": half an item is
    added to each of the four outcomes, so that the interval has a width even if nothing changed.
    """
    centre = (gained - lost) / (n + 2)
    variance = ((gained + lost + 1) - (gained - lost) ** 2 / (n + 2)) / (n + 2) ** 2
    return normal_interval(centre, math.sqrt(variance), (-1.0, 1.0))


def share_change_interval_with_ties(changes: np.ndarray) -> Interval:
    """Return the interval of `share_change_interval` from the change of each item, (n,).

    A change is −1, 0 or 1, or ± ½ if the item is a tie before or after.
    """
    n = len(changes) + 2
    centre = float(changes.sum()) / n
    half = Z * math.sqrt(float((changes**2).sum()) + 1 - n * centre**2) / n
    return interval_around(centre, half, (-1.0, 1.0))


# Resampling.


def percentile_interval(resampled: np.ndarray) -> Interval:
    """Return the 95 % percentile interval of a statistic from the statistic's values in b resamples, (b,)."""
    low, high = np.quantile(resampled, TAILS)
    return float(low), float(high)


def bootstrap_t_interval(values: np.ndarray, seed: int, resamples: int = RESAMPLES) -> Interval | None:
    """Return the 95 % bootstrap-t interval of the mean of (n,) independent values; None if the values do not vary.

    Efron (1981), "Nonparametric standard errors and confidence intervals"; DiCiccio and Efron (1996), "Bootstrap
    confidence intervals", §4. x̄ and s are the mean and the standard deviation of the values, x̄* and s* the mean and
    the standard deviation of a resample. The distribution of t* = (x̄* − x̄) / (s* / √n) over resamples approximates
    the distribution of t = (x̄ − μ) / (s / √n), so the interval is x̄ − t*₀.₉₇₅ s/√n to x̄ − t*₀.₀₂₅ s/√n. Unlike
    percentiles of x̄* (coverage 80 to 91 % for fewer than 100 values), the interval allows for the error of s and for
    skewed values. If a quantile of t* is infinite, because more than 2.5 % of the resamples consist of one repeated
    value, Student's quantiles are used. This occurs for two or three values.
    """
    values = np.asarray(values, dtype=np.float64)
    n = len(values)
    if n < 2 or np.ptp(values) == 0:
        return None
    rng, mean, spread = np.random.default_rng(seed), values.mean(), values.std(ddof=1)
    size, found = max(1, NUMBERS_PER_BATCH // n), []
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
    """Return the bootstrap standard error and 95 % percentile interval of a statistic of paired arrays.

    Paper 001, §3.2, by scipy.stats.bootstrap. Percentile intervals replace BCa intervals, which differ little for a
    mean of bounded numbers and are undefined if all numbers are equal. For n = 1 both results are None. If no array
    varies, the standard error is 0 and the interval is None.

    Args:
        data: arrays of n numbers each; the same items are resampled in all arrays.
        statistic: function of such arrays and `axis` that returns the statistic along the axis.
        seed: seed of the resampling.
        resamples: number of resamples.
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
        batch=max(1, NUMBERS_PER_BATCH // n),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = (float(bound) for bound in result.confidence_interval)
    return float(result.standard_error), (low, high)
