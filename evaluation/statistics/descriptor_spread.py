"""Unbiased estimates (U-statistics) of the variance between descriptors, with intervals.

Responses are independent, so the product of two *different* responses is an unbiased estimate of the product of the
responses' expectations, whereas the product of a response with itself includes noise. An estimate of the variance
between descriptors that is a sum over pairs of different responses is therefore unbiased: a U-statistic.

For one template, D descriptors with cell means m_d of N_d responses x_di each, and ⟨·,·⟩ the scalar product over
styles,

    θ̂ = 1/D Σ_d (mean over i≠j of ⟨x_di, x_dj⟩) − 1/(D(D−1)) Σ_{d≠e} ⟨m_d, m_e⟩
      = Σ_s [ Var_d(m_ds; ddof=1) − mean_d(s²_ds / N_d) ],

where s²_ds is the variance of style s within the cell. θ̂ is the noise-corrected generation bias of this project. The
sampling variance of θ̂ follows from Hoeffding's decomposition (W. Hoeffding, 1948, "A class of statistics with
asymptotically normal distribution", §5): a linear part ζ₁, a part ζ₂ from pairs within a cell, and a part from pairs
between cells. The three parts are estimated from products of different responses, too, so the estimate of the sampling
variance is unbiased for every distribution of responses.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from evenhand.evaluation.statistics.cell_noise import (
    ROUNDING,
    CellNoise,
    PairSums,
    borrowed,
    borrowed_noise,
    cell_variances,
    covariance_square,
    noise_freedom,
    pair_sums,
)
from evenhand.evaluation.statistics.cells import Cells, sum_by
from evenhand.evaluation.statistics.intervals import interval_around, spread_interval, student_quantile
from evenhand.evaluation.statistics.level import ONE_LOOK, Level

COLUMNS_PER_BATCH = 32  # keeps the (k, c) arrays of `column_spreads` small


@dataclass(frozen=True)
class Estimate:
    """An estimate with its sampling variance.

    Attributes:
        value: the estimate.
        variance: estimate of the sampling variance, unbiased if all cells have at least four responses. For few
            responses it may be negative by noise; NaN if unknown.
        noise: the part of the variance that does not depend on the spread, from products of different cells; at least
            0.
        slope: increase of the variance per unit of spread; None if the value is not a spread (for example, a
            difference).
        freedom: degrees of freedom of the covariances within cells.
        level: how much the interval may err; less at one of several looks (`sequential`).
    """

    value: float
    variance: float
    noise: float = 0.0
    slope: float | None = None
    freedom: float = np.inf
    level: Level = ONE_LOOK

    @property
    def standard_error(self) -> float:
        """The square root of the larger of `variance` and `noise`."""
        return math.sqrt(np.fmax(np.fmax(self.variance, self.noise), 0.0))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval; None if nothing varies within cells.

        The interval of a spread is by a shifted χ² distribution (`spread_interval`), other intervals by Student's t.
        """
        if not self.noise > 0:  # if a single cell varies, no product of two cells estimates the noise
            return None
        if self.slope is None:
            return interval_around(self.value, student_quantile(self.freedom, self.level.tail) * self.standard_error)
        return spread_interval(self.value, self.noise, self.slope, self.freedom, self.level.tail)

    @property
    def p_value(self) -> float | None:
        """The two-sided p-value, by Student's t, of the true value 0; None if nothing varies within cells."""
        if not self.noise > 0:
            return None
        return float(2 * scipy.special.stdtr(self.freedom, -abs(self.value) / self.standard_error))


@dataclass(frozen=True)
class Spread:
    """The variance of the mean style vector between descriptors, as published and without sampling noise.

    Attributes:
        plain: the published definition with ddof = 0, which depends on the number of responses per cell. The interval
            is for the expectation of `plain`, which exceeds the true spread.
        corrected: the estimate with ddof = 1 that is unbiased for the true spread and may be slightly negative.
    """

    plain: Estimate
    corrected: Estimate


UNKNOWN = Estimate(np.nan, np.nan)
UNDEFINED = Spread(UNKNOWN, UNKNOWN)


@dataclass(frozen=True)
class _Templates:
    """The templates of some cells.

    Attributes:
        of_cell: the template of each cell, numbered from 0, (k,).
        size: the number of descriptors of each template, (T,).
        n_descriptors: the number of descriptors on the template of each cell, (k, 1).
        is_compared: whether each template has two descriptors, (T,).
    """

    of_cell: np.ndarray
    size: np.ndarray
    n_descriptors: np.ndarray
    is_compared: np.ndarray


def _templates(cells: Cells) -> _Templates:
    of_cell = np.unique(cells.template, return_inverse=True)[1]
    size = np.bincount(of_cell)
    n_descriptors = size[of_cell][:, None].astype(np.float64)
    return _Templates(of_cell, size, n_descriptors, is_compared=size >= 2)


def _deviations(cells: Cells, templates: _Templates) -> tuple[np.ndarray, np.ndarray]:
    """Return each cell's mean less the mean of the template's cells, and less the mean of its *other* cells, (k, c).

    The second difference, Δ, is between two independent means.
    """
    d = templates.n_descriptors
    deviation = cells.mean - sum_by(templates.of_cell, cells.mean / d)[templates.of_cell]
    return deviation, deviation * (d / np.maximum(d - 1, 1))


def descriptor_spread(cells: Cells, weights: np.ndarray | None = None) -> Spread:
    """Return the variance between descriptors of a template's mean vectors, averaged over templates (FGB and FGB*).

    Args:
        cells: responses by cell, at least two to each.
        weights: weight of each column, (c,), default all 1. A 0/1 mask selects styles (PGB). With the columns of two
            runs side by side, +1 and −1 give the difference of the runs with the standard error of a comparison paired
            by prompt, because the estimate is linear and the estimate's variance quadratic in the weights.

    Returns:
        The plain and the corrected estimate (Smith et al. 2022, A.7); NaN if no template has two descriptors. Estimated
        variances are unbiased if responses are independent and each cell has at least four; cells of two or three
        responses borrow covariances from other cells (`cell_noise`).
    """
    weights = np.ones(cells.mean.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    used = np.flatnonzero(weights)
    cells = cells.select_columns(used)
    w = weights[used]
    templates = _templates(cells)
    if not templates.is_compared.any():
        return UNDEFINED

    deviation, direction = _deviations(cells, templates)
    pairs = pair_sums(cells, w, direction)
    n = pairs.n
    mean_squares = pairs.products / (n * (n - 1)) ** 2  # tr((V W)²), V the covariance of the cell's mean
    scale = 1 / (n * (n - 1))
    of_template = covariance_square(cells, w, scale[:, 0], templates.of_cell)
    alike, small = borrowed_noise(cells, w, direction, pairs)
    return _spreads(
        templates,
        squares=(deviation**2 @ w)[:, None],
        noise=pairs.squares * scale,
        variances=cell_variances(cells, pairs, small),
        alike=alike,
        between=of_template - sum_by(templates.of_cell, mean_squares),
        freedom=noise_freedom(cells, n * np.sqrt(mean_squares)),
        is_spread=bool((w >= 0).all()),
    )[0]


def column_spreads(cells: Cells) -> list[Spread]:
    """Return the spread of each column, equal to `descriptor_spread` of the column alone, in one pass over the rows.

    For a single column the sums over pairs of responses follow from sums of powers of the deviations.
    """
    k, c = cells.mean.shape
    second = np.zeros((k, c))
    third = np.zeros((k, c))
    fourth = np.zeros((k, c))
    for block in cells.blocks():
        deviations = block.deviations
        power = deviations**2
        second[block.cells] = block.sum_by_cell(power)
        power *= deviations
        third[block.cells] = block.sum_by_cell(power)
        power *= deviations
        fourth[block.cells] = block.sum_by_cell(power)
    spreads = []
    for columns in np.array_split(np.arange(c), max(1, c // COLUMNS_PER_BATCH)):
        batch = replace(cells, mean=cells.mean[:, columns])
        spreads += _some_column_spreads(batch, second[:, columns], third[:, columns], fourth[:, columns])
    return spreads


def _some_column_spreads(cells: Cells, second: np.ndarray, third: np.ndarray, fourth: np.ndarray) -> list[Spread]:
    """Return the spread of each column from the sums of the second, third and fourth power of deviations, (k, c)."""
    templates = _templates(cells)
    if not templates.is_compared.any():
        return [UNDEFINED] * cells.mean.shape[1]
    n = cells.count[:, None].astype(np.float64)
    deviation, direction = _deviations(cells, templates)
    pairs = PairSums(
        n=n,
        linear=direction**2 * second,
        mixed=direction * third,
        squares=second,
        fourth=fourth,
        products=second**2,
    )
    noise = second / (n * (n - 1))

    def sum_others(index: np.ndarray) -> np.ndarray:
        others = sum_by(index, second)[index] - second
        freedom = sum_by(index, n - 1)[index] - (n - 1)
        return np.stack([direction**2 * others, others * second / (n - 1), np.broadcast_to(freedom, others.shape)])

    alike, small = borrowed(cells, sum_others, n)
    return _spreads(
        templates,
        squares=deviation**2,
        noise=noise,
        variances=cell_variances(cells, pairs, small),
        alike=alike,
        between=sum_by(templates.of_cell, noise) ** 2 - sum_by(templates.of_cell, noise**2),
        freedom=noise_freedom(cells, n * noise),
        is_spread=True,
    )


def _spreads(
    templates: _Templates,
    squares: np.ndarray,
    noise: np.ndarray,
    variances: tuple[np.ndarray, np.ndarray],
    alike: CellNoise,
    between: np.ndarray,
    freedom: np.ndarray,
    is_spread: bool,
) -> list[Spread]:
    """Return the spread of each of c columns from sums over cells.

    The linear part of the variance is estimated with noisy references. Subtracting the noise of the references changes
    the sign of 2 `between` in the variance from + to −. In the part of the variance that does not depend on the spread
    the term has a plus sign.

    Args:
        templates: templates of the cells.
        squares: squared distance of each cell from its template's mean, (k, c).
        noise: variance of each cell's mean, (k, c).
        variances: contributions of the cells to the variances of the corrected and of the plain spread, (k, c) each.
        alike: noise of each cell that is never negative (`borrowed`).
        between: Σ tr(V_d W V_e W) over pairs d ≠ e of cells of each template, (T, c); V is the covariance of a mean.
        freedom: degrees of freedom of the noise, (c,).
        is_spread: whether the values are spreads, which have a slope; else they are differences.
    """
    d = templates.n_descriptors
    raw = squares / np.maximum(d - 1, 1)
    corrected_variances, plain_variances = variances
    corrected = _estimates(
        templates,
        value=raw - noise / d,
        variance=corrected_variances / d**2,
        noise=alike.pair_variance / d**2,
        between=between,
        freedom=freedom,
    )
    # The plain spread is (size − 1) / size of the U-statistic.
    plain = _estimates(
        templates,
        value=squares / d,
        variance=plain_variances / d**2,
        noise=alike.pair_variance * ((alike.n - 1) / alike.n) ** 2 / d**2,
        between=between,
        freedom=freedom,
        scale=(templates.size - 1) / templates.size,
    )
    if is_spread:
        raw_variance = _variance_of_average(templates, 4 * alike.along / alike.n / d**2, np.zeros_like(between))
        corrected = _with_slopes(corrected, _average(templates, raw), raw_variance)
    return [
        Spread(plain=of_plain, corrected=of_corrected) for of_plain, of_corrected in zip(plain, corrected, strict=True)
    ]


def _with_slopes(estimates: list[Estimate], raw_spread: np.ndarray, raw_variance: np.ndarray) -> list[Estimate]:
    """Return the estimates with their slopes, from the spread of each column with noise and its variance, (c,) each.

    Δ includes noise, so the slope of the raw spread is a mean of the slopes along the noise and along the bias.
    """
    result = []
    for column, estimate in enumerate(estimates):
        slope = slope_of_variance(
            value=estimate.value,
            variance=estimate.variance,
            noise=estimate.noise,
            raw_spread=float(raw_spread[column]),
            raw_variance=float(raw_variance[column]),
        )
        result.append(replace(estimate, slope=slope))
    return result


def _estimates(
    templates: _Templates,
    value: np.ndarray,
    variance: np.ndarray,
    noise: np.ndarray,
    between: np.ndarray,
    freedom: np.ndarray,
    scale: np.ndarray | None = None,
) -> list[Estimate]:
    """Return the estimate of each column from the cells' values, variances and noise, (k, c) each, without a slope.

    `scale` multiplies the estimate of each template, (T,); values are scaled already.
    """
    values = _average(templates, value)
    variances = _variance_of_average(templates, variance, between, scale)
    noises = _variance_of_average(templates, noise, -between, scale)
    noises = np.where(noises > ROUNDING * np.abs(variances), noises, 0.0)
    columns = zip(values.tolist(), variances.tolist(), noises.tolist(), freedom.tolist(), strict=True)
    return [
        Estimate(value=value, variance=variance, noise=noise, freedom=degrees)
        for value, variance, noise, degrees in columns
    ]


def _average(templates: _Templates, value: np.ndarray) -> np.ndarray:
    """Return the mean over templates of the sum of the cells' values, from (k, c) to (c,)."""
    return sum_by(templates.of_cell, value)[templates.is_compared].mean(axis=0)


def _variance_of_average(
    templates: _Templates, variance: np.ndarray, between: np.ndarray, scale: np.ndarray | None = None
) -> np.ndarray:
    """Return the variance of the mean over templates, (c,), from cells' variances, (k, c), and `between`, (T, c)."""
    n_pairs = np.maximum(templates.size * (templates.size - 1.0), 1)[:, None]
    of_template = sum_by(templates.of_cell, variance) - 2 * between / n_pairs**2
    if scale is not None:
        of_template = of_template * scale[:, None] ** 2
    is_compared = templates.is_compared
    return of_template[is_compared].sum(axis=0) / is_compared.sum() ** 2


def slope_of_variance(value: float, variance: float, noise: float, raw_spread: float, raw_variance: float) -> float:
    """Return the increase of the variance per unit of spread.

    The result is a weighted mean of (variance − noise) / value, with the value as weight, and of the slope of the
    uncorrected spread, which is always defined, with weight 2 √noise.
    """
    raw_weight = 2 * math.sqrt(max(noise, 0.0))
    raw_slope = max(raw_variance, 0.0) / raw_spread if raw_spread > 0 else 0.0
    total_weight = max(value, 0.0) + raw_weight
    if not total_weight > 0:
        return 0.0
    return (max(variance - noise, 0.0) + raw_slope * raw_weight) / total_weight
