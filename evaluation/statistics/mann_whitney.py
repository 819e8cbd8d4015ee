"""The Mann–Whitney U test of many pairs of samples at once."""

import numpy as np
from scipy import special, stats

EXACT_UP_TO = 8  # scipy.stats.mannwhitneyu, method="auto": such small samples without ties have an exact p-value


def mann_whitney(counts: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return U of the first sample and the two-sided p-value of each pair of samples, (m,) each.

    Samples are rows of counts, (D, R): the number of occurrences of each of the R distinct values, in rising order.
    U of all pairs is then one matrix product, Σ_r c_a(r) [Σ_{s<r} c_b(s) + c_b(r)/2], and so is the correction for
    ties, Σ_r (t³ − t) with t = c_a + c_b: t³ is c_a³ + c_b³ + 3 (c_a² c_b + c_a c_b²). All are exact in float64.

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

    small = np.flatnonzero((np.minimum(n_1, n_2) <= EXACT_UP_TO) & (ties == 0))
    if len(small):  # without ties p depends on U and the sizes alone, so each case is computed once
        _, example, same = np.unique(np.stack([u, n_1, n_2])[:, small], axis=1, return_index=True, return_inverse=True)
        pairs = zip(first[small][example], second[small][example], strict=True)
        samples = ([np.flatnonzero(counts[row]) for row in pair] for pair in pairs)
        p[small] = np.array([stats.mannwhitneyu(*pair, method="exact").pvalue for pair in samples])[same]
    return u, p
