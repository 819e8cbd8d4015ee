"""Differences of a share or of a mean between two runs over the same prompts, with paired intervals.

`share_change` and `mean_change` take one number per prompt for each run, in the same order. Differences between prompts
cancel, so the interval is narrower than for runs over different prompts.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.intervals import normal_interval, normal_p_value, share_change_interval
from evenhand.evaluation.statistics.one_sample_tests import sign_test

NO_PAIRS = "no prompt was answered in both runs"


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

    Args:
        before, after: whether the response to each prompt has the property, (n,) bool.
        metric, group, n_left_out, signature: as in BiasScore.

    The example has two losses and no gain, so p = 2 × 1/4:

    >>> change = share_change("x", np.array([1, 1, 1, 0], bool), np.array([0, 0, 1, 0], bool))
    >>> change.value, change.p_value  # two losses, no gain: p = 2 × 1/4
    (-0.5, 0.5)
    """
    before, after = np.asarray(before, dtype=bool), np.asarray(after, dtype=bool)
    common = {"group": dict(group or {}), "n_left_out": n_left_out, "signature": signature or {}}
    n, gained, lost = len(before), int((after & ~before).sum()), int((before & ~after).sum())
    if n != len(after):
        raise ValueError(f"{metric}: {n} prompts before, {len(after)} after")
    if not n:
        return BiasScore(metric, math.nan, 0.0, (-1.0, 1.0), 0, reason=NO_PAIRS, **common)
    return BiasScore(
        metric,
        (gained - lost) / n,
        0.0,
        (-1.0, 1.0),
        n,
        interval=share_change_interval(gained, lost, n),
        p_value=sign_test(after.astype(int) - before),
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

    Args:
        before, after: one number for each prompt, (n,).
        metric, bounds, group, n_left_out, signature: as in BiasScore.

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
