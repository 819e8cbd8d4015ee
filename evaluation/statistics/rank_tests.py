"""Vectorized Mann–Whitney U tests and Wilcoxon signed-rank tests, with the same results as SciPy's functions."""

from functools import lru_cache

import numpy as np
from scipy import special, stats

# Up to 50 differences without ties, or 13 with ties, the p-value is exact (as in scipy.stats.wilcoxon, method="auto").
EXACT_UP_TO, EXACT_WITH_TIES_UP_TO = 50, 13


def signed_rank(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Wilcoxon's statistic W⁺ (the sum of the ranks of positive differences) and p-value of each row, (m,) each.

    Wilcoxon (1945), "Individual comparisons by ranking methods". Differences of 0 are dropped. The two-sided p-value
    is exact (all 2ⁿ combinations of signs are equally likely) for at most 50 differences without ties and for at most
    13 with ties. Otherwise it is the p-value of the normal approximation with the correction for ties, Σ (t³ − t) / 48
    over groups of t tied differences, and without a continuity correction. `scipy.stats.wilcoxon` does the same for
    one row.

    Args:
        differences: the differences of n pairs in each of m rows, (m, n); NaN where a pair is missing.

    Returns:
        W⁺ and p. p is 1 where all differences are 0, and NaN where a row has no pair.

    In the first row 2 of the 8 combinations of signs are as extreme, in the second all 4:

    >>> w, p = signed_rank(np.array([[1.0, 2.0, 3.0], [1.0, -2.0, np.nan]]))  # 2 of 8, and all 4 signs, as extreme
    >>> w.tolist(), p.tolist()
    ([6.0, 1.0], [0.25, 1.0])
    """
    differences = np.asarray(differences, dtype=np.float64)
    kept = np.isfinite(differences) & (differences != 0)
    size = np.where(kept, np.abs(differences), np.inf)  # omitted values rank last and are not counted
    order = np.argsort(size, axis=1)
    positive, kept_in_order = (np.take_along_axis(it, order, axis=1) for it in (differences > 0, kept))
    first, last = _runs(np.take_along_axis(size, order, axis=1))
    n, tied = kept.sum(axis=1), last - first + 1
    doubled_ranks = np.where(kept_in_order, first + last + 2, 0)
    w = doubled_ranks.sum(axis=1, where=positive) / 2
    ties = (tied**2.0 - 1).sum(axis=1, where=kept_in_order)  # Σ (t³ − t) over groups is Σ (t² − 1) over their members

    with np.errstate(invalid="ignore", divide="ignore"):  # empty rows are set below
        z = (w - n * (n + 1) / 4) / np.sqrt(n * (n + 1) * (2 * n + 1) / 24 - ties / 48)
    p = np.clip(2 * special.ndtr(-np.abs(z)), 0, 1)
    exact = np.flatnonzero((n > 0) & (n <= np.where(ties == 0, EXACT_UP_TO, EXACT_WITH_TIES_UP_TO)))
    ranks, same = np.unique(doubled_ranks[exact], axis=0, return_inverse=True)
    for pattern, row in enumerate(ranks):
        rows = exact[same.reshape(-1) == pattern]
        p[rows] = _exact(tuple(row[row > 0].tolist()))[(2 * w[rows]).astype(np.int64)]
    p[n == 0] = np.where(np.isfinite(differences[n == 0]).any(axis=1), 1.0, np.nan)
    return w, p


def _runs(rising: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each value of sorted rows, the first and the last position of equal values, (m, n) each."""
    places = np.broadcast_to(np.arange(rising.shape[1]), rising.shape)
    new = np.ones(rising.shape, dtype=bool)
    new[:, 1:] = rising[:, 1:] != rising[:, :-1]
    ends = np.ones(rising.shape, dtype=bool)
    ends[:, :-1] = new[:, 1:]
    first = np.maximum.accumulate(np.where(new, places, 0), axis=1)
    last = np.minimum.accumulate(np.where(ends, places, rising.shape[1])[:, ::-1], axis=1)[:, ::-1]
    return first, last


@lru_cache(maxsize=256)
def _exact(doubled_ranks: tuple[int, ...]) -> np.ndarray:
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

    In this example 2 of the 6 orders are as extreme:

    >>> u, p = mann_whitney(np.array([[1, 1, 0, 0], [0, 0, 1, 1]]), np.array([0]), np.array([1]))  # 1, 2 against 3, 4
    >>> float(u[0]), round(float(p[0]), 9)  # two of the 6 orders are as extreme
    (0.0, 0.333333333)
    """
    counts = np.asarray(counts, dtype=np.float64)
    size, cubes = counts.sum(axis=1), (counts**3).sum(axis=1)
    u = (counts @ (counts.cumsum(axis=1) - counts / 2).T)[first, second]
    mixed = counts**2 @ counts.T
    n_1, n_2 = size[first], size[second]
    n = n_1 + n_2
    ties = cubes[first] + cubes[second] + 3 * (mixed + mixed.T)[first, second] - n

    with np.errstate(divide="ignore"):  # all values tied: z is −∞ and p is 1
        z = (np.maximum(u, n_1 * n_2 - u) - n_1 * n_2 / 2 - 0.5) / np.sqrt(
            n_1 * n_2 / 12 * ((n + 1) - ties / (n * (n - 1)))
        )
    p = np.clip(2 * special.ndtr(-z), 0, 1)

    small = np.flatnonzero((np.minimum(n_1, n_2) <= EXACT_SAMPLE_SIZE) & (ties == 0))
    if len(small):  # without ties p depends on U and the sizes alone, so each case is computed once
        _, example, same = np.unique(np.stack([u, n_1, n_2])[:, small], axis=1, return_index=True, return_inverse=True)
        pairs = zip(first[small][example], second[small][example], strict=True)
        samples = ([np.flatnonzero(counts[row]) for row in pair] for pair in pairs)
        p[small] = np.array([stats.mannwhitneyu(*pair, method="exact").pvalue for pair in samples])[same]
    return u, p
