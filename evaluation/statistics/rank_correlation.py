"""Spearman's rank correlation as a score with an interval and a p-value."""

import math
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
from scipy import stats

from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.intervals import normal_interval

EXACT_UP_TO = 8  # 8! = 40,320 orders are enumerated quickly; for more pairs the t approximation is close


def rank_correlation(
    metric: str,
    x: np.ndarray,
    y: np.ndarray,
    *,
    names: tuple[str, str] = ("x", "y"),
    of: str = "descriptor",
    group: Mapping[str, str] | None = None,
    signature: Mapping[str, Any] | None = None,
) -> BiasScore:
    """Return Spearman's ρ of x and y, both (n,), in [−1, 1], with the two-sided p-value of ρ = 0.

    Up to EXACT_UP_TO pairs the p-value is computed from all orders of y, because `scipy.stats.spearmanr` returns p = 0
    for three ordered points, although the exact p-value is 1/3. For more pairs the t approximation is used.

    Interval: Fisher's transformation with the standard error √((1 + ρ²/2) / (n − 3)) of Bonett and Wright (2000),
    "Sample size requirements for estimating Pearson, Kendall and Spearman correlations"; none for |ρ| = 1 or n < 4.
    Pairs with a NaN are left out and counted in `n_left_out`. ρ is undefined for fewer than three pairs, and if all x
    or all y are equal. The score's `reason` then contains `names` (the names of x and y) and `of` (the noun for a
    pair).

    >>> rank_correlation("rho", np.array([1, 2, 3]), np.array([10, 20, 15])).value
    0.5
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    both = np.isfinite(x) & np.isfinite(y)
    x, y, n = x[both], y[both], int(both.sum())
    common = {"group": dict(group or {}), "n_left_out": len(both) - n, "signature": signature or {}}
    reason = f"{n} {of}s are too few to rank: it needs three" if n < 3 else None
    for name, values in zip(names, (x, y), strict=True):
        if reason is None and np.ptp(values) == 0:
            reason = f"{name} is {values[0]:.4g} for every {of}: there is nothing to rank"
    if reason:
        return BiasScore(metric, math.nan, None, (-1.0, 1.0), n, reason=reason, **common)
    result = stats.spearmanr(x, y)
    rho = float(result.statistic)
    p_value = _exact_p(x, y) if n <= EXACT_UP_TO else float(result.pvalue)
    return BiasScore(metric, rho, None, (-1.0, 1.0), n, _interval(rho, n), p_value, **common)


def _exact_p(x: np.ndarray, y: np.ndarray) -> float:
    left, right = (stats.rankdata(values) - (len(values) + 1) / 2 for values in (x, y))
    orders = np.array(list(permutations(right))) @ left
    return float(np.mean(np.abs(orders) >= abs(left @ right) - 1e-9))


def _interval(rho: float, n: int) -> tuple[float, float] | None:
    if n < 4 or abs(rho) > 1 - 1e-12:  # a perfect order comes out a rounding error below 1
        return None
    low, high = normal_interval(math.atanh(rho), math.sqrt((1 + rho**2 / 2) / (n - 3)))
    return (math.tanh(low), math.tanh(high))
