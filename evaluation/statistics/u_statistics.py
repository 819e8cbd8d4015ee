"""How much descriptors differ, with the noise of sampling removed and an interval.

Everything here rests on one fact. Responses are independent, so the product of two *different* responses is an
unbiased estimate of the product of their expectations, while the product of a response with itself carries noise.
The variance between descriptors, written over pairs of different responses, is therefore unbiased: a U-statistic.

For one template, D descriptors with cell means m_d of N_d responses each, and ⟨·,·⟩ over styles,

    θ̂ = 1/D Σ_d (mean over i≠j of ⟨x_di, x_dj⟩) − 1/(D(D−1)) Σ_{d≠e} ⟨m_d, m_e⟩
      = Σ_s [ Var_d(m_ds; ddof=1) − mean_d(s²_ds / N_d) ],

which is the noise-corrected generation bias of design.md. Its sampling variance follows from Hoeffding's
decomposition (W. Hoeffding, 1948, "A class of statistics with asymptotically normal distribution", §5): a linear
part ζ₁, a part ζ₂ from pairs within a cell, and one from pairs between cells. All three are estimated from products
of different responses as well, so the variance is unbiased too, whatever the responses' distribution.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evenhand.evaluation.statistics.cells import Cells
from evenhand.evaluation.statistics.intervals import normal_interval, normal_p_value

ELEMENTS_AT_ONCE = 1 << 23  # float64 numbers held by one batch of pairwise products: 64 MiB


@dataclass(frozen=True)
class Estimate:
    """An estimate with an unbiased estimate of its variance.

    The variance is NaN where there are too few responses per cell for one, and may come out negative by noise where
    there are very few.
    """

    value: float
    variance: float

    @property
    def standard_error(self) -> float:
        """The square root of the variance, 0 if that is negative."""
        return float(np.sqrt(np.maximum(self.variance, 0.0)))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval by the normal approximation, or None where the variance is unknown."""
        if not self.variance > 0:
            return None
        return normal_interval(self.value, self.standard_error)

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value of a true value of 0, or None."""
        if not self.variance > 0:
            return None
        return normal_p_value(self.value, self.standard_error)


@dataclass(frozen=True)
class Spread:
    """The variance of a mean style vector between descriptors: as the paper has it, and with the noise removed.

    `plain` is what it says at this number of responses per cell (ddof = 0); its interval covers its own expectation,
    which exceeds the true spread. `corrected` is unbiased for the true spread (ddof = 1), slightly negative at times.
    """

    plain: Estimate
    corrected: Estimate


UNDEFINED = Spread(Estimate(np.nan, np.nan), Estimate(np.nan, np.nan))


@dataclass(frozen=True)
class _Units:
    """What is compared with its peers: a descriptor, within one template or (pooled) over all.

    of_cell: the unit of each cell, (k,). group_of_cell, (k,), and group, of each unit, (u,): whom it is compared
    with. in_group: the number of units in each group, (g,).
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
    """Estimate Σ_c w_c × the variance of column c's mean between descriptors.

    Args:
        cells: responses by cell, (n, c).
        weights: (c,), default all 1. A 0/1 mask picks styles (PGB). With the columns of two runs side by side,
            +1 and −1 give the difference of the two runs, paired by prompt, with the standard error of a paired
            comparison: the estimate is linear in the weights, and its variance is a quadratic form in them.
        pooled: False: the variance within each template, averaged over templates (FGB, 002 A.7). True: the variance
            of the descriptors' means over all templates (the spread of m_d, 002 C.1).

    Returns:
        Both estimates. NaN if fewer than two descriptors can be compared. The variances are NaN if no cell has the
        four responses that an unbiased variance needs; cells with two or three take the mean of those with four.
    """
    weights = np.ones(cells.vectors.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    used = np.flatnonzero(weights)
    x, w = cells.vectors if used.size == len(weights) else np.ascontiguousarray(cells.vectors[:, used]), weights[used]
    units = _units(cells, pooled)
    if units.in_group.max(initial=0) < 2:
        return UNDEFINED

    share = 1.0 / np.bincount(units.of_cell)[units.of_cell]
    mean = np.add.reduceat(x, cells.start, axis=0, dtype=np.float64) / cells.count[:, None]
    unit_mean = _sum_by(units.of_cell, mean * share[:, None])
    d = units.in_group[units.group].astype(np.float64)
    deviation = unit_mean - _sum_by(units.group, unit_mean / d[:, None])[units.group]
    # The reference of each unit is the mean of its peers, without itself, so that the two are independent.
    peers = unit_mean - deviation * (d / np.maximum(d - 1, 1))[:, None]
    corrected, plain, noise, block = _pair_components(cells, x, w, units.of_cell, share, unit_mean, peers)
    within, between = _cross_components(cells, x, w, units, mean, share, block, pooled=pooled)

    def estimate(value: np.ndarray, cell_variance: np.ndarray, scale: np.ndarray) -> Estimate:
        # The linear part was measured against references that are noisy themselves. Taking their noise out again
        # turns the +2 within of the variance into −2, and the +2 between (`_average`) into −2.
        variance = (_sum_by(units.of_cell, cell_variance) - 2 * within) / d**2
        return Estimate(*map(float, _average(units, value, variance, between, scale)))

    squares, ones = deviation**2 @ w, np.ones(len(units.in_group))
    noise = _sum_by(units.of_cell, noise) / d
    return Spread(
        plain=estimate(squares / d, plain, (units.in_group - 1) / units.in_group),
        corrected=estimate(squares / np.maximum(d - 1, 1) - noise, corrected, ones),
    )


def _average(
    units: _Units, value: np.ndarray, variance: np.ndarray, between: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over groups of the units' summed values, and its variance.

    Args:
        value, variance: of each unit, (u,), or (u, c) for c columns.
        between: what `_cross_components` says of pairs of units, (g,) or (g, c).
        scale: by which each group's value is that of the U-statistic, (g,).
    """
    down = (slice(None), *[None] * (value.ndim - 1))
    pairs = np.maximum(units.in_group * (units.in_group - 1.0), 1)[down]
    of_group = (_sum_by(units.group, variance) - 2 * between / pairs**2) * scale[down] ** 2
    compared = units.in_group >= 2
    mean = _sum_by(units.group, value)[compared].mean(axis=0)
    return mean, of_group[compared].sum(axis=0) / compared.sum() ** 2


def _cross_components(
    cells: Cells,
    x: np.ndarray,
    w: np.ndarray,
    units: _Units,
    mean: np.ndarray,
    share: np.ndarray,
    block: np.ndarray,
    *,
    pooled: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return tr(V W V' W) summed over pairs of different cells of one unit, and of different units of one group.

    (u,), which is 0 unless pooled, and (g,). V is the covariance of a cell's, or a unit's, mean; `block` is tr((V W)²)
    of each cell.
    """
    scale = share**2 / (cells.count * (cells.count - 1.0))
    per_unit = _covariance_square(cells, x, w, mean, scale, units.of_cell) if pooled else block
    per_group = _covariance_square(cells, x, w, mean, scale, units.group_of_cell)
    return per_unit - _sum_by(units.of_cell, block), per_group - _sum_by(units.group, per_unit)


def _pair_components(
    cells: Cells,
    x: np.ndarray,
    w: np.ndarray,
    unit: np.ndarray,
    share: np.ndarray,
    unit_mean: np.ndarray,
    peers: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return each cell's part of the variance (corrected, plain), tr(V W) and tr((V W)²), V its mean's covariance.

    Within a unit, the pairs that touch one cell form a U-statistic with kernel
    share² ⟨z_i, z_j⟩ + share (f_i + f_j), where z = x − peers and f_i = ⟨z_i, what the other cells contribute⟩.
    """
    corrected, plain, noise, block = np.full((4, len(cells.count)), np.nan)
    for n in np.unique(cells.count):
        same_size = np.flatnonzero(cells.count == n)
        for chosen in np.array_split(same_size, -(-len(same_size) * n * (n + x.shape[1]) // ELEMENTS_AT_ONCE)):
            z = x[cells.start[chosen][:, None] + np.arange(n)] - peers[unit[chosen]][:, None]
            s = share[chosen][:, None]
            others = (unit_mean - peers)[unit[chosen]] - z.mean(axis=1) * s
            f = (z @ (others * w)[:, :, None])[:, :, 0] * s
            products = (z * w) @ z.transpose(0, 2, 1) * s[:, :, None] ** 2
            centred = _centred(products) / (n * (n - 1))
            noise[chosen] = np.trace(centred, axis1=1, axis2=2)
            block[chosen] = (centred**2).sum(axis=(1, 2))
            if n < 4:
                continue
            linear = f[:, :, None] + f[:, None, :]
            corrected[chosen] = _mean_of_pairs_variance(products + linear)
            # The plain square of a cell mean holds each response's own square as well.
            own = np.diagonal(products, axis1=1, axis2=2)
            plain[chosen] = _mean_of_pairs_variance(
                products * (n - 1) / n + linear + (own[:, :, None] + own[:, None, :]) / (2 * n)
            )
    corrected, plain = (_filled(part, np.isfinite(part)) for part in (corrected, plain))
    return corrected, plain, noise, block


def _filled(part: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the (k,) or (k, c) parts of cells, the mean of the known ones in place of the others."""
    part[~known] = part[known].mean(axis=0) if known.any() else np.nan
    return part


def _mean_of_pairs_variance(kernel: np.ndarray) -> np.ndarray:
    n = kernel.shape[-1]
    zeta_1, zeta_2 = hoeffding_components(kernel)
    return 4 * zeta_1 / n + 2 * zeta_2 / (n * (n - 1))


def _centred(products: np.ndarray) -> np.ndarray:
    """Return the products of deviations from the mean, given the (…, n, n) products."""
    rows = products.mean(axis=-1, keepdims=True)
    return products - rows - rows.swapaxes(-1, -2) + rows.mean(axis=-2, keepdims=True)


def hoeffding_components(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return unbiased estimates of a U-statistic's variance components from its (…, n, n) kernel values, n ≥ 4.

    ζ₁ = Var(E[h(X₁, X₂) | X₁]) and ζ₂ = Var of the rest, so that the mean of h over pairs has variance
    4 ζ₁ / n + 2 ζ₂ / (n (n−1)) (Hoeffding 1948, §5). The diagonal is ignored. Both may come out negative by noise.
    """
    n = kernel.shape[-1]
    off = kernel * (1 - np.eye(n))
    row = off.sum(axis=-1)
    return _components(n, (off**2).sum(axis=(-2, -1)), (row**2).sum(axis=-1), row.sum(axis=-1))


def _components(
    n: np.ndarray | int, squares: np.ndarray, squared_rows: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return ζ₁, ζ₂ from Σ h_ij², Σ_i (Σ_j h_ij)² and Σ h_ij over i ≠ j.

    E h₁₂², E h₁₂h₂₃ and E h₁₂h₃₄ are averages over distinct indices.
    """
    triples = squared_rows - squares
    quadruples = total**2 - 4 * triples - 2 * squares
    same = squares / (n * (n - 1))
    overlapping = triples / (n * (n - 1) * (n - 2))
    disjoint = quadruples / (n * (n - 1) * (n - 2) * (n - 3))
    return overlapping - disjoint, same - 2 * overlapping + disjoint


def column_spreads(cells: Cells) -> list[Spread]:
    """Return `descriptor_spread(cells, one column)` of every column, in one pass.

    For a single column the kernel is a polynomial in z, so the sums over pairs are polynomials in its power sums.
    """
    return [
        spread
        for columns in np.array_split(np.arange(cells.vectors.shape[1]), max(1, cells.vectors.shape[1] // 32))
        for spread in _some_column_spreads(cells, cells.vectors[:, columns].astype(np.float64))
    ]


def _some_column_spreads(cells: Cells, x: np.ndarray) -> list[Spread]:
    group = np.unique(cells.template, return_inverse=True)[1]
    units = _Units(np.arange(len(group)), group, group, np.bincount(group))
    size = units.in_group
    if size.max(initial=0) < 2:
        return [UNDEFINED] * x.shape[1]
    n, d = cells.count[:, None].astype(np.float64), size[group][:, None].astype(np.float64)
    mean = np.add.reduceat(x, cells.start, axis=0) / n
    deviation = mean - _sum_by(group, mean / d)[group]
    z = x - np.repeat(mean - deviation * (d / np.maximum(d - 1, 1)), cells.count, axis=0)
    powers = np.stack([np.add.reduceat(z**power, cells.start, axis=0) for power in (1, 2, 3, 4)])
    noise = (powers[1] - powers[0] ** 2 / n) / (n * (n - 1))
    between = _sum_by(group, noise) ** 2 - _sum_by(group, noise**2)

    def estimates(value: np.ndarray, a: np.ndarray | float, b: np.ndarray | float, scale: np.ndarray) -> list[Estimate]:
        variance = _filled(_column_variance(n, powers, a, b), cells.count >= 4) / d**2
        averages = _average(units, value, variance, between, scale)
        return [Estimate(float(v), float(e)) for v, e in zip(*averages, strict=True)]

    plain = estimates(deviation**2 / d, (n - 1) / n, 1 / (2 * n), (size - 1) / size)
    corrected = estimates(deviation**2 / np.maximum(d - 1, 1) - noise / d, 1.0, 0.0, np.ones(len(size)))
    return [Spread(p, c) for p, c in zip(plain, corrected, strict=True)]


def _column_variance(n: np.ndarray, powers: np.ndarray, a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """Return each cell's part of the variance for the kernel a z_i z_j + b (z_i² + z_j²), (k, c).

    n: responses of each cell, (k, 1). powers: Σ z, Σ z², Σ z³ and Σ z⁴ over them, (4, k, c). Undefined for n < 4.
    """
    s1, s2, s3, s4 = powers
    squares = a**2 * (s2**2 - s4) + 4 * a * b * (s1 * s3 - s4) + 2 * b**2 * ((n - 1) * s4 + s2**2 - s4)
    p, q, r = a * s1, b * (n - 2) - a, b * s2  # the sum of row i is p z_i + q z_i² + r
    squared_rows = p**2 * s2 + q**2 * s4 + n * r**2 + 2 * (p * q * s3 + p * r * s1 + q * r * s2)
    with np.errstate(divide="ignore", invalid="ignore"):
        zeta_1, zeta_2 = _components(n, squares, squared_rows, a * (s1**2 - s2) + 2 * b * (n - 1) * s2)
        return 4 * zeta_1 / n + 2 * zeta_2 / (n * (n - 1))


def _sum_by(index: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sum (k,) or (k, c) values that share an index."""
    indicator = sparse.csr_array((np.ones(len(index)), (index, np.arange(len(index)))))
    return indicator @ values


def _covariance_square(
    cells: Cells, x: np.ndarray, w: np.ndarray, mean: np.ndarray, scale: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """Return tr((V W)²) with V the summed covariances of the means of the cells that share an index, W = diag(w)."""
    result = []
    cell_of_row = np.repeat(np.arange(len(index)), cells.count)
    rows_by_index = np.argsort(index[cell_of_row], kind="stable")
    for rows in np.split(rows_by_index, np.cumsum(np.bincount(index[cell_of_row]))[:-1]):
        cell = cell_of_row[rows]
        residual = ((x[rows] - mean[cell]) * np.sqrt(scale[cell])[:, None]).astype(np.float32)
        result.append(w @ (residual.T @ residual) ** 2 @ w)
    return np.array(result)
