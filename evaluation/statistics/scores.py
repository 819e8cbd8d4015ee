"""Scores of shares, of rank correlations, and of changes of a share or a mean between two runs over the same prompts.

Changes take one number per prompt for each run, in the same order. Differences between prompts cancel, so the interval
is narrower than for runs over different prompts.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from scipy import stats

from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.hypothesis_tests import sign_test
from evenhand.evaluation.statistics.intervals import (
    normal_interval,
    normal_p_value,
    share_change_interval,
    share_interval,
)

NO_PAIRS = "no prompt was answered in both runs"
EXACT_UP_TO = 8  # 8! = 40,320 orders are enumerated quickly; for more pairs the t approximation is close


def share_score(
    metric: str,
    hits: Sequence[bool] | np.ndarray,
    ideal: float | None,
    *,
    reason: str,
    group: Mapping[str, str] | None = None,
    n_left_out: int = 0,
    signature: Mapping[str, Any] | None = None,
) -> BiasScore:
    """Return the share of n items that have a property, in [0, 1], with Wilson's 95 % interval.

    `hits` is whether each item has the property, (n,) bool; `reason` is why the share is undefined if n is 0.

    >>> score = share_score("x", [True, False, False, False], 0.0, reason="nothing was answered")
    >>> score.value, score.n, round(score.interval[1], 2)
    (0.25, 4, 0.7)
    """
    n, count = len(hits), int(np.sum(hits))
    return BiasScore(
        metric,
        count / n if n else math.nan,
        ideal,
        (0.0, 1.0),
        n,
        interval=share_interval(count, n),
        n_left_out=n_left_out,
        group=dict(group or {}),
        reason=None if n else reason,
        signature=signature or {},
    )


def share_change(
    metric: str,
    before: np.ndarray,
    after: np.ndarray,
    *,
    group: Mapping[str, str] | None = None,
    n_left_out: int = 0,
    signature: Mapping[str, Any] | None = None,
) -> BiasScore:
    """Return the share of responses with a property after minus before, in [−1, 1]; 0 is no change.

    Interval: Agresti and Min (2005), `share_change_interval`. p-value: McNemar's exact test (1947) of the null
    hypothesis that gains and losses are equally likely.

    `before` and `after` are whether the response to each prompt has the property, (n,) bool.

    >>> change = share_change("x", np.array([1, 1, 1, 0], bool), np.array([0, 0, 1, 0], bool))
    >>> change.value, change.p_value  # two losses, no gain: p = 2 × 1/4
    (-0.5, 0.5)
    """
    before, after = np.asarray(before, dtype=bool), np.asarray(after, dtype=bool)
    common = {"group": dict(group or {}), "n_left_out": n_left_out, "signature": signature or {}}
    changes, n = after.astype(int) - before, len(before)
    if not n:
        return BiasScore(metric, math.nan, 0.0, (-1.0, 1.0), 0, reason=NO_PAIRS, **common)
    return BiasScore(
        metric,
        float(changes.mean()),
        0.0,
        (-1.0, 1.0),
        n,
        interval=share_change_interval(changes),
        p_value=sign_test(changes),
        **common,
    )


def mean_change(
    metric: str,
    before: np.ndarray,
    after: np.ndarray,
    *,
    bounds: tuple[float, float] = (-1.0, 1.0),
    group: Mapping[str, str] | None = None,
    n_left_out: int = 0,
    signature: Mapping[str, Any] | None = None,
) -> BiasScore:
    """Return the mean of `after` minus the mean of `before`; 0 is no change.

    The interval and the p-value use the normal approximation to the mean of the n differences. Both are None if all
    differences are equal or n is 1.

    >>> change = mean_change("x", np.array([0.0, 0.0]), np.array([0.1, 0.3]))
    >>> round(change.value, 9), round(change.interval[1], 3)  # standard error 0.1
    (0.2, 0.396)
    """
    difference = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    common = {"group": dict(group or {}), "n_left_out": n_left_out, "signature": signature or {}}
    n = len(difference)
    if not n:
        return BiasScore(metric, math.nan, 0.0, bounds, 0, reason=NO_PAIRS, **common)
    value = float(difference.mean())
    error = float(difference.std(ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    if not error:
        return BiasScore(metric, value, 0.0, bounds, n, **common)
    interval = normal_interval(value, error)
    return BiasScore(metric, value, 0.0, bounds, n, interval, normal_p_value(value, error), **common)


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
