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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse, stats

CONFIDENCE = 0.95
ELEMENTS_AT_ONCE = 1 << 23  # float64 numbers held by one batch of pairwise products: 64 MiB


@dataclass(frozen=True)
class Estimate:
    """An estimate with its standard error (NaN where too few responses per cell allow none)."""

    value: float
    standard_error: float

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval by the normal approximation, or None."""
        if not np.isfinite(self.standard_error):
            return None
        half = stats.norm.ppf((1 + CONFIDENCE) / 2) * self.standard_error
        return (self.value - half, self.value + half)

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value of a true value of 0, or None."""
        if not self.standard_error > 0:
            return None
        return float(2 * stats.norm.sf(abs(self.value) / self.standard_error))


@dataclass(frozen=True)
class Cells:
    """Responses sorted by cell: all responses to one (template, descriptor) pair lie together.

    vectors: (n, c); start, count, template, descriptor: (k,) for the k cells that have at least two responses;
    n_left_out: the rows that are not in such a cell, or whose vector is undefined (NaN).
    """

    vectors: np.ndarray
    start: np.ndarray
    count: np.ndarray
    template: np.ndarray
    descriptor: np.ndarray
    n_left_out: int

    @property
    def n(self) -> int:
        """The number of responses in the cells."""
        return len(self.vectors)


def arrange_cells(vectors: np.ndarray, template: np.ndarray, descriptor: np.ndarray) -> Cells:
    """Sort (n, c) vectors into cells by (n,) integer codes of template and descriptor."""
    usable = np.isfinite(vectors).all(axis=1)
    cell = descriptor.astype(np.int64) * (int(template.max(initial=0)) + 1) + template
    size = np.bincount(cell[usable], minlength=int(cell.max(initial=0)) + 1)
    usable &= size[cell] >= 2
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(cell[rows], kind="stable")]
    _, start, count = np.unique(cell[rows], return_index=True, return_counts=True)
    first = rows[start]
    return Cells(vectors[rows], start, count, template[first], descriptor[first], len(vectors) - len(rows))


def complete_descriptors(cells: Cells) -> Cells:
    """Keep the descriptors that have a cell for every template, so that their means over templates compare."""
    per_descriptor = np.bincount(cells.descriptor)
    kept = per_descriptor[cells.descriptor] == len(np.unique(cells.template))
    return keep_cells(cells, kept)


def keep_cells(cells: Cells, kept: np.ndarray) -> Cells:
    """Return the cells where the (k,) mask is true; the rows of the others count as left out."""
    if kept.all():
        return cells
    rows = np.repeat(kept, cells.count)
    count = cells.count[kept]
    return Cells(
        cells.vectors[rows],
        np.concatenate([[0], np.cumsum(count)[:-1]]).astype(cells.start.dtype),
        count,
        cells.template[kept],
        cells.descriptor[kept],
        cells.n_left_out + int((~rows).sum()),
    )


def cell_means(cells: Cells) -> np.ndarray:
    """Return the (k, c) means of the cells."""
    return np.add.reduceat(cells.vectors, cells.start, axis=0, dtype=np.float64) / cells.count[:, None]


def descriptor_spread(
    cells: Cells, weights: np.ndarray | None = None, *, pooled: bool = False, corrected: bool = True
) -> Estimate:
    """Estimate Σ_c w_c × the variance of column c's mean between descriptors.

    Args:
        cells: responses by cell, (n, c).
        weights: (c,), default all 1. A 0/1 mask picks styles (PGB). With the columns of two runs side by side,
            +1 and −1 give the difference of the two runs, paired by prompt, with the standard error of a paired
            comparison: the estimate is linear in the weights, and its variance is a quadratic form in them.
        pooled: False: the variance within each template, averaged over templates (FGB, 002 A.7). True: the variance
            of the descriptors' means over all templates (the spread of m_d, 002 C.1).
        corrected: True: noise removed, ddof = 1, unbiased for iid responses. False: as the paper has it, ddof = 0.

    Returns:
        The estimate. NaN if fewer than two descriptors can be compared. The standard error is NaN if no cell has
        the four responses that an unbiased variance needs; cells with two or three take the mean of those with four.
    """
    weights = np.ones(cells.vectors.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    used = np.flatnonzero(weights)
    x, w = np.ascontiguousarray(cells.vectors[:, used], dtype=np.float64), weights[used]

    # A unit is what is compared with its peers: a descriptor, within one template or (pooled) over all.
    group = np.zeros_like(cells.template) if pooled else np.unique(cells.template, return_inverse=True)[1]
    unit_key, unit = np.unique(group * (cells.descriptor.max(initial=0) + 1) + cells.descriptor, return_inverse=True)
    cells_in_unit = np.bincount(unit)
    unit_group = group[np.unique(unit, return_index=True)[1]] if len(unit_key) else np.zeros(0, dtype=np.int64)
    units_in_group = np.bincount(unit_group)
    if len(units_in_group) == 0 or units_in_group.max() < 2:
        return Estimate(np.nan, np.nan)

    count, share = cells.count[:, None], 1.0 / cells_in_unit[unit]
    mean = np.add.reduceat(x, cells.start, axis=0) / count
    residual = x - np.repeat(mean, cells.count, axis=0)
    # Scaled so that the sum of r rᵀ over a cell is its share of the covariance of the unit's mean.
    residual *= np.repeat(share / np.sqrt(cells.count * (cells.count - 1.0)), cells.count)[:, None]
    unit_mean = _sum_by(unit, mean * share[:, None])
    noise = _sum_by(unit, np.add.reduceat(residual**2, cells.start, axis=0))
    d = units_in_group[unit_group][:, None].astype(np.float64)
    comparable = d[:, 0] >= 2

    group_mean = _sum_by(unit_group, unit_mean / d)
    deviation = unit_mean - group_mean[unit_group]
    d_less_1 = np.maximum(d - 1, 1)
    unit_value = deviation**2 / d_less_1 - noise / d if corrected else deviation**2 / d
    n_groups = int((units_in_group >= 2).sum())
    value = float((unit_value[comparable] @ w).sum() / n_groups)

    # The reference of each unit is the mean of its peers, without itself, so that the two are independent.
    peers = unit_mean - deviation * (d / d_less_1)
    zeta_1, zeta_2, block = _pair_components(cells, x, w, residual, unit, share, unit_mean, peers, corrected)
    per_unit = _covariance_square(residual, w, np.repeat(unit, cells.count)) if pooled else _sum_by(unit, block)
    per_group = _covariance_square(residual, w, np.repeat(group, cells.count))
    within_unit = per_unit - _sum_by(unit, block)  # Σ over pairs of different cells of one descriptor; 0 unless pooled
    between = 2 * (per_group - _sum_by(unit_group, per_unit)) / np.maximum(units_in_group**2 * (units_in_group - 1.0) ** 2, 1)
    # The linear part was measured against references that are noisy themselves: their noise is taken out again,
    # which turns +2·within_unit into −2·within_unit and +between into −between.
    cell_part = 4 * zeta_1 / cells.count + 2 * zeta_2 / (cells.count * (cells.count - 1.0))
    unit_variance = (_sum_by(unit, cell_part) - 2 * within_unit) / d[:, 0] ** 2
    scale = 1.0 if corrected else (units_in_group - 1) / units_in_group
    group_variance = (_sum_by(unit_group, unit_variance) - between) * scale**2
    variance = float(group_variance[units_in_group >= 2].sum() / n_groups**2)
    return Estimate(value, np.sqrt(max(variance, 0.0)) if np.isfinite(variance) else np.nan)


def _pair_components(
    cells: Cells,
    x: np.ndarray,
    w: np.ndarray,
    residual: np.ndarray,
    unit: np.ndarray,
    share: np.ndarray,
    unit_mean: np.ndarray,
    peers: np.ndarray,
    corrected: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ζ₁, ζ₂ and ‖covariance of the cell's mean‖² of each cell, all (k,).

    Within a unit, the pairs that touch one cell form a U-statistic with kernel
    share² ⟨z_i, z_j⟩ + share (f_i + f_j), where z = x − peers and f_i = ⟨z_i, what the other cells contribute⟩.
    """
    k, width = len(cells.count), x.shape[1]
    zeta_1, zeta_2, block = np.empty(k), np.empty(k), np.empty(k)
    for n in np.unique(cells.count):
        same_size = np.flatnonzero(cells.count == n)
        for chosen in np.array_split(same_size, -(-len(same_size) * n * (n + width) // ELEMENTS_AT_ONCE)):
            rows = cells.start[chosen][:, None] + np.arange(n)
            z = x[rows] - peers[unit[chosen]][:, None]
            s = share[chosen][:, None, None]
            others = (unit_mean - peers)[unit[chosen]] - z.mean(axis=1) * s[:, 0]
            f = (z @ (others * w)[:, :, None])[:, :, 0] * s[:, 0]
            products = (z * w) @ z.transpose(0, 2, 1) * s**2
            kernel = products + f[:, :, None] + f[:, None, :]
            if not corrected:  # the plain square of the cell mean holds each response's square too
                squares = np.diagonal(products, axis1=1, axis2=2)
                kernel += (squares[:, :, None] + squares[:, None, :]) / (2 * n) - products / n
            r = residual[rows]
            block[chosen] = (((r * w) @ r.transpose(0, 2, 1)) ** 2).sum(axis=(1, 2))
            zeta_1[chosen], zeta_2[chosen] = hoeffding_components(kernel) if n >= 4 else (np.nan, np.nan)
    for part in (zeta_1, zeta_2):
        known = np.isfinite(part)
        part[~known] = part[known].mean() if known.any() else np.nan
    return zeta_1, zeta_2, block


def hoeffding_components(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return unbiased estimates of a U-statistic's variance components from its (…, n, n) kernel values, n ≥ 4.

    ζ₁ = Var(E[h(X₁, X₂) | X₁]) and ζ₂ = Var of the rest, so that the mean of h over pairs has variance
    4 ζ₁ / n + 2 ζ₂ / (n (n−1)) (Hoeffding 1948, §5). E h₁₂², E h₁₂h₂₃ and E h₁₂h₃₄ are averages over distinct
    indices; the diagonal is ignored. Both may come out negative by noise.
    """
    n = kernel.shape[-1]
    off = kernel * (1 - np.eye(n))
    row = off.sum(axis=-1)
    pairs = (off**2).sum(axis=(-2, -1))
    triples = (row**2).sum(axis=-1) - pairs
    quadruples = row.sum(axis=-1) ** 2 - 4 * triples - 2 * pairs
    same = pairs / (n * (n - 1))
    overlapping = triples / (n * (n - 1) * (n - 2))
    disjoint = quadruples / (n * (n - 1) * (n - 2) * (n - 3))
    return overlapping - disjoint, same - 2 * overlapping + disjoint


def permutation_p_value(cells: Cells, permutations: int, rng: np.random.Generator) -> float:
    """Test "the style of a response does not depend on the descriptor": shuffle responses within each template.

    The statistic is the spread of the descriptors' means over templates. Under the hypothesis responses to one
    template are exchangeable, so the test is exact. Resolution: 1 / (permutations + 1).
    """
    code = np.repeat(cells.descriptor, cells.count)
    template = np.repeat(cells.template, cells.count)
    weight = np.repeat(1.0 / (cells.count * np.bincount(cells.descriptor)[cells.descriptor]), cells.count)
    vectors = np.ascontiguousarray(cells.vectors, dtype=np.float32)
    by_template = [np.flatnonzero(template == t) for t in np.unique(template)]
    present = np.unique(code)

    def spread(order: np.ndarray) -> float:
        sums = sparse.csr_array((weight.astype(np.float32), (code, order)), shape=(code.max() + 1, len(code))) @ vectors
        return float(sums[present].var(axis=0, dtype=np.float64).sum())

    order = np.arange(len(code))
    observed, at_least = spread(order), 0
    for _ in range(permutations):
        for rows in by_template:
            order[rows] = rng.permutation(rows)
        at_least += spread(order) >= observed
    return (1 + at_least) / (1 + permutations)


def _sum_by(index: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sum (k,) or (k, c) values that share an index."""
    indicator = sparse.csr_array((np.ones(len(index)), (index, np.arange(len(index)))))
    return indicator @ values


def _covariance_square(residual: np.ndarray, w: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return tr((V W)²) with V = Σ r rᵀ over the rows that share an index, W = diag(w)."""
    order = np.argsort(index, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(index))[:-1])
    covariances = (residual[rows].T @ residual[rows] for rows in parts)
    return np.array([w @ covariance**2 @ w for covariance in covariances])


def codes(values: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return integer codes (n,) and the sorted names they stand for."""
    names, code = np.unique(np.asarray(values, dtype=object).astype(str), return_inverse=True)
    return code, names.tolist()
