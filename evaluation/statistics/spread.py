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
    linear_variance_without_cell,
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


UNDEFINED = Spread(Estimate(np.nan, np.nan), Estimate(np.nan, np.nan))


@dataclass(frozen=True)
class _Units:
    """Units that are compared: descriptors within one template or, if pooled, descriptors over all templates.

    Attributes:
        of_cell: unit of each cell, (k,).
        group_of_cell, group: group of each cell, (k,), and of each unit, (u,); only units of one group are compared.
        in_group: number of units of each group, (g,).
    """

    of_cell: np.ndarray
    group_of_cell: np.ndarray
    group: np.ndarray
    in_group: np.ndarray


def _units(cells: Cells, pooled: bool) -> _Units:
    group = np.zeros_like(cells.template) if pooled else np.unique(cells.template, return_inverse=True)[1]
    key = group * (int(cells.descriptor.max(initial=0)) + 1) + cells.descriptor
    _, first, unit = np.unique(key, return_index=True, return_inverse=True)
    return _Units(unit, group, group[first], np.bincount(group[first]))


def descriptor_spread(cells: Cells, weights: np.ndarray | None = None, *, pooled: bool = False) -> Spread:
    """Return the weighted sum over columns of the variance between descriptors of the column's mean.

    Args:
        cells: responses by cell.
        weights: weight of each column, (c,), default all 1. A 0/1 mask selects styles (PGB). With the columns of two
            runs side by side, +1 and −1 give the difference of the runs with the standard error of a comparison paired
            by prompt, because the estimate is linear and the estimate's variance quadratic in the weights.
        pooled: False: the variance within each template, averaged over templates (FGB, Smith et al. 2022, A.7). True:
            the variance of the descriptors' means over all templates (the spread of m_d, Smith et al. 2022, C.1).

    Returns:
        The plain and the corrected estimate; NaN if fewer than two descriptors can be compared. Estimated variances are
        unbiased if each cell has at least four responses; cells of two or three responses borrow covariances from other
        cells (`cell_noise`).
    """
    weights = np.ones(cells.mean.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    used = np.flatnonzero(weights)
    cells, w = cells.select_columns(used), weights[used]
    units = _units(cells, pooled)
    if units.in_group.max(initial=0) < 2:
        return UNDEFINED

    share = 1.0 / np.bincount(units.of_cell)[units.of_cell]
    unit_mean = sum_by(units.of_cell, cells.mean * share[:, None])
    d = units.in_group[units.group].astype(np.float64)
    deviation = unit_mean - sum_by(units.group, unit_mean / d[:, None])[units.group]
    # Each unit is compared with the mean of the group's other units, so that unit and reference are independent.
    peers = unit_mean - deviation * (d / np.maximum(d - 1, 1))[:, None]
    direction = (unit_mean - peers)[units.of_cell]
    pairs, n = pair_sums(cells, w, direction), cells.count.astype(np.float64)
    of_unit = pairs.shared(share)
    block = of_unit.products / (n * (n - 1)) ** 2  # tr((V W)²), V the covariance of the cell's mean
    within, between = _cross_components(cells, w, units, share, block, pooled=pooled)
    alike, small = borrowed_noise(cells, w, direction, share, pairs)
    linear = small.linear_variance
    if pooled and (cells.count < 4).any() and (share < 1).all():
        own = cells.mean * share[:, None]
        without = (unit_mean[units.of_cell] - own) / (1 - share)[:, None] - peers[units.of_cell]
        linear = linear_variance_without_cell(cells, w, without, share, units.of_cell, pairs)
    scale = (units.in_group - 1) / units.in_group
    return _spread(
        units,
        squares=deviation**2 @ w,
        noise=of_unit.own / (n * (n - 1)),
        variances=with_small(cells, (of_unit.variance(), of_unit.variance(plain=True)), linear, small),
        alike=alike,
        within=within,
        between=between,
        scale=scale,
        freedom=noise_freedom(cells, (cells.count * np.sqrt(block) / share**2)[:, None]),
        is_spread=bool((w >= 0).all()),
    )[0]


def _average(
    units: _Units, value: np.ndarray, variance: np.ndarray, between: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over groups of the sum of the units' values, (u,) or (u, c), and the variance of this mean."""
    down = (slice(None), *[None] * (value.ndim - 1))
    pairs = np.maximum(units.in_group * (units.in_group - 1.0), 1)[down]
    of_group = (sum_by(units.group, variance) - 2 * between / pairs**2) * scale[down] ** 2
    compared = units.in_group >= 2
    mean = sum_by(units.group, value)[compared].mean(axis=0)
    return mean, of_group[compared].sum(axis=0) / compared.sum() ** 2


def _spread(
    units: _Units,
    squares: np.ndarray,
    noise: np.ndarray,
    variances: tuple[np.ndarray, np.ndarray],
    alike: CellNoise,
    within: np.ndarray | float,
    between: np.ndarray,
    scale: np.ndarray,
    freedom: np.ndarray,
    is_spread: bool,
) -> list[Spread]:
    """Return the spread, or the spread of each of c columns, from sums over cells and units.

    The linear part of the variance is estimated with noisy references. Subtracting the noise of the references changes
    the sign of 2 `within` and 2 `between` in the variance from + to −. In the part of the variance that does not depend
    on the spread both terms have a plus sign. `squares` are squared distances of units from the group's mean, `noise`
    the variances of each cell's term in the mean of its unit, `variances` the cells' contributions to the variance of
    the corrected and of the plain spread, and `scale` is the plain spread of each group over the U-statistic, (g,).
    """
    down = (slice(None), *[None] * (squares.ndim - 1))
    d = units.in_group[units.group].astype(np.float64)[down]
    raw, ones = squares / np.maximum(d - 1, 1), np.ones(len(scale))
    # Δ includes noise, so the slope of the raw spread is a mean of the slopes along the noise and along the bias.
    linear = sum_by(units.of_cell, 4 * alike.along / alike.n) / d**2
    raw_spread, raw_variance = _average(units, raw, linear, 0 * between, ones)

    def estimates(value: np.ndarray, variance: np.ndarray, pairs: np.ndarray, scale: np.ndarray) -> tuple:
        parts = (
            (sum_by(units.of_cell, variance) - 2 * within) / d**2,
            (sum_by(units.of_cell, pairs) + 2 * within) / d**2,
        )
        value, variance = _average(units, value, parts[0], between, scale)
        noise = _average(units, squares, parts[1], -between, scale)[1]
        return value, variance, np.where(noise > ROUNDING * np.abs(variance), noise, 0.0)

    pairs = alike.pair_variance
    plain = estimates(squares / d, variances[1], pairs * ((alike.n - 1) / alike.n) ** 2, scale)
    corrected = estimates(raw - sum_by(units.of_cell, noise) / d, variances[0], pairs, ones)
    return [
        Spread(Estimate(*p, None, f), Estimate(*c, _slope(*c, *of_raw) if is_spread else None, f))
        for p, c, of_raw, f in zip(
            *(
                np.stack(np.broadcast_arrays(*part), axis=-1).reshape(-1, len(part)).tolist()
                for part in (plain, corrected, (raw_spread, raw_variance))
            ),
            freedom.tolist(),
            strict=True,
        )
    ]


def _slope(value: float, variance: float, noise: float, raw_spread: float, raw_variance: float) -> float:
    """Return the increase of the variance per unit of spread.

    The result is a weighted mean of (variance − noise) / value, with the value as weight, and of the slope of the
    uncorrected spread, which is always defined, with weight 2 √noise.
    """
    prior = 2 * np.sqrt(max(noise, 0.0))
    of_noise = max(raw_variance, 0.0) / raw_spread if raw_spread > 0 else 0.0
    total = max(value, 0.0) + prior
    return float((max(variance - noise, 0.0) + of_noise * prior) / total) if total > 0 else 0.0


def _cross_components(
    cells: Cells, w: np.ndarray, units: _Units, share: np.ndarray, block: np.ndarray, *, pooled: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of tr(V W V' W) over the pairs of cells of each unit, (u,), and of units of each group, (g,).

    V and V' are the covariances of the means of the two cells or units, and W is the diagonal matrix of the weights w.
    The sums over pairs of cells are 0 unless pooled. `block` is tr((V W)²) of each cell, (k,).
    """
    scale = share**2 / (cells.count * (cells.count - 1.0))
    per_unit = covariance_square(cells, w, scale, units.of_cell) if pooled else block
    per_group = covariance_square(cells, w, scale, units.group_of_cell)
    return per_unit - sum_by(units.of_cell, block), per_group - sum_by(units.group, per_unit)


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
    group = np.unique(cells.template, return_inverse=True)[1]
    units = _Units(np.arange(len(group)), group, group, np.bincount(group))
    size = units.in_group
    if size.max(initial=0) < 2:
        return [UNDEFINED] * cells.mean.shape[1]
    n, d = cells.count[:, None].astype(np.float64), size[group][:, None].astype(np.float64)
    deviation = cells.mean - sum_by(group, cells.mean / d)[group]
    direction = deviation * d / np.maximum(d - 1, 1)
    pairs = PairSums(n, direction**2 * second, direction * third, second, fourth, second**2)
    noise = second / (n * (n - 1))
    between = sum_by(group, noise) ** 2 - sum_by(group, noise**2)

    def sum_others(index: np.ndarray) -> np.ndarray:
        others = sum_by(index, second)[index] - second
        freedom = sum_by(index, n - 1)[index] - (n - 1)
        return np.stack([direction**2 * others, others * second / (n - 1), np.broadcast_to(freedom, others.shape)])

    alike, small = borrowed(cells, sum_others, np.ones_like(n))
    return _spread(
        units,
        squares=deviation**2,
        noise=noise,
        variances=with_small(cells, (pairs.variance(), pairs.variance(plain=True)), small.linear_variance, small),
        alike=alike,
        within=0.0,
        between=between,
        scale=(size - 1) / size,
        freedom=noise_freedom(cells, n * noise),
        is_spread=True,
    )
