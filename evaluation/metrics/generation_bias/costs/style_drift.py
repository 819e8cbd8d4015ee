"""Style drift: how far the mean style of all responses moved between two runs, corrected for sampling noise."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.intervals import mean_covariance, student_quantile
from evenhand.evaluation.statistics.scores import NO_PAIRS

N_FOLDS = 2


def style_drift(
    before: np.ndarray, after: np.ndarray, cells: np.ndarray, signature: Mapping[str, Any] | None = None
) -> BiasScore:
    """Return the drift ½ Σ_s |Δ_s| of the mean style, where Δ_s is the change of the mean probability of style s.

    The drift is the total variation distance of the mean styles, in [0, 1], ideal 0; noise may make the estimate
    slightly negative. Let x_s be the measured change of style s and σ_s its standard error. The plain estimate
    ½ Σ |x_s| is biased upwards by σ_s / √(2π) for each style without a change. The plain estimate is therefore
    multiplied by √(1 − Σ σ_s² / Σ x_s²), which is exact if the Δ_s are normal with variances proportional to σ_s².
    The factor tends to 1 for large changes. For a negative radicand r, the factor is −√(min(|r|, 1)), so that its mean
    is 0 without changes.

    No estimator of a sum of absolute values is unbiased (Cai and Low 2011), so the 95 % interval, over new responses in
    the same cells, has a coverage of at least 95 %. The upper end is the plain estimate, whose mean is never too low,
    plus Student's t times the standard error. The lower end is a cross-fitted estimate, whose mean is never too high,
    minus this product. The cross-fitted estimate has signs from one half of the prompts and changes from the other
    half, ½ Σ_s sign(x_s of one half) · x_s of the other half, averaged over both orders.

    Args:
        before, after: style vectors of the responses to the same prompts, (n, S); rows with NaN are left out.
        cells: integer codes of the prompts' cells, (n,).
        signature: the signature of the score.

    >>> old, new = np.array([[1.0, 0.0]] * 20), np.array([[0.9, 0.1]] * 20)
    >>> round(style_drift(old, new, np.zeros(20, int)).value, 9)
    0.1
    """
    usable = (np.isfinite(before) & np.isfinite(after)).all(axis=1)
    n = int(usable.sum())
    common: dict[str, Any] = {"n": n, "n_left_out": len(usable) - n, "signature": signature or {}}
    if n < 2:
        reason = "only one prompt has a response in both runs" if n else NO_PAIRS
        return BiasScore("style_drift", math.nan, 0.0, (-1.0, 1.0), reason=reason, **common)
    change = after[usable].astype(np.float64) - before[usable]
    fold_sums = _fold_sums(change, np.random.default_rng(0).permutation(n) % N_FOLDS)
    mean = fold_sums.sum(axis=0) / n
    covariance, freedom = mean_covariance(change, cells[usable])
    plain, square, noise = np.abs(mean).sum() / 2, (mean**2).sum(), np.trace(covariance)
    radicand = 1 - noise / square if square > 0 else 0.0
    value = float(plain * math.copysign(math.sqrt(min(abs(radicand), 1.0)), radicand))
    if not freedom:
        return BiasScore("style_drift", value, 0.0, (-1.0, 1.0), **common)
    direction = np.sign(mean) / 2
    half = float(student_quantile(freedom)) * math.sqrt(max(direction @ covariance @ direction, 0.0))
    low, high = max(_cross_fitted(fold_sums, n) - half, -1.0), min(float(plain) + half, 1.0)
    return BiasScore("style_drift", min(max(value, low), high), 0.0, (-1.0, 1.0), interval=(low, high), **common)


def _fold_sums(change: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Return the sum of the changes in each of the N_FOLDS parts of the prompts, (N_FOLDS, S)."""
    return np.stack([change[fold == number].sum(axis=0) for number in range(N_FOLDS)])


def _cross_fitted(fold_sums: np.ndarray, n: int) -> float:
    """Return the cross-fitted estimate. Its expectation is never above the drift, and 0 if nothing changed."""
    total, size = fold_sums.sum(axis=0), np.bincount(np.arange(n) % N_FOLDS)
    estimates = [float(part / count @ np.sign(total - part) / 2) for part, count in zip(fold_sums, size, strict=True)]
    return math.fsum(estimates) / len(estimates)
