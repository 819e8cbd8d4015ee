"""How far the mean style of all responses moved, whoever is answered, the noise of sampling taken out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.rows import Rows, blocks, finite_rows
from evenhand.evaluation.statistics.intervals import student_quantile
from evenhand.evaluation.statistics.paired_change import NOTHING
from evenhand.evaluation.statistics.strata import mean_covariance

FOLDS = 2


def style_drift(before: Rows, after: Rows, cells: np.ndarray, signature: Mapping[str, Any] | None = None) -> BiasScore:
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
    usable = finite_rows(before) & finite_rows(after)
    n = int(usable.sum())
    common: dict[str, Any] = {"n": n, "n_left_out": len(usable) - n, "signature": signature or {}}
    if n < 2:
        reason = "one prompt was answered in both runs" if n else NOTHING
        return BiasScore("style_drift", math.nan, 0.0, (-1.0, 1.0), reason=reason, **common)
    change = _Change(before, after, np.flatnonzero(usable))
    of_folds = _fold_sums(change, np.random.default_rng(0).permutation(n) % FOLDS)
    mean = of_folds.sum(axis=0) / n
    covariance, freedom = mean_covariance(change, cells[usable])
    plain, square, noise = np.abs(mean).sum() / 2, (mean**2).sum(), np.trace(covariance)
    left = 1 - noise / square if square > 0 else 0.0
    value = float(plain * math.copysign(math.sqrt(min(abs(left), 1.0)), left))
    if not freedom:
        return BiasScore("style_drift", value, 0.0, (-1.0, 1.0), **common)
    along = np.sign(mean) / 2
    half = float(student_quantile(freedom)) * math.sqrt(max(along @ covariance @ along, 0.0))
    low, high = max(_least(of_folds, n) - half, -1.0), min(float(plain) + half, 1.0)
    return BiasScore("style_drift", min(max(value, low), high), 0.0, (-1.0, 1.0), interval=(low, high), **common)


@dataclass(frozen=True)
class _Change:
    """The change of the style vector at some positions, (n, S) float64, made as it is read."""

    before: Rows
    after: Rows
    positions: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.positions), self.before.shape[1]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.after[self.positions[rows]].astype(np.float64) - self.before[self.positions[rows]]


def _fold_sums(change: _Change, fold: np.ndarray) -> np.ndarray:
    """Return the sum of the changes in each fold, (FOLDS, S)."""
    sums = np.zeros((FOLDS, change.shape[1]))
    for place, some in blocks(change):
        for number in range(FOLDS):
            sums[number] += some[fold[place] == number].sum(axis=0)
    return sums


def _least(of_folds: np.ndarray, n: int) -> float:
    """Return the cross-fitted estimate, whose expectation is never above the drift; 0 in all where nothing moved."""
    total, size = of_folds.sum(axis=0), np.bincount(np.arange(n) % FOLDS)
    found = [float(part / count @ np.sign(total - part) / 2) for part, count in zip(of_folds, size, strict=True)]
    return math.fsum(found) / len(found)
