"""Confidence intervals of scores, all at one level: (low, high) in the unit of the value, None if undefined."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize, stats

CONFIDENCE = 0.95
_UPPER = (1 + CONFIDENCE) / 2
Z = float(stats.norm.ppf(_UPPER))  # a normal number lies within ± Z standard deviations with CONFIDENCE
TAILS = (round(1 - _UPPER, 12), _UPPER)  # the quantiles of a percentile interval; 1 − 0.975 is not 0.025 in float64

RESAMPLES = 9999  # scipy's default, with which the standard errors of paper 001 were made
NUMBERS_PER_BATCH = 1 << 20  # float64 numbers of one batch of resamples: 8 MiB stay in the caches

Interval = tuple[float, float]
ANY = (-math.inf, math.inf)


def interval_around(value: float, half: float, bounds: Interval = ANY) -> Interval:
    """Return value ± half, clipped to the bounds.

    >>> interval_around(0.9, 0.25, (0.0, 1.0))
    (0.65, 1.0)
    """
    low, high = float(value - half), float(value + half)
    return max(low, bounds[0]), min(high, bounds[1])


# Values with a standard error.


def normal_interval(value: float, error: float, bounds: Interval = ANY) -> Interval:
    """Return the 95 % interval of a value with a normal error of this standard error, clipped to the bounds."""
    return interval_around(value, Z * error, bounds)


def normal_p_value(value: float, error: float) -> float:
    """Return the two-sided p-value of a true value of 0 under a normal error of this standard error (above 0)."""
    return float(2 * stats.norm.sf(abs(value) / error))


def student_quantile(freedom: Any) -> Any:
    """Return the 97.5 % quantile of Student's t for these degrees of freedom, a number or an array.

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


# A spread is not negative, but its unbiased estimate may be.


def spread_interval(value: float, noise: float, slope: float, freedom: float) -> Interval:
    """Return the 95 % interval of a spread θ ≥ 0 from an unbiased estimate that may be negative, such as FGB*.

    The estimate is a sum of squares of normal numbers minus its noise, approximately λ (χ²_ν(θ/λ) − ν): a non-central
    χ² shifted to have mean θ. Its variance is noise + slope · θ with noise = 2 λ² ν and slope = 4 λ; its third cumulant
    is slope (noise + 3/2 slope · θ). The interval contains each θ for which the value is neither above the 97.5 %
    quantile (Wilson and Hilferty 1931) nor below the 2.5 % quantile (Neyman 1937). The lower quantile is that of a
    normal distribution, which is wider than the χ²'s: noise and slope are estimated, and a value that is low by chance
    comes with estimates that are low. (This is also why value ± 1.96 standard errors ends below the truth too often.)
    For θ < 0 the distribution is that of θ = 0, shifted. Normal quantiles are replaced by Student's, with the degrees
    of freedom of the covariances within cells.

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
    """Return the quantile of a standardised χ² of this skewness at the normal quantile z (Wilson and Hilferty 1931)."""
    if skewness < 1e-6:
        return z
    return 2 / skewness * (max(1 + skewness * z / 6 - skewness**2 / 36, 0.0) ** 3 - 1)


# Shares and their changes. Each has two forms: for whole counts, and for sentence pairs, where a tie counts one half.
# The forms agree for whole counts up to rounding (1e-16).


def share_interval(hits: int, n: int) -> Interval | None:
    """Return the 95 % interval of a share, hits of n (Wilson 1927); None if n is 0."""
    if not n:
        return None
    interval = stats.binomtest(hits, n).proportion_ci(CONFIDENCE, method="wilson")
    return (float(interval.low), float(interval.high))


def share_interval_with_ties(share: float, n: int) -> Interval:
    """Return Wilson's interval (1927) of a share of n, in [0, 1], in which a tie counts one half.

    >>> [round(bound, 4) for bound in share_interval_with_ties(0.8, 10)]
    [0.4902, 0.9433]
    """
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return interval_around(centre, half, (0.0, 1.0))


def share_change_interval(gained: int, lost: int, n: int) -> Interval:
    """Return the 95 % interval of the change of a share of n paired items, (gained − lost) / n, in [−1, 1].

    Agresti and Min (2005), "Simple improved confidence intervals for comparing matched proportions": half an item is
    added to each of the four outcomes, so that the interval has a width even if nothing changed.
    """
    centre = (gained - lost) / (n + 2)
    variance = ((gained + lost + 1) - (gained - lost) ** 2 / (n + 2)) / (n + 2) ** 2
    return normal_interval(centre, math.sqrt(variance), (-1.0, 1.0))


def share_change_interval_with_ties(changes: np.ndarray) -> Interval:
    """Return `share_change_interval` from each item's change, (n,): −1, 0, 1, or ± ½ from or to a tie."""
    n = len(changes) + 2
    centre = float(changes.sum()) / n
    half = Z * math.sqrt(float((changes**2).sum()) + 1 - n * centre**2) / n
    return interval_around(centre, half, (-1.0, 1.0))


# Resampling.


def percentile_interval(resampled: np.ndarray) -> Interval:
    """Return the 95 % percentile interval of a statistic from its values in (b,) resamples."""
    low, high = np.quantile(resampled, TAILS)
    return float(low), float(high)


def bootstrap_t_interval(values: np.ndarray, seed: int, resamples: int = RESAMPLES) -> Interval | None:
    """Return the 95 % bootstrap-t interval of the mean of (n,) independent values; None where they do not vary.

    Efron (1981), "Nonparametric standard errors and confidence intervals"; DiCiccio and Efron (1996), "Bootstrap
    confidence intervals", §4. t* = (x̄* − x̄) / (s* / √n) of each resample stands for t = (x̄ − μ) / (s / √n), so the
    interval is x̄ − t*₀.₉₇₅ s/√n to x̄ − t*₀.₀₂₅ s/√n. It allows for the estimated s and for skewed values; percentiles
    of x̄* do not (coverage 80 to 91 % below 100 values). If a quantile is infinite, because more than 2.5 % of the
    resamples consist of one repeated value, Student's quantiles are used; this happens with two or three values.
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
    """Return the standard error and the 95 % percentile interval of a statistic of (n,) arrays, resampled together.

    Paper 001, §3.2, by scipy.stats.bootstrap. Percentiles in place of BCa, which changes little for a mean of bounded
    numbers and is undefined if all are equal. For n = 1 both results are None; if nothing varies the error is 0 and the
    interval None.

    Args:
        data: arrays of one length n, whose rows belong together.
        statistic: of such arrays, along `axis`.
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
