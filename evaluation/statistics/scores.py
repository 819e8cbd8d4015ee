"""Scores of shares, of rank correlations, and of changes of a share or a mean between two runs over the same prompts.

Changes take one number per prompt for each run, in the same order. Differences between prompts cancel, so the interval
is narrower than for runs over different prompts.

Functions take the `group`, the `n_left_out` and the `n_of` of the score that they return (`BiasScore`); the caller adds
the signature.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd
import scipy

from evenhand.evaluation.score import BiasScore, Kind
from evenhand.evaluation.statistics.hypothesis_tests import sign_test
from evenhand.evaluation.statistics.intervals import (
    Interval,
    interval_around,
    mean_error,
    normal_interval,
    share_change_interval,
    share_interval,
    student_quantile,
    varies,
)
from evenhand.evaluation.statistics.level import ONE_LOOK, Level

NO_PAIRS = "no prompt was answered in both runs"
SHARE_BOUNDS = (0.0, 1.0)
CHANGE_BOUNDS = (-1.0, 1.0)  # of a change of a share, and of a correlation
EXACT_UP_TO = 8  # 8! = 40,320 orders are enumerated quickly; for more pairs the t approximation is close
PERFECT = 1 - 1e-12  # a perfect rank order comes out a rounding error below 1


def share_score(
    metric: str,
    hits: Sequence[bool] | np.ndarray | pd.Series,
    ideal: float | None,
    *,
    reason: str,
    group: Mapping[str, str] | None = None,
    n_left_out: int = 0,
    n_of: str = "",
) -> BiasScore:
    """Return the share of n items that have a property, in [0, 1], with Wilson's 95 % interval.

    `hits` is whether each item has the property, (n,) bool; `reason` is why the share is undefined if n is 0.

    >>> score = share_score("x", [True, False, False, False], 0.0, reason="nothing was answered")
    >>> score.value, score.n, round(score.interval[1], 2)
    (0.25, 4, 0.7)
    """
    n = len(hits)
    count = int(np.sum(hits))
    return BiasScore(
        metric=metric,
        value=count / n if n else math.nan,
        ideal=ideal,
        bounds=SHARE_BOUNDS,
        n=n,
        interval=share_interval(count, n),
        n_left_out=n_left_out,
        group=group or {},
        reason=None if n else reason,
        n_of=n_of,
    )


def share_change(
    metric: str,
    before: np.ndarray,
    after: np.ndarray,
    *,
    group: Mapping[str, str] | None = None,
    n_left_out: int = 0,
    level: Level = ONE_LOOK,
) -> BiasScore:
    """Return the share of responses with a property after minus before, in [−1, 1]; 0 is no change.

    Interval: Tango (1998), `share_change_interval`. p-value: McNemar's exact test (1947) of the null
    hypothesis that gains and losses are equally likely.

    `level` is how much both may err, at one of several looks.

    `before` and `after` are whether the response to each prompt has the property, (n,) bool.

    >>> change = share_change("x", np.array([1, 1, 1, 0], bool), np.array([0, 0, 1, 0], bool))
    >>> change.value, change.p_value  # two losses, no gain: p = 2 × 1/4
    (-0.5, 0.5)
    """
    changes = np.asarray(after, dtype=int) - np.asarray(before, dtype=int)
    n = len(changes)
    return BiasScore(
        metric=metric,
        value=float(changes.mean()) if n else math.nan,
        ideal=0.0,
        bounds=CHANGE_BOUNDS,
        n=n,
        interval=share_change_interval(changes, float(scipy.special.ndtri(level.tail))) if n else None,
        p_value=level.p_value(sign_test(changes)),
        n_left_out=n_left_out,
        group=group or {},
        reason=None if n else NO_PAIRS,
        kind=Kind.DIFFERENCE,
    )


def mean_change(
    metric: str,
    before: np.ndarray,
    after: np.ndarray,
    *,
    bounds: Interval = CHANGE_BOUNDS,
    strata: np.ndarray | None = None,
    group: Mapping[str, str] | None = None,
    n_left_out: int = 0,
    n_of: str = "",
    level: Level = ONE_LOOK,
) -> BiasScore:
    """Return the mean of `after` minus the mean of `before`; 0 is no change.

    The interval and the p-value are those of Student's t of the n differences, within the strata if there are any
    (`mean_error`). Both are None if all differences are equal or n is 1. `level` is how much both may err, at
    one of several looks.

    >>> change = mean_change("x", np.array([0.0, 0.0]), np.array([0.1, 0.3]))
    >>> round(change.value, 9), round(change.interval[1], 3)  # standard error 0.1, one degree of freedom
    (0.2, 1.0)
    """
    difference = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    n = len(difference)
    value = float(difference.mean()) if n else math.nan
    interval = None
    p_value = None
    if varies(difference):
        error, freedom = mean_error(difference, strata)
        interval = interval_around(value, student_quantile(freedom, level.tail) * error, bounds)
        p_value = level.p_value(float(2 * scipy.stats.t.sf(abs(value) / error, freedom))) if error else None
    return BiasScore(
        metric=metric,
        value=value,
        ideal=0.0,
        bounds=bounds,
        n=n,
        interval=interval,
        p_value=p_value,
        n_left_out=n_left_out,
        group=group or {},
        reason=None if n else NO_PAIRS,
        kind=Kind.DIFFERENCE,
        n_of=n_of,
    )


def exponential(score: BiasScore, bounds: Interval, less: float = 0.0) -> BiasScore:
    """Return the score with e to the power of its value, less a number, within the bounds; also of its interval."""

    def convert(value: float) -> float:
        return max(bounds[0], math.exp(min(value, 700.0)) - less)  # e^700 is near the largest float

    interval = score.interval and (convert(score.interval[0]), convert(score.interval[1]))
    value = score.value if math.isnan(score.value) else convert(score.value)
    return replace(score, value=value, interval=interval, bounds=bounds)


def rank_correlation(
    metric: str,
    x: np.ndarray | pd.Series,
    y: np.ndarray | pd.Series,
    *,
    names: tuple[str, str] = ("x", "y"),
    group: Mapping[str, str] | None = None,
) -> BiasScore:
    """Return Spearman's ρ of x and y, both (n,), one number a descriptor, in [−1, 1], with the p-value of ρ = 0.

    The p-value is two-sided. Up to EXACT_UP_TO pairs it is computed from all orders of y, because
    `scipy.stats.spearmanr` returns p = 0 for three ordered points, although the exact p-value is 1/3. For more pairs
    the t approximation is used.

    Interval: Fisher's transformation with the standard error √((1 + ρ²/2) / (n − 3)) of Bonett and Wright (2000),
    "Sample size requirements for estimating Pearson, Kendall and Spearman correlations"; none for |ρ| = 1 or n < 4.
    Pairs with a NaN are left out and counted in `n_left_out`. ρ is undefined for fewer than three pairs, and if all x
    or all y are equal. The score's `reason` then contains `names`, the names of x and y.

    >>> rank_correlation("rho", np.array([1, 2, 3]), np.array([10, 20, 15])).value
    0.5
    """
    x = np.asarray(x, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    is_pair = np.isfinite(x) & np.isfinite(y)
    x = x[is_pair]
    y = y[is_pair]
    n = len(x)
    reason = _why_unranked(x, y, names)
    rho = math.nan
    interval = None
    p_value = None
    if reason is None:
        found = scipy.stats.spearmanr(x, y)
        rho = float(found.statistic)
        p_value = _exact_p_value(x, y) if n <= EXACT_UP_TO else float(found.pvalue)
        if n > 3 and abs(rho) <= PERFECT:
            error = math.sqrt((1 + rho**2 / 2) / (n - 3))
            low, high = normal_interval(math.atanh(rho), error)
            interval = (math.tanh(low), math.tanh(high))
    return BiasScore(
        metric=metric,
        value=rho,
        ideal=None,
        bounds=CHANGE_BOUNDS,
        n=n,
        interval=interval,
        p_value=p_value,
        n_left_out=len(is_pair) - n,
        group=group or {},
        reason=reason,
        n_of="descriptors",
    )


def _why_unranked(x: np.ndarray, y: np.ndarray, names: tuple[str, str]) -> str | None:
    """Return the reason why x and y, (n,) each, have no rank correlation; None if they have one."""
    if len(x) < 3:
        return f"{len(x)} descriptors are too few to rank: it needs three"
    for name, values in zip(names, (x, y), strict=True):
        if not varies(values):
            return f"{name} is {values[0]:.4g} for every descriptor: there is nothing to rank"
    return None


def _exact_p_value(x: np.ndarray, y: np.ndarray) -> float:
    """Return the two-sided p-value of the rank correlation of x and y, (n,) each, from all n! orders of y."""
    middle = (len(x) + 1) / 2
    ranks_x = scipy.stats.rankdata(x) - middle
    ranks_y = scipy.stats.rankdata(y) - middle
    products = np.array(list(permutations(ranks_y))) @ ranks_x
    return float(np.mean(np.abs(products) >= abs(ranks_x @ ranks_y) - 1e-9))
