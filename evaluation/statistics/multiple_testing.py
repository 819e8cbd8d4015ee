"""Corrections of p-values for multiple testing: Holm, and Benjamini and Hochberg."""

from collections.abc import Sequence

import numpy as np
from scipy import stats


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Return the adjusted p-values of n tests, (n,); rejecting adjusted p ≤ α keeps the family-wise error rate at α.

    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6(2).
    The correction is valid for any dependence between the tests. No p-value may be NaN.

    >>> holm([0.01, 0.04, 0.03]).tolist()  # 3 × 0.01; 2 × 0.03; 1 × 0.04, at least the previous one
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted


def risen(changes: Sequence[float], p_values: Sequence[float], level: float = 0.05) -> np.ndarray:
    """Return whether each of n changes is a significant increase after Holm's correction, (n,) bool.

    The p-values are two-sided, so if nothing changed, the result contains a True with a probability of at most
    `level` / 2. A change whose p-value is NaN is not tested, and its result is False.

    >>> risen([0.2, 0.1, -0.5], [0.01, 0.03, 0.001]).tolist()  # 2 × 0.01, 1 × 0.03
    [True, True, False]
    >>> risen([0.2, 0.1], [0.03, 0.9]).tolist()  # 2 × 0.03
    [False, False]
    """
    p, found = np.asarray(p_values, dtype=np.float64), np.zeros(len(p_values), dtype=bool)
    tested = ~np.isnan(p)
    found[tested] = holm(p[tested]) < level
    return found & (np.asarray(changes, dtype=np.float64) > 0)


def benjamini_hochberg(p_values: np.ndarray) -> np.ndarray:
    """Return the adjusted p-values of n tests, (n,); rejecting adjusted p ≤ α keeps the false discovery rate at α.

    Benjamini and Hochberg (1995), "Controlling the false discovery rate"; computed by SciPy. No p-value may be NaN.

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03])).round(9).tolist()  # 3/1 × 0.01; 3/2 × 0.03 → 3/3 × 0.04
    [0.03, 0.04, 0.04]
    """
    return stats.false_discovery_control(p_values) if len(p_values) else p_values


def discoveries(sorted_p_values: np.ndarray, level: float) -> int:
    """Return how many of n ascending p-values are below the level after Benjamini and Hochberg's correction.

    >>> discoveries(np.array([0.01, 0.03, 0.04]), 0.05), discoveries(np.array([0.02, 0.06]), 0.05)
    (3, 1)
    """
    n = len(sorted_p_values)
    below = np.flatnonzero(sorted_p_values * (n / np.arange(1, n + 1)) < level)
    return int(below[-1]) + 1 if len(below) else 0
