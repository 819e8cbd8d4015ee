"""Jackknife standard errors and intervals, computed by leaving out one unit at a time.

The intervals of `spread` are for new responses to the same prompts, with fixed descriptors and templates. The
jackknife intervals treat the descriptors or the templates as a sample from a larger set. Leaving out one descriptor or
template with all of its responses covers the noise of responses and of this sample (Arvesen 1969). Intervals use
Student's t.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from evenhand.evaluation.statistics.cells import Cells
from evenhand.evaluation.statistics.intervals import ANY, Interval, interval_around, ratio_interval, student_quantile

ROUNDING = 1e-18  # variances below this are rounding errors of equal numbers


@dataclass(frozen=True)
class JackknifeError:
    """Standard error of a statistic, 0 if its value is the same whichever unit is left out; and degrees of freedom."""

    value: float
    freedom: float

    def interval(self, value: float, bounds: Interval) -> Interval:
        """Return the 95 % interval of the statistic by Student's t, clipped to the bounds."""
        return interval_around(value, float(student_quantile(self.freedom)) * self.value, bounds)

    def p_value(self, value: float) -> float:
        """Return the two-sided p-value of the t-test that the true value is 0."""
        return 2 * float(scipy.stats.t.sf(abs(value) / self.value, self.freedom))


def jackknife_error(without: Sequence[np.ndarray]) -> JackknifeError:
    """Return the jackknife standard error of a statistic.

    Arvesen (1969), "Jackknifing U-statistics": the square root of the sum over strata of (n − 1)/n Σ (θ₋ᵢ − mean)²,
    with θ₋ᵢ the statistic without unit i of a stratum of n units. Degrees of freedom: the number of units minus the
    number of strata.
    `without` has the values of each stratum, NaN where undefined; strata of one unit are ignored.

    >>> jackknife_error([np.array([0.0, 1.0]), np.array([0.5])])  # ½ (¼ + ¼)
    JackknifeError(value=0.5, freedom=1)
    """
    variance, freedom = 0.0, 0
    for values in without:
        values = values[np.isfinite(values)]
        n = len(values)
        if n > 1:
            variance += (n - 1) / n * float(((values - values.mean()) ** 2).sum())
            freedom += n - 1
    return JackknifeError(math.sqrt(variance) if variance > ROUNDING else 0.0, freedom)


DESCRIPTORS, TEMPLATES = "descriptors", "templates"
MIN_UNITS = 3  # with two units, one unit alone would be left, which cannot be compared


def jackknife_interval(value: float, without: np.ndarray) -> Interval | None:
    """Return the 95 % interval of a value from the values without each of at least three units; None if undefined."""
    error = jackknife_error([without])
    if np.isfinite(without).sum() < MIN_UNITS or not math.isfinite(value) or error.value == 0:
        return None
    return error.interval(value, ANY)


def jackknife_ratio_interval(top: float, bottom: float, without: np.ndarray) -> Interval | None:
    """Return Fieller's 95 % interval of top / bottom; None for fewer than three units or if the interval is unbounded.

    The covariance of top and bottom is the jackknife's, (n − 1)/n Σ (θ₋ᵢ − mean)(θ₋ᵢ − mean)', with θ₋ᵢ the vector of
    top and bottom without unit i, and n − 1 degrees of freedom.
    """
    known = without[np.isfinite(without).all(axis=1)]
    n = len(known)
    if n < MIN_UNITS or not math.isfinite(top) or not bottom or jackknife_error([known @ [bottom, -top]]).value == 0:
        return None
    deviation = known - known.mean(axis=0)
    return ratio_interval(top, bottom, (n - 1) / n * deviation.T @ deviation, n - 1)


def spreads_without(cells: Cells, weights: np.ndarray, over: str, *, pooled: bool) -> np.ndarray:
    """Return the corrected value of `descriptor_spread` without each descriptor or template in turn; NaN if undefined.

    `over` is the kind of unit that is left out, DESCRIPTORS or TEMPLATES. If pooled, each descriptor must have all
    templates.
    """
    mean, noise, w = _moments(cells, weights)
    if pooled:
        n_templates = len(np.unique(cells.template))
        shape = (-1, n_templates)
        mean, noise = mean.reshape(*shape, len(w)), noise.reshape(shape)
        if over == DESCRIPTORS:
            return _without_each(mean.mean(axis=1), noise.sum(axis=1) / n_templates**2, w)
        if n_templates < 2:
            return np.array([np.nan])
        means = (mean.sum(axis=1, keepdims=True) - mean) / (n_templates - 1)
        noises = (noise.sum(axis=1, keepdims=True) - noise) / (n_templates - 1) ** 2
        return np.array([_spread(means[:, t], noises[:, t], w) for t in range(n_templates)])
    groups = [np.flatnonzero(cells.template == template) for template in np.unique(cells.template)]
    spreads = np.array([_spread(mean[group], noise[group], w) for group in groups])
    if over == TEMPLATES:
        known = spreads[np.isfinite(spreads)]
        return (known.sum() - known) / (len(known) - 1) if len(known) > 1 else np.array([np.nan])
    descriptor = np.unique(cells.descriptor, return_inverse=True)[1]
    values = np.tile(spreads, (int(descriptor.max(initial=0)) + 1, 1))
    for column, group in enumerate(groups):
        values[descriptor[group], column] = _without_each(mean[group], noise[group], w)
    compared = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.where(compared, values, 0.0).sum(axis=1) / compared.sum(axis=1)


def _moments(cells: Cells, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the cells' means, (k, c), the weighted sum over columns of the means' variances, (k,), and the weights.

    Columns of weight 0 are removed from the means and the weights, (c,).
    """
    used = np.flatnonzero(weights)
    cells, w, squares = cells.select_columns(used), weights[used], np.zeros(len(cells.count))
    for block in cells.blocks():
        squares[block.cells] = block.sum_by_cell(block.deviations**2 @ w)
    return cells.mean, squares / (cells.count * (cells.count - 1.0)), w


def _spread(mean: np.ndarray, noise: np.ndarray, w: np.ndarray) -> float:
    return float(mean.var(axis=0, ddof=1) @ w - noise.mean()) if len(mean) > 1 else math.nan


def _without_each(mean: np.ndarray, noise: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the spread of d means, (d, c), without each mean in turn, (d,).

    Leaving out one mean reduces the sum of squares by d / (d−1) times the mean's squared distance from the average.
    """
    d = len(mean)
    if d < MIN_UNITS:
        return np.full(d, np.nan)
    squares = (mean - mean.mean(axis=0)) ** 2 @ w
    return (squares.sum() - d / (d - 1) * squares) / (d - 2) - (noise.sum() - noise) / (d - 1)
