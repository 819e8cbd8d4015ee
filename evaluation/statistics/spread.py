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

from dataclasses import dataclass, replace

import numpy as np
import scipy

from evenhand.evaluation.statistics.cell_noise import (
    ROUNDING,
    CellNoise,
    PairSums,
    borrowed,
    borrowed_noise,
    covariance_square,
    noise_freedom,
    pair_sums,
    with_small,
)
from evenhand.evaluation.statistics.cells import Cells, sum_by
from evenhand.evaluation.statistics.intervals import interval_around, spread_interval, student_quantile

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
    """

    value: float
    variance: float
    noise: float = 0.0
    slope: float | None = None
    freedom: float = np.inf

    @property
    def standard_error(self) -> float:
        """The square root of the larger of `variance` and `noise`."""
        return float(np.sqrt(np.fmax(np.fmax(self.variance, self.noise), 0.0)))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval; None if nothing varies within cells.

        The interval of a spread is by a shifted χ² distribution (`spread_interval`), other intervals by Student's t.
        """
        if not self.noise > 0:  # if a single cell varies, no product of two cells estimates the noise
            return None
        if self.slope is None:
            return interval_around(self.value, float(student_quantile(self.freedom)) * self.standard_error)
        return spread_interval(self.value, self.noise, self.slope, self.freedom)

    @property
    def p_value(self) -> float | None:
        """The two-sided p-value, by Student's t, of the true value 0; None if nothing varies within cells."""
        return (
            float(2 * scipy.stats.t.sf(abs(self.value) / self.standard_error, self.freedom)) if self.noise > 0 else None
        )


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
    """The template of each cell, (k,), numbered from 0, and the number of descriptors of each template, (T,)."""

    of_cell: np.ndarray
    size: np.ndarray


def _templates(cells: Cells) -> _Templates:
    template = np.unique(cells.template, return_inverse=True)[1]
    return _Templates(template, np.bincount(template))


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
    if templates.size.max(initial=0) < 2:
        return UNDEFINED

    d = templates.size[templates.of_cell].astype(np.float64)
    deviation = cells.mean - sum_by(templates.of_cell, cells.mean / d[:, None])[templates.of_cell]
    # Each descriptor is compared with the mean of the template's other ones, so that both are independent.
    direction = deviation * (d / np.maximum(d - 1, 1))[:, None]
    pairs = pair_sums(cells, w, direction)
    n = cells.count.astype(np.float64)
    block = pairs.products / (n * (n - 1)) ** 2  # tr((V W)²), V the covariance of the cell's mean
    scale = 1 / (n * (n - 1))
    between = covariance_square(cells, w, scale, templates.of_cell) - sum_by(templates.of_cell, block)
    alike, small = borrowed_noise(cells, w, direction, pairs)
    return _spread(
        templates,
        squares=deviation**2 @ w,
        noise=pairs.own * scale,
        variances=with_small(cells, (pairs.variance(), pairs.variance(plain=True)), small.linear_variance, small),
        alike=alike,
        between=between,
        freedom=noise_freedom(cells, (n * np.sqrt(block))[:, None]),
        is_spread=bool((w >= 0).all()),
    )[0]


def _average(
    templates: _Templates, value: np.ndarray, variance: np.ndarray, between: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over templates of the sum of the cells' values, (k,) or (k, c), and the variance of this mean."""
    down = (slice(None), *[None] * (value.ndim - 1))
    pairs = np.maximum(templates.size * (templates.size - 1.0), 1)[down]
    of_template = (sum_by(templates.of_cell, variance) - 2 * between / pairs**2) * scale[down] ** 2
    compared = templates.size >= 2
    mean = sum_by(templates.of_cell, value)[compared].mean(axis=0)
    return mean, of_template[compared].sum(axis=0) / compared.sum() ** 2


def _spread(
    templates: _Templates,
    squares: np.ndarray,
    noise: np.ndarray,
    variances: tuple[np.ndarray, np.ndarray],
    alike: CellNoise,
    between: np.ndarray,
    freedom: np.ndarray,
    is_spread: bool,
) -> list[Spread]:
    """Return the spread, or the spread of each of c columns, from sums over cells.

    The linear part of the variance is estimated with noisy references. Subtracting the noise of the references changes
    the sign of 2 `between` in the variance from + to −. In the part of the variance that does not depend on the spread
    the term has a plus sign. `squares` are squared distances of cells from the template's mean, `noise` the variances
    of the cells' means, and `variances` the cells' contributions to the variance of the corrected and of the plain
    spread.
    """
    down = (slice(None), *[None] * (squares.ndim - 1))
    d = templates.size[templates.of_cell].astype(np.float64)[down]
    ones = np.ones(len(templates.size))
    of_plain = (templates.size - 1) / templates.size  # the plain spread over the U-statistic
    raw = squares / np.maximum(d - 1, 1)
    # Δ includes noise, so the slope of the raw spread is a mean of the slopes along the noise and along the bias.
    raw_spread, raw_variance = _average(templates, raw, 4 * alike.along / alike.n / d**2, 0 * between, ones)

    def estimates(value: np.ndarray, variance: np.ndarray, pairs: np.ndarray, scale: np.ndarray) -> tuple:
        value, variance = _average(templates, value, variance / d**2, between, scale)
        noise = _average(templates, squares, pairs / d**2, -between, scale)[1]
        return value, variance, np.where(noise > ROUNDING * np.abs(variance), noise, 0.0)

    pairs = alike.pair_variance
    plain = estimates(squares / d, variances[1], pairs * ((alike.n - 1) / alike.n) ** 2, of_plain)
    corrected = estimates(raw - noise / d, variances[0], pairs, ones)
    columns = [
        np.stack(np.broadcast_arrays(*part), axis=-1).reshape(-1, len(part)).tolist()
        for part in (plain, corrected, (raw_spread, raw_variance))
    ]
    spreads = []
    for of_plain_form, of_corrected, of_raw, degrees in zip(*columns, freedom.tolist(), strict=True):
        value, variance, of_noise = of_corrected
        slope = slope_of_variance(value, variance, of_noise, *of_raw) if is_spread else None
        spreads.append(
            Spread(
                plain=Estimate(*of_plain_form, slope=None, freedom=degrees),
                corrected=Estimate(value, variance, of_noise, slope=slope, freedom=degrees),
            )
        )
    return spreads


def slope_of_variance(value: float, variance: float, noise: float, raw_spread: float, raw_variance: float) -> float:
    """Return the increase of the variance per unit of spread.

    The result is a weighted mean of (variance − noise) / value, with the value as weight, and of the slope of the
    uncorrected spread, which is always defined, with weight 2 √noise.
    """
    prior = 2 * np.sqrt(max(noise, 0.0))
    of_noise = max(raw_variance, 0.0) / raw_spread if raw_spread > 0 else 0.0
    total = max(value, 0.0) + prior
    return float((max(variance - noise, 0.0) + of_noise * prior) / total) if total > 0 else 0.0


def column_spreads(cells: Cells) -> list[Spread]:
    """Return the spread of each column, equal to `descriptor_spread` of the column alone, in one pass over the rows.

    For a single column the sums over pairs of responses follow from sums of powers of the deviations.
    """
    k, c = cells.mean.shape
    powers = np.zeros((3, k, c))
    for block in cells.blocks():
        deviations = block.deviations
        product = deviations.copy()
        for power in powers:
            product *= deviations
            power[block.cells] = block.sum_by_cell(product)
    return [
        spread
        for columns in np.array_split(np.arange(c), max(1, c // COLUMNS_PER_BATCH))
        for spread in _some_column_spreads(replace(cells, mean=cells.mean[:, columns]), *powers[:, :, columns])
    ]


def _some_column_spreads(cells: Cells, second: np.ndarray, third: np.ndarray, fourth: np.ndarray) -> list[Spread]:
    """Return the spread of each column from the sums of the second, third and fourth power of deviations, (k, c)."""
    templates = _templates(cells)
    group = templates.of_cell
    if templates.size.max(initial=0) < 2:
        return [UNDEFINED] * cells.mean.shape[1]
    n = cells.count[:, None].astype(np.float64)
    d = templates.size[group][:, None].astype(np.float64)
    deviation = cells.mean - sum_by(group, cells.mean / d)[group]
    direction = deviation * d / np.maximum(d - 1, 1)
    pairs = PairSums(n, direction**2 * second, direction * third, second, fourth, second**2)
    noise = second / (n * (n - 1))
    between = sum_by(group, noise) ** 2 - sum_by(group, noise**2)

    def sum_others(index: np.ndarray) -> np.ndarray:
        others = sum_by(index, second)[index] - second
        freedom = sum_by(index, n - 1)[index] - (n - 1)
        return np.stack([direction**2 * others, others * second / (n - 1), np.broadcast_to(freedom, others.shape)])

    alike, small = borrowed(cells, sum_others, n)
    return _spread(
        templates,
        squares=deviation**2,
        noise=noise,
        variances=with_small(cells, (pairs.variance(), pairs.variance(plain=True)), small.linear_variance, small),
        alike=alike,
        between=between,
        freedom=noise_freedom(cells, n * noise),
        is_spread=True,
    )
