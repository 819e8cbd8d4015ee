"""The score of a share, with Wilson's interval."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.intervals import share_interval


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

    Args:
        hits: whether each item has the property, (n,) bool.
        metric, ideal, group, n_left_out, signature: as in BiasScore.
        reason: why the share is undefined if n is 0.

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
