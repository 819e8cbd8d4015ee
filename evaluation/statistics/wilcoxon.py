"""Wilcoxon's signed-rank test of many samples of differences at once."""

from functools import lru_cache

import numpy as np
from scipy import special

# Up to this many differences, without ties and with ties, the p-value is exact (scipy.stats.wilcoxon, method="auto").
EXACT_UP_TO, EXACT_WITH_TIES_UP_TO = 50, 13


def signed_rank(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of the ranks of positive differences, and the two-sided p-value, of each row, (m,) each.

    Wilcoxon (1945), "Individual comparisons by ranking methods". Zeros are dropped, as he did; the p-value is exact
    (each of the 2ⁿ signs being as likely) where at most 50 differences are left and none are tied, or at most 13, else
    that of the normal approximation with the correction for ties, Σ (t³ − t) / 48, and none for continuity: as
    `scipy.stats.wilcoxon` has it, row by row.

    Args:
        differences: (m, n) of pairs; NaN where a pair is missing.

    Returns:
        W⁺ and p. p is 1 where all differences are 0, and NaN where a row has no pair at all.

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
    """Return the first and last position of the values equal to each value of sorted rows, (m, n) each."""
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
    """Return the two-sided p-value of each 2 W⁺ from 0 to its highest, with the 2ⁿ signs equally likely.

    The number of sets of ranks with each sum, rank by rank; below 2⁵³, so exact in float64. Ranks are doubled, so that
    tied ranks are whole numbers, too.
    """
    ways = np.ones(1)
    for rank in doubled_ranks:
        with_rank = np.concatenate([np.zeros(rank), ways])
        with_rank[: len(ways)] += ways
        ways = with_rank
    below = np.cumsum(ways) / 2.0 ** len(doubled_ranks)
    return np.minimum(1.0, 2 * np.minimum(below, below[::-1]))
