"""Hypothesis tests: of one sample, of ranks, and corrections for many tests."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy

from evenhand.evaluation.statistics.intervals import TAILS, student_quantile, varies

POWER = 0.8  # customary power for the smallest detectable effect, at the two-sided 5 % level
NEGLIGIBLE_SHARE = 0.005  # a rise by less than half an answer of 100 is none
NEGLIGIBLE_SPREAD = NEGLIGIBLE_SHARE**2  # of a variance between people, such as pooled FGB*


def sign_test(signs: np.ndarray) -> float | None:
    """Return the p-value of the exact two-sided sign test of (n,) signs −1, 0, 1; zeros are dropped.

    The p-value is 1 if all signs are 0, and None for n = 0. For changes of a property that is 0 or 1 the sign test is
    McNemar's exact test (1947).
    """
    if not len(signs):
        return None
    n_positive = int((signs > 0).sum())
    n_negative = int((signs < 0).sum())
    n = n_positive + n_negative
    return float(scipy.stats.binomtest(n_positive, n).pvalue) if n else 1.0


def t_test(values: np.ndarray, mean: float) -> float | None:
    """Return the p-value of the two-sided t-test of `mean` for (n,) values; None if the values do not vary."""
    if not varies(values):
        return None
    return float(scipy.stats.ttest_1samp(values, mean).pvalue)


def reach_of_sign_test(n: int) -> float:
    """Return the smallest distance of a share from 50 % that `sign_test` on n pairs detects with 80 % power at 5 %.

    The distance is in percentage points and follows from the exact binomial distribution. It is NaN for fewer than six
    pairs, because the test of fewer pairs is never significant.

    >>> round(reach_of_sign_test(6), 2)  # all six must agree: 0.8 ** (1 / 6) − ½
    46.35
    """
    if not n:
        return math.nan
    needed = int(scipy.stats.binom.isf(TAILS[0], n, 0.5)) + 1  # equal signs that the test needs to reject
    if needed > n:
        return math.nan
    # P(at least k of n | p) = POWER, solved for p: a binomial's tail is the distribution function of a beta.
    return 100 * (float(scipy.stats.beta.ppf(POWER, needed, n - needed + 1)) - 0.5)


def reach_of_mean(values: np.ndarray) -> float:
    """Return the smallest distance of a mean from its ideal that the t-test of (n,) values detects.

    The power is 80 % at the 5 % level. The distance is δ·sd/√n in the unit of the values, for normal values with the
    observed standard deviation sd. Student's t with n − 1 degrees of freedom and non-centrality δ exceeds the critical
    values of the test with probability 0.8 (Cohen 1988, "Statistical power analysis for the behavioral sciences",
    §2.4). δ is 2.80 for many values, 3.27 for 8 and 4.26 for 4. The result is NaN if the values do not vary.
    """
    n = len(values)
    if not varies(values):
        return math.nan
    return _non_centrality(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)


@lru_cache(maxsize=4096)
def _non_centrality(freedom: int) -> float:
    """Return the distance δ of a mean from its ideal, in standard errors, that the two-sided t-test detects.

    The test has power POWER at δ. t is (z + δ) / s with z standard normal and s² = χ²_ν / ν for ν degrees of freedom.
    The power is the mean over s of Φ(δ − c s) + Φ(−δ − c s) with c the critical value, computed as an integral over
    the quantiles of s. (The function nct of SciPy 1.17 returns NaN for some δ.)
    """
    limit = student_quantile(freedom)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    limits = limit * np.sqrt(scipy.stats.chi2.ppf((nodes + 1) / 2, freedom) / freedom)

    def short_of_power(delta: float) -> float:
        beyond = scipy.special.ndtr(delta - limits) + scipy.special.ndtr(-delta - limits)
        return float(beyond @ weights) / 2 - POWER

    return float(scipy.optimize.brentq(short_of_power, 1.0, 4 * limit, rtol=1e-9))


# Ranks: the results of SciPy's functions, for many tests at once.

# Up to these numbers of differences the p-value is exact (as in scipy.stats.wilcoxon, method="auto").
EXACT_UP_TO = 50
EXACT_WITH_TIES_UP_TO = 13


def signed_rank(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Wilcoxon's statistic W⁺ (the sum of the ranks of positive differences) and p-value of each row, (m,) each.

    Wilcoxon (1945), "Individual comparisons by ranking methods". Differences of 0 are dropped. The two-sided p-value
    is exact (all 2ⁿ combinations of signs are equally likely) for at most 50 differences without ties and for at most
    13 with ties. Otherwise it is the p-value of the normal approximation with the correction for ties, Σ (t³ − t) / 48
    over groups of t tied differences, and without a continuity correction. `scipy.stats.wilcoxon` does the same for
    one row.

    `differences` has n pairs in each of m rows, (m, n), NaN where a pair is missing. p is 1 where all differences are
    0, and NaN where a row has no pair.

    >>> w, p = signed_rank(np.array([[1.0, 2.0, 3.0], [1.0, -2.0, np.nan]]))  # 2 of 8, and all 4 signs, as extreme
    >>> w.tolist(), p.tolist()
    ([6.0, 1.0], [0.25, 1.0])
    """
    differences = np.asarray(differences, dtype=np.float64)
    kept = np.isfinite(differences) & (differences != 0)
    size = np.where(kept, np.abs(differences), np.inf)  # omitted values rank last and are not counted
    first_rank = scipy.stats.rankdata(size, "min", axis=1)
    last_rank = scipy.stats.rankdata(size, "max", axis=1)
    doubled_ranks = np.where(kept, first_rank + last_rank, 0).astype(np.int64)
    n = kept.sum(axis=1)
    w = doubled_ranks.sum(axis=1, where=differences > 0) / 2
    # Σ (t³ − t) over groups of t tied values is Σ (t² − 1) over their members.
    ties = ((last_rank - first_rank + 1.0) ** 2 - 1).sum(axis=1, where=kept)

    expected = n * (n + 1) / 4
    variance = n * (n + 1) * (2 * n + 1) / 24 - ties / 48
    with np.errstate(invalid="ignore", divide="ignore"):  # empty rows are set below
        z = (w - expected) / np.sqrt(variance)
    p = np.clip(2 * scipy.special.ndtr(-np.abs(z)), 0, 1)
    exact_up_to = np.where(ties == 0, EXACT_UP_TO, EXACT_WITH_TIES_UP_TO)
    exact = np.flatnonzero((n > 0) & (n <= exact_up_to))
    # Rows with the same ranks, in any order, have the same distribution of W⁺.
    patterns, pattern_of_row = np.unique(np.sort(doubled_ranks[exact], axis=1), axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        rows = exact[pattern_of_row.reshape(-1) == number]
        p_of_doubled_w = _exact_p_values(tuple(pattern[pattern > 0].tolist()))
        p[rows] = p_of_doubled_w[(2 * w[rows]).astype(np.int64)]
    is_empty = n == 0
    has_pair = np.isfinite(differences[is_empty]).any(axis=1)
    p[is_empty] = np.where(has_pair, 1.0, np.nan)
    return w, p


@lru_cache(maxsize=256)
def _exact_p_values(doubled_ranks: tuple[int, ...]) -> np.ndarray:
    """Return the exact two-sided p-value of each value of 2 W⁺, from 0 to the sum of the doubled ranks.

    The function counts the sets of ranks with each sum, adding one rank at a time. The counts are below 2⁵³ and
    therefore exact in float64. Ranks are doubled so that tied ranks are whole numbers, too.
    """
    ways = np.ones(1)
    for rank in doubled_ranks:
        with_rank = np.concatenate([np.zeros(rank), ways])
        with_rank[: len(ways)] += ways
        ways = with_rank
    below = np.cumsum(ways) / 2.0 ** len(doubled_ranks)
    return np.minimum(1.0, 2 * np.minimum(below, below[::-1]))


EXACT_SAMPLE_SIZE = 8  # scipy.stats.mannwhitneyu, method="auto": such small samples without ties have an exact p-value


def mann_whitney(counts: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the U statistic of the first sample and the two-sided p-value of each pair of samples, (m,) each.

    U of samples a and b is Σ_r c_a(r) [Σ_{s<r} c_b(s) + c_b(r)/2], one matrix product for all pairs. The correction
    for ties, Σ_r (t³ − t) with t = c_a + c_b, is a matrix product, too, because t³ is
    c_a³ + c_b³ + 3 (c_a² c_b + c_a c_b²). All products are exact in float64.

    Args:
        counts: number of occurrences c of each of the R distinct values, in rising order, in each of D samples, (D, R).
        first, second: the row of each pair's first and second sample, (m,).

    >>> u, p = mann_whitney(np.array([[1, 1, 0, 0], [0, 0, 1, 1]]), np.array([0]), np.array([1]))  # 1, 2 against 3, 4
    >>> float(u[0]), round(float(p[0]), 9)  # two of the 6 orders are as extreme
    (0.0, 0.333333333)
    """
    counts = np.asarray(counts, dtype=np.float64)
    u = (counts @ (counts.cumsum(axis=1) - counts / 2).T)[first, second]
    size = counts.sum(axis=1)
    n_1 = size[first]
    n_2 = size[second]
    n = n_1 + n_2
    cubes = (counts**3).sum(axis=1)
    mixed = counts**2 @ counts.T
    ties = cubes[first] + cubes[second] + 3 * (mixed + mixed.T)[first, second] - n

    away = np.maximum(u, n_1 * n_2 - u) - n_1 * n_2 / 2 - 0.5  # with the continuity correction
    variance = n_1 * n_2 / 12 * ((n + 1) - ties / (n * (n - 1)))
    with np.errstate(divide="ignore"):  # all values tied: z is −∞ and p is 1
        z = away / np.sqrt(variance)
    p = np.clip(2 * scipy.special.ndtr(-z), 0, 1)

    small = np.flatnonzero((np.minimum(n_1, n_2) <= EXACT_SAMPLE_SIZE) & (ties == 0))
    if len(small):  # without ties p depends on U and the sizes alone, so each case is computed once
        cases = np.stack([u, n_1, n_2])[:, small]
        _, example, case_of_pair = np.unique(cases, axis=1, return_index=True, return_inverse=True)
        p_of_case = []
        for pair in small[example]:
            ranks_1 = np.flatnonzero(counts[first[pair]])
            ranks_2 = np.flatnonzero(counts[second[pair]])
            p_of_case.append(scipy.stats.mannwhitneyu(ranks_1, ranks_2, method="exact").pvalue)
        p[small] = np.array(p_of_case)[case_of_pair]
    return u, p


# Many tests.


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the adjusted p-values of n tests, (n,); rejecting adjusted p ≤ α keeps the family-wise error rate at α.

    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6(2).
    The correction is valid for any dependence between the tests. No p-value may be NaN.

    >>> holm([0.01, 0.04, 0.03]).tolist()  # 3 × 0.01; 2 × 0.03; 1 × 0.04, at least the previous one
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    n_left = np.arange(len(p), 0, -1)  # tests that are not rejected before this one
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * n_left), 1.0)
    return adjusted


def p_of_rise(change: float, p_value: float) -> float:
    """Return the one-sided p-value of a rise from the two-sided one of a symmetric test: near 1 for a large fall.

    >>> p_of_rise(0.2, 0.04), p_of_rise(-0.2, 0.04)
    (0.02, 0.98)
    """
    return p_value / 2 if change > 0 else 1 - p_value / 2


def risen(
    changes: Sequence[float], p_values: Sequence[float], negligible: float = 0.0, level: float = 0.05
) -> np.ndarray:
    """Return whether each of n changes is a significant increase after Holm's correction, (n,) bool.

    The p-values are two-sided, so if nothing changed, the result contains a True with a probability of at most
    `level` / 2. A change whose p-value is NaN is not tested, and its result is False. So is that of a rise that is not
    above `negligible`: a test may show a rise that no page can print.

    >>> risen([0.2, 0.1, -0.5], [0.01, 0.03, 0.001]).tolist()  # 2 × 0.01, 1 × 0.03
    [True, True, False]
    >>> risen([0.2, 0.1], [0.03, 0.9]).tolist()  # 2 × 0.03
    [False, False]
    >>> risen([0.2, 0.001], [0.01, 0.01], negligible=0.1).tolist()
    [True, False]
    """
    p = np.asarray(p_values, dtype=np.float64)
    is_tested = ~np.isnan(p)
    is_significant = np.zeros(len(p), dtype=bool)
    is_significant[is_tested] = holm(p[is_tested]) < level
    is_increase = np.asarray(changes, dtype=np.float64) > negligible
    return is_significant & is_increase


def discoveries(sorted_p_values: np.ndarray, level: float) -> int:
    """Return how many of n ascending p-values are below the level after Benjamini and Hochberg's correction.

    >>> discoveries(np.array([0.01, 0.03, 0.04]), 0.05), discoveries(np.array([0.02, 0.06]), 0.05)
    (3, 1)
    """
    n = len(sorted_p_values)
    rank = np.arange(1, n + 1)
    below = np.flatnonzero(sorted_p_values * (n / rank) < level)
    return int(below[-1]) + 1 if len(below) else 0
