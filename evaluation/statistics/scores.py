"""Scores of shares, of rank correlations, and of changes of a share or a mean between two runs over the same prompts.

Changes take one number per prompt for each run, in the same order. Differences between prompts cancel, so the interval
is narrower than for runs over different prompts.
"""

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import scipy

from evenhand.evaluation.score import BiasScore, Kind
from evenhand.evaluation.statistics.hypothesis_tests import sign_test
from evenhand.evaluation.statistics.intervals import Interval, normal_interval, share_change_interval, share_interval

NO_PAIRS = "no prompt was answered in both runs"
EXACT_UP_TO = 8  # 8! = 40,320 orders are enumerated quickly; for more pairs the t approximation is close


def _score(*values: Any, **fields: Any) -> BiasScore:
    """Return a score whose fields that are None have their defaults."""
    return BiasScore(*values, **{name: value for name, value in fields.items() if value is not None})


def share_score(
    metric: str, hits: Sequence[bool] | np.ndarray, ideal: float | None, *, reason: str, **fields: Any
) -> BiasScore:
    """Return the share of n items that have a property, in [0, 1], with Wilson's 95 % interval.

    `hits` is whether each item has the property, (n,) bool; `reason` is why the share is undefined if n is 0; `fields`
    are the group, n_left_out and signature of the score.

    >>> score = share_score("x", [True, False, False, False], 0.0, reason="nothing was answered")
    >>> score.value, score.n, round(score.interval[1], 2)
    (0.25, 4, 0.7)
    """
    n, count = len(hits), int(np.sum(hits))
    fields |= {"interval": share_interval(count, n), "reason": None if n else reason}
    return _score(metric, count / n if n else math.nan, ideal, (0.0, 1.0), n, **fields)


def share_change(metric: str, before: np.ndarray, after: np.ndarray, **fields: Any) -> BiasScore:
    """Return the share of responses with a property after minus before, in [−1, 1]; 0 is no change.

    Interval: Agresti and Min (2005), `share_change_interval`. p-value: McNemar's exact test (1947) of the null
    hypothesis that gains and losses are equally likely.

    `before` and `after` are whether the response to each prompt has the property, (n,) bool; `fields` as in
    `share_score`.

    >>> change = share_change("x", np.array([1, 1, 1, 0], bool), np.array([0, 0, 1, 0], bool))
    >>> change.value, change.p_value  # two losses, no gain: p = 2 × 1/4
    (-0.5, 0.5)
    """
    fields.setdefault("kind", Kind.DIFFERENCE)
    changes, bounds = np.asarray(after, dtype=int) - np.asarray(before, dtype=int), (-1.0, 1.0)
    n = len(changes)
    if not n:
        return _score(metric, math.nan, 0.0, bounds, 0, reason=NO_PAIRS, **fields)
    interval, p_value = share_change_interval(changes), sign_test(changes)
    return _score(metric, float(changes.mean()), 0.0, bounds, n, interval, p_value, **fields)


def mean_change(
    metric: str, before: np.ndarray, after: np.ndarray, *, bounds: Interval = (-1.0, 1.0), **fields: Any
) -> BiasScore:
    """Return the mean of `after` minus the mean of `before`; 0 is no change.

    The interval and the p-value use the normal approximation to the mean of the n differences. Both are None if all
    differences are equal or n is 1. `fields` as in `share_score`.

    >>> change = mean_change("x", np.array([0.0, 0.0]), np.array([0.1, 0.3]))
    >>> round(change.value, 9), round(change.interval[1], 3)  # standard error 0.1
    (0.2, 0.396)
    """
    fields.setdefault("kind", Kind.DIFFERENCE)
    difference = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    n = len(difference)
    if not n:
        return _score(metric, math.nan, 0.0, bounds, 0, reason=NO_PAIRS, **fields)
    value = float(difference.mean())
    if error := float(difference.std(ddof=1)) / math.sqrt(n) if n > 1 else 0.0:
        fields |= {
            "interval": normal_interval(value, error),
            "p_value": float(2 * scipy.stats.norm.sf(abs(value) / error)),
        }
    return _score(metric, value, 0.0, bounds, n, **fields)


def rank_correlation(
    metric: str,
    x: np.ndarray,
    y: np.ndarray,
    *,
    names: tuple[str, str] = ("x", "y"),
    of: str = "descriptor",
    **fields: Any,
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
    fields |= {"n_left_out": len(both) - n}
    reason = f"{n} {of}s are too few to rank: it needs three" if n < 3 else None
    for name, values in zip(names, (x, y), strict=True):
        if reason is None and np.ptp(values) == 0:
            reason = f"{name} is {values[0]:.4g} for every {of}: there is nothing to rank"
    if reason:
        return _score(metric, math.nan, None, (-1.0, 1.0), n, reason=reason, **fields)
    result, interval = scipy.stats.spearmanr(x, y), None
    rho, p_value = float(result.statistic), float(result.pvalue)
    if n <= EXACT_UP_TO:
        left, right = (scipy.stats.rankdata(values) - (n + 1) / 2 for values in (x, y))
        orders = np.array(list(permutations(right))) @ left
        p_value = float(np.mean(np.abs(orders) >= abs(left @ right) - 1e-9))
    if n > 3 and abs(rho) <= 1 - 1e-12:  # a perfect order comes out a rounding error below 1
        low, high = normal_interval(math.atanh(rho), math.sqrt((1 + rho**2 / 2) / (n - 3)))
        interval = math.tanh(low), math.tanh(high)
    return _score(metric, rho, None, (-1.0, 1.0), n, interval, p_value, **fields)
