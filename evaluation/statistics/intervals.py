"""95 % confidence intervals of scores: (low, high) in the unit of the score, None if undefined."""

import math
from collections.abc import Callable

import numpy as np
import scipy

from evenhand.evaluation.statistics.cells import sum_by

CONFIDENCE = 0.95
TAILS = (0.025, 0.975)  # the quantiles of a percentile interval
Z = float(scipy.special.ndtri(TAILS[1]))  # a normal number lies within ± Z standard deviations with CONFIDENCE

RESAMPLES = 9999  # scipy's default, which Steinborn et al. 2022 used for its standard errors
# That of χ² with one degree of freedom. The skewness from an estimated noise may be larger if the noise is nearly 0.
MAX_SKEWNESS = math.sqrt(8)
NUMBERS_PER_BATCH = 1 << 20  # float64 numbers of one batch of resamples: 8 MiB stay in the caches

Interval = tuple[float, float]
ANY = (-math.inf, math.inf)
ROUNDING = 1e-12  # numbers that differ by less, or by less than this share of the largest, are equal


def interval_around(value: float, half: float, bounds: Interval = ANY) -> Interval:
    """Return the interval from value − half to value + half, clipped to the bounds.

    >>> interval_around(0.9, 0.25, (0.0, 1.0))
    (0.65, 1.0)
    """
    low = max(float(value - half), bounds[0])
    high = min(float(value + half), bounds[1])
    return low, high


def varies(values: np.ndarray) -> bool:
    """Return whether (n,) finite numbers differ by more than rounding errors.

    >>> varies(np.array([0.3 - 0.2, 0.5 - 0.4])), varies(np.array([0.1, 0.2])), varies(np.array([0.1]))
    (False, True, False)
    """
    if len(values) < 2:
        return False
    return bool(np.ptp(values) > ROUNDING * max(1.0, float(np.abs(values).max())))


# Values with a standard error.


def normal_interval(value: float, error: float, bounds: Interval = ANY) -> Interval:
    """Return the 95 % interval of a value with a normally distributed error, value ± 1.96 `error`, within the bounds.

    `error` is the standard error.
    """
    return interval_around(value, Z * error, bounds)


def student_quantile(freedom: float, tail: float = TAILS[1]) -> float:
    """Return the quantile of Student's t for degrees of freedom, by default the 97.5 % quantile.

    >>> round(student_quantile(1), 3)
    12.706
    """
    return float(scipy.special.stdtrit(freedom, tail))


def mean_error(values: np.ndarray, strata: np.ndarray | None) -> tuple[float, int]:
    """Return the standard error of the mean of (n,) values, n ≥ 2, and its degrees of freedom.

    With strata, (n,) int, the values are independent within each, and the sizes of the strata are fixed
    (`mean_covariance`); without, all values are independent: s / √n, with n − 1 degrees.
    """
    if strata is None:
        return float(values.std(ddof=1)) / math.sqrt(len(values)), len(values) - 1
    covariance, freedom = mean_covariance(values[:, None], strata)
    return math.sqrt(covariance[0, 0]), freedom


def clustered_error(values: np.ndarray, cluster: np.ndarray) -> tuple[float, int]:
    """Return the standard error of the mean of (n,) values, and its degrees of freedom, the number of clusters less 1.

    Values of one cluster may depend on each other, those of different clusters do not: answers to one question are of
    one cluster. Source: Miller (2024), "Adding error bars to evals", §2.2, with the factor C / (C − 1) of C clusters.
    The error is 0 if the clusters do not differ.

    Args:
        values: n finite numbers.
        cluster: the cluster of each value, (n,); 2 clusters or more.

    >>> clustered_error(np.array([0.0, 0.0, 1.0, 1.0]), np.array([0, 0, 1, 1]))  # as of the two numbers 0 and 1
    (0.5, 1)
    """
    names, codes = np.unique(cluster, return_inverse=True)
    n = len(names)
    deviations = sum_by(codes, values - values.mean())
    deviations = np.where(np.abs(deviations) > ROUNDING * len(values), deviations, 0.0)
    return math.sqrt(n / (n - 1) * float((deviations**2).sum())) / len(values), n - 1


def mean_interval(values: np.ndarray, bounds: Interval = ANY, strata: np.ndarray | None = None) -> Interval | None:
    """Return Student's 95 % interval of the mean of (n,) values, mean ± t · error (`mean_error`).

    None if no two values differ, as where there is one: they say nothing about their error.

    >>> [round(bound, 3) for bound in mean_interval(np.array([1.0, 2.0, 3.0]))]  # 2 ± 4.303 / √3
    [-0.484, 4.484]
    """
    values = np.asarray(values, dtype=np.float64)
    if not varies(values):
        return None
    error, freedom = mean_error(values, strata)
    return interval_around(values.mean(), student_quantile(freedom) * error, bounds)


# A spread is not negative, but an unbiased estimate of a spread may be negative.


def spread_interval(value: float, noise: float, slope: float, freedom: float, tail: float = TAILS[1]) -> Interval:
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
        tail: probability below the upper quantile, in place of 97.5 %; of several looks (`sequential`) it is larger.

    The interval is skewed if noise dominates, and nearly normal if the spread is large:

    >>> [round(bound, 2) for bound in spread_interval(0.0, 1.0, 1.0, math.inf)]  # skewed
    [-2.38, 4.66]
    >>> [round(bound, 2) for bound in spread_interval(100.0, 1.0, 0.0, math.inf)]  # normal
    [98.04, 101.96]
    """
    quantile = student_quantile(freedom, tail)

    def above_low(theta: float) -> float:
        """Return how far the value is above the 97.5 % quantile of the estimate, if the true spread is `theta`."""
        spread = max(theta, 0.0)
        variance = noise + slope * spread
        skewness = slope * (noise + 1.5 * slope * spread) / variance**1.5
        return value - theta - math.sqrt(variance) * skewed_quantile(quantile, skewness)

    def above_high(theta: float) -> float:
        """Return how far the value is above the 2.5 % quantile of the estimate, if the true spread is `theta`."""
        variance = noise + slope * max(theta, 0.0)
        return value - theta + math.sqrt(variance) * quantile

    def root(excess: Callable[[float], float]) -> float:
        distance = math.sqrt(noise + slope * abs(value))
        while excess(value - distance) <= 0 or excess(value + distance) >= 0:
            distance *= 2
        return float(scipy.optimize.brentq(excess, value - distance, value + distance, rtol=1e-9))

    return root(above_low), root(above_high)


def skewed_quantile(z: float, skewness: float) -> float:
    """Return the quantile of a standardised χ² that corresponds to the normal quantile z (Wilson and Hilferty 1931).

    A skewness above MAX_SKEWNESS counts as MAX_SKEWNESS: beyond, the approximation turns round, and an upper quantile
    would be below 0.

    >>> round(skewed_quantile(1.96, 20.0), 2)  # of χ² with one degree of freedom: (5.02 − 1) / √2 = 2.84
    2.78
    """
    skewness = min(skewness, MAX_SKEWNESS)
    if skewness < 1e-6:
        return z
    return 2 / skewness * (max(1 + skewness * z / 6 - skewness**2 / 36, 0.0) ** 3 - 1)


# Shares and changes of shares. Ties of sentence pairs count one half.


def share_interval(hits: float, n: int) -> Interval | None:
    """Return the 95 % interval (Wilson 1927) of the share hits / n, in [0, 1]; None if n is 0.

    >>> [round(bound, 4) for bound in share_interval(8, 10)]
    [0.4902, 0.9433]
    """
    if not n:
        return None
    share = hits / n
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    low = centre - half if hits else 0.0  # exact at the ends
    high = centre + half if hits < n else 1.0
    return low, high


def share_change_interval(changes: np.ndarray, quantile: float = Z) -> Interval:
    """Return the 95 % interval of the mean change of a share of n paired items, in [−1, 1].

    Tango (1998), "Equivalence test and confidence interval for the difference in proportions for the paired-sample
    design", Statistics in Medicine 17: of b losses and c gains, the changes δ with

        |c − b − n δ| ≤ z √(n (2 q + δ (1 − δ))),

    where q is the likeliest probability of a loss, given δ. If nothing changed, it reaches as far as Wilson's interval
    of no hits, so that a rise that the share after allows is not excluded.

    Args:
        changes: the change of each item, (n,), n ≥ 1: −1, 0 or 1, or ± ½ if the item is a tie before or after.
        quantile: the normal quantile of the upper end; larger than Z at one of several looks (`sequential`).

    >>> [round(bound, 4) for bound in share_change_interval(np.zeros(100))]  # z² / (n + z²)
    [-0.037, 0.037]
    """
    n = len(changes)
    losses = -float(changes[changes < 0].sum())
    gains = float(changes[changes > 0].sum())

    def score(delta: float) -> float:
        slope = (2 * n - gains + losses) * delta - losses - gains
        root = math.sqrt(max(slope**2 + 8 * n * losses * delta * (1 - delta), 0.0))
        variance = n * ((root - slope) / (2 * n) + delta * (1 - delta))
        difference = gains - losses - n * delta
        if variance > 0:
            return difference / math.sqrt(variance)
        return math.copysign(math.inf, difference) if difference else 0.0

    def end(sign: float) -> float:
        """Return where the score is sign · quantile, between the mean change and the end −sign of the range."""
        last = -sign * (1 - ROUNDING)
        if abs(score(last)) <= quantile:
            return -sign
        return float(scipy.optimize.brentq(lambda delta: score(delta) - sign * quantile, last, (gains - losses) / n))

    return end(1.0), end(-1.0)


# Ratios and stratified samples.


def ratio_interval(
    top: float, bottom: float, covariance: np.ndarray, freedom: float, tail: float = TAILS[1]
) -> Interval | None:
    """Return the 95 % interval of a ratio of two expectations, or None if it is unbounded.

    Fieller (1954), "Some problems in interval estimation", Journal of the Royal Statistical Society B 16. For the
    true ratio ρ, top − ρ · bottom has expectation 0 and the variance s₁₁ − 2 ρ s₁₂ + ρ² s₂₂, with s the covariance of
    top and bottom. With t the 97.5 % quantile of Student's t, the test does not reject ρ where
    (top − ρ · bottom)² ≤ t² (s₁₁ − 2 ρ s₁₂ + ρ² s₂₂), which is

        a ρ² − 2 b ρ + c ≤ 0,   a = bottom² − t² s₂₂,   b = top · bottom − t² s₁₂,   c = top² − t² s₁₁.

    For normal estimates the set of the ρ that are not rejected contains the true ratio in 95 % of all cases. For a > 0,
    where the bottom differs significantly from 0, it is the interval from (b − √(b² − ac)) / a to (b + √(b² − ac)) / a,
    which contains top / bottom. Otherwise it is unbounded and the result None: the bottom may be 0, so ratios of any
    size agree with the data. At ρ = 0 the inequality is c ≤ 0, so a bounded interval excludes 0 exactly where the top
    differs significantly from 0 by Student's t with the same variance and degrees of freedom.

    The coverage of 95 % counts None as containing the true ratio. Among bounded intervals alone the coverage is lower
    if the bottom is seldom significant, since the bottom is then large by chance in each of these cases. No interval
    that is always bounded has a coverage of 95 % for all true values (Gleser and Hwang 1987, "The nonexistence of
    100(1 − α) % confidence sets of finite expected diameter in errors-in-variables and related models", Annals of
    Statistics 15).

    Args:
        top, bottom: unbiased estimates.
        covariance: covariance s of (top, bottom), (2, 2), positive semidefinite.
        freedom: degrees of freedom of the estimate of the covariance; below 1 the interval is None.
        tail: probability below the quantile t, in place of 97.5 %; of several looks (`sequential`) it is larger.

    In the first example top is 2, bottom is 4, both variances are 1/t², and the covariance is 0, so a = 15, b = 8 and
    c = 3, and the interval is (8 ± √19) / 15. In the second example a < 0:

    >>> [round(bound, 4) for bound in ratio_interval(2.0, 4.0, np.eye(2) / Z**2, math.inf)]
    [0.2427, 0.8239]
    >>> ratio_interval(2.0, 0.9, np.eye(2) / Z**2, math.inf)  # a < 0
    """
    if not freedom >= 1:
        return None
    t = student_quantile(freedom, tail)
    half_bottom = t * math.sqrt(float(covariance[1, 1]))
    half_top = t * math.sqrt(float(covariance[0, 0]))
    a = (abs(bottom) - half_bottom) * (abs(bottom) + half_bottom)
    c = (abs(top) - half_top) * (abs(top) + half_top)
    if not a > 0:
        return None
    b = top * bottom - t**2 * float(covariance[0, 1])
    # The product of the roots is c / a, so the root nearer to 0 is computed as c / far and has exactly the sign of c.
    far = b + math.copysign(math.sqrt(max(b * b - a * c, 0.0)), b)
    far_root = far / a
    near_root = c / far if far else 0.0
    ratio = top / bottom
    return min(far_root, near_root, ratio), max(far_root, near_root, ratio)


def covariance_from_variances(first: float, second: float, of_difference: float) -> np.ndarray:
    """Return the (2, 2) covariance matrix of two estimates from the variances of both and of the difference.

    2 Cov(x, y) = Var(x) + Var(y) − Var(x − y). Cov(x, y) is clipped to ± √(Var(x) Var(y)), which estimates may exceed,
    so that the matrix is positive semidefinite.

    >>> covariance_from_variances(4.0, 1.0, 3.0)
    array([[4., 1.],
           [1., 1.]])
    """
    largest = math.sqrt(first * second)
    covariance = min(max((first + second - of_difference) / 2, -largest), largest)
    return np.array([[first, covariance], [covariance, second]])


def mean_covariance(values: np.ndarray, strata: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the covariance of the k column means of n rows, (k, k), and the degrees of freedom of the estimate.

    Rows are independent within each stratum, and the sizes n_c of the strata c are fixed. The covariance is
    Σ_c (n_c/n)² S_c/n_c, with S_c the unbiased covariance within stratum c (Cochran 1977, "Sampling Techniques", 5.9).
    A stratum of one row gets the S pooled over the other strata. If no stratum has two rows, all rows are one stratum.

    Args:
        values: the rows, (n, k), without NaN.
        strata: integer code of each row's stratum, (n,).

    In the example the variance within each of the two strata is 2, so the result is 2/4:

    >>> mean_covariance(np.array([[0.0], [2.0], [10.0], [12.0]]), np.array([0, 0, 1, 1]))
    (array([[0.5]]), 2)
    """
    n, k = values.shape
    if n < 2:
        return np.full((k, k), math.nan), 0
    strata = np.unique(strata, return_inverse=True)[1]
    size = np.bincount(strata)
    if size.max() < 2:
        strata = np.zeros(n, dtype=int)
        size = np.array([n])
    means = sum_by(strata, values) / size[:, None]
    deviation = values - means[strata]
    freedom = int((size - 1).sum())
    n_alone = int((size == 1).sum())
    of_rows_alone = np.zeros((k, k))
    if n_alone:
        of_rows_alone = n_alone * (deviation.T @ deviation) / freedom
    weight = np.sqrt(np.where(size > 1, size / np.maximum(size - 1, 1), 0.0))
    deviation *= weight[strata][:, None]
    return (deviation.T @ deviation + of_rows_alone) / n**2, freedom


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
    if not varies(values):
        return None
    rng = np.random.default_rng(seed)
    mean = values.mean()
    deviation = values.std(ddof=1)
    batch_size = max(1, NUMBERS_PER_BATCH // n)
    batches = []
    for first in range(0, resamples, batch_size):
        n_drawn = min(batch_size, resamples - first)
        drawn = values[rng.integers(0, n, (n_drawn, n))]
        away = drawn.mean(axis=1) - mean
        s = drawn.std(axis=1, ddof=1)
        is_constant = s <= 1e-12 * deviation  # but for rounding; t* is infinite
        t = away * math.sqrt(n) / np.where(is_constant, 1.0, s)
        batches.append(np.where(is_constant, np.copysign(math.inf, away), t))
    low, high = np.quantile(np.concatenate(batches), TAILS, method="inverted_cdf")
    if not math.isfinite(low) or not math.isfinite(high):
        high = student_quantile(n - 1)
        low = -high
    error = deviation / math.sqrt(n)
    return float(mean - high * error), float(mean - low * error)


def bootstrap(
    data: tuple[np.ndarray, ...], statistic: Callable[..., np.ndarray], seed: int
) -> tuple[float | None, Interval | None]:
    """Return the bootstrap standard error and 95 % percentile interval of a statistic of paired arrays.

    Steinborn et al. 2022, §3.2, by scipy.stats.bootstrap. Percentile intervals replace BCa intervals, which differ
    little for a mean of bounded numbers and are undefined if all numbers are equal. For n = 1 both results are
    None. If no array varies, the standard error is 0 and the interval is None.

    Args:
        data: arrays of n items, (n,) each. A resample takes the same items from all arrays.
        statistic: function of such arrays and of the keyword `axis`, along which it reduces them.
        seed: seed of the resamples.
    """
    n = len(data[0])
    if n < 2:
        return None, None
    if not any(varies(each) for each in data):
        return 0.0, None
    result = scipy.stats.bootstrap(
        data,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, NUMBERS_PER_BATCH // n),
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    if not varies(result.bootstrap_distribution):
        return 0.0, None
    interval = result.confidence_interval
    return float(result.standard_error), (float(interval.low), float(interval.high))
