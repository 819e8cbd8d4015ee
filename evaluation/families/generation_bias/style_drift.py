"""How far the mean style of all responses moved, whoever is answered, the noise of sampling taken out."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.statistics.intervals import student_quantile
from evenhand.evaluation.statistics.paired_change import NOTHING
from evenhand.evaluation.statistics.strata import mean_covariance

FOLDS = 2


def style_drift(
    before: np.ndarray, after: np.ndarray, cells: np.ndarray, signature: Mapping[str, Any] | None = None
) -> BiasScore:
    """Return ½ Σ_s |Δ_s|, Δ_s the change of style s's mean probability: the total variation of the two mean styles.

    In [0, 1] but for noise, which may take it slightly below 0; ideal 0. The plain estimate ½ Σ |x_s| is too high: by
    σ_s / √(2π) for each style that did not move, σ_s being the standard error of x_s. It is multiplied by
    √(1 − Σ σ_s² / Σ x_s²), which is right if the Δ_s are normal with variances in proportion to the σ_s². It goes to 1
    where shifts are large, and to 0 in the mean where there is none: where the number under the root is negative, the
    root of its size, 1 at most, is taken, with a minus.

    No estimator of a sum of sizes is unbiased (Cai and Low 2011), so the interval promises at least 95 %. Its upper end
    is the plain estimate, which is never too low in the mean, and Student's t of its error. Its lower end is that of an
    estimate that is never too high in the mean: signs from one half of the prompts, sizes from the other,
    ½ Σ_s sign(x_s of one half) · x_s of the other, averaged over both ways. New responses in the same cells.

    Args:
        before, after: style vectors of the responses to the same prompts, (n, S); rows with NaN are left out.
        cells: integer codes of the prompts' cells, (n,).
        signature: what shaped the numbers.

    >>> old, new = np.array([[1.0, 0.0]] * 20), np.array([[0.9, 0.1]] * 20)
    >>> round(style_drift(old, new, np.zeros(20, int)).value, 9)
    0.1
    """
    usable = np.isfinite(before).all(axis=1) & np.isfinite(after).all(axis=1)
    n = int(usable.sum())
    common: dict[str, Any] = {"n": n, "n_left_out": len(usable) - n, "signature": signature or {}}
    if n < 2:
        reason = "one prompt was answered in both runs" if n else NOTHING
        return BiasScore("style_drift", math.nan, 0.0, (-1.0, 1.0), reason=reason, **common)
    change = after[usable].astype(np.float64) - before[usable].astype(np.float64)
    mean = change.mean(axis=0)
    along = change @ np.sign(mean) / 2
    covariance, freedom = mean_covariance(np.column_stack([change, along]), cells[usable])
    plain, square, noise = np.abs(mean).sum() / 2, (mean**2).sum(), np.trace(covariance[:-1, :-1])
    left = 1 - noise / square if square > 0 else 0.0
    value = float(plain * math.copysign(math.sqrt(min(abs(left), 1.0)), left))
    if not freedom:
        return BiasScore("style_drift", value, 0.0, (-1.0, 1.0), **common)
    half = float(student_quantile(freedom)) * math.sqrt(covariance[-1, -1])
    low, high = max(_least(change) - half, -1.0), min(float(plain) + half, 1.0)
    return BiasScore("style_drift", min(max(value, low), high), 0.0, (-1.0, 1.0), interval=(low, high), **common)


def _least(change: np.ndarray) -> float:
    """Return the cross-fitted estimate, whose expectation is never above the drift; 0 in all where nothing moved."""
    folds = np.random.default_rng(0).permutation(len(change)) % min(FOLDS, len(change))
    total, found = change.sum(axis=0), []
    for fold in range(folds.max() + 1):
        part = change[folds == fold]
        found.append(float(part.mean(axis=0) @ np.sign(total - part.sum(axis=0)) / 2))
    return math.fsum(found) / len(found)
