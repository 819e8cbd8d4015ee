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
PERMUTED_DIRECTIONS = 32
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
        half = stats.norm.ppf((1 + CONFIDENCE) / 2) * self.standard_error
        return (float(self.value - half), float(self.value + half))

    @property
    def p_value(self) -> float | None:
        """Two-sided p-value of a true value of 0, or None."""
        if not self.variance > 0:
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


@dataclass(frozen=True)
class Spread:
    """The variance of a mean style vector between descriptors: as the paper has it, and with the noise removed.

    `plain` is what it says at this number of responses per cell (ddof = 0); its interval covers its own expectation,
    which exceeds the true spread. `corrected` is unbiased for the true spread (ddof = 1), slightly negative at times.
    """

    plain: Estimate
    corrected: Estimate


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

    # A unit is what is compared with its peers: a descriptor, within one template or (pooled) over all.
    group = np.zeros_like(cells.template) if pooled else np.unique(cells.template, return_inverse=True)[1]
    key = group * (int(cells.descriptor.max(initial=0)) + 1) + cells.descriptor
    _, first, unit = np.unique(key, return_index=True, return_inverse=True)
    unit_group = group[first]
    units_in_group = np.bincount(unit_group)
    if units_in_group.max(initial=0) < 2:
        return Spread(Estimate(np.nan, np.nan), Estimate(np.nan, np.nan))

    share = 1.0 / np.bincount(unit)[unit]
    mean = np.add.reduceat(x, cells.start, axis=0, dtype=np.float64) / cells.count[:, None]
    unit_mean = _sum_by(unit, mean * share[:, None])
    d = units_in_group[unit_group].astype(np.float64)
    deviation = unit_mean - _sum_by(unit_group, unit_mean / d[:, None])[unit_group]
    # The reference of each unit is the mean of its peers, without itself, so that the two are independent.
    peers = unit_mean - deviation * (d / np.maximum(d - 1, 1))[:, None]
    corrected, plain, noise, block = _pair_components(cells, x, w, unit, share, unit_mean, peers)

    # tr(V V') summed over pairs of different cells of one unit (0 unless pooled), and of different units of a group.
    scale = share**2 / (cells.count * (cells.count - 1.0))
    per_unit = _covariance_square(cells, x, w, mean, scale, unit) if pooled else block
    per_group = _covariance_square(cells, x, w, mean, scale, group)
    within_units = per_unit - _sum_by(unit, block)
    between_units = per_group - _sum_by(unit_group, per_unit)

    compared = units_in_group >= 2

    def average(unit_value: np.ndarray, cell_variance: np.ndarray, scale: np.ndarray) -> Estimate:
        # The linear part was measured against references that are noisy themselves. Taking their noise out again
        # turns the +2 within_units of the variance into −2, and the +2 between_units into −2.
        unit_variance = (_sum_by(unit, cell_variance) - 2 * within_units) / d**2
        pairs = np.maximum(units_in_group * (units_in_group - 1.0), 1)
        variance = (_sum_by(unit_group, unit_variance) - 2 * between_units / pairs**2) * scale**2
        value = _sum_by(unit_group, unit_value)
        return Estimate(float(value[compared].mean()), float(variance[compared].sum() / compared.sum() ** 2))

    squares = deviation**2 @ w
    return Spread(
        plain=average(squares / d, plain, (units_in_group - 1) / units_in_group),
        corrected=average(
            squares / np.maximum(d - 1, 1) - _sum_by(unit, noise) / d, corrected, np.ones(len(units_in_group))
        ),
    )


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
    for part in (corrected, plain):
        known = np.isfinite(part)
        part[~known] = part[known].mean() if known.any() else np.nan
    return corrected, plain, noise, block


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
    size = np.bincount(group)
    if size.max(initial=0) < 2:
        return [Spread(Estimate(np.nan, np.nan), Estimate(np.nan, np.nan))] * x.shape[1]
    n, d = cells.count[:, None].astype(np.float64), size[group][:, None].astype(np.float64)
    mean = np.add.reduceat(x, cells.start, axis=0) / n
    deviation = mean - _sum_by(group, mean / d)[group]
    z = x - np.repeat(mean - deviation * (d / np.maximum(d - 1, 1)), cells.count, axis=0)
    s1, s2, s3, s4 = (np.add.reduceat(z**power, cells.start, axis=0) for power in (1, 2, 3, 4))
    noise = (s2 - s1**2 / n) / (n * (n - 1))

    def variance(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
        """The cell's part for the kernel a z_i z_j + b (z_i² + z_j²)."""
        squares = a**2 * (s2**2 - s4) + 4 * a * b * (s1 * s3 - s4) + 2 * b**2 * ((n - 1) * s4 + s2**2 - s4)
        p, q, r = a * s1, b * (n - 2) - a, b * s2  # the sum of row i is p z_i + q z_i² + r
        squared_rows = p**2 * s2 + q**2 * s4 + n * r**2 + 2 * (p * q * s3 + p * r * s1 + q * r * s2)
        with np.errstate(divide="ignore", invalid="ignore"):
            zeta_1, zeta_2 = _components(n, squares, squared_rows, a * (s1**2 - s2) + 2 * b * (n - 1) * s2)
            part = 4 * zeta_1 / n + 2 * zeta_2 / (n * (n - 1))
        enough = cells.count >= 4
        part[~enough] = part[enough].mean(axis=0) if enough.any() else np.nan
        return part

    compared = size >= 2
    between = _sum_by(group, noise) ** 2 - _sum_by(group, noise**2)
    pairs = np.maximum(size * (size - 1.0), 1)[:, None]

    def average(unit_value: np.ndarray, part: np.ndarray, scale: np.ndarray) -> list[Estimate]:
        of_group = (_sum_by(group, part / d**2) - 2 * between / pairs**2) * scale[:, None] ** 2
        variance = of_group[compared].sum(axis=0) / compared.sum() ** 2
        value = _sum_by(group, unit_value)[compared].mean(axis=0)
        return [Estimate(float(v), float(e)) for v, e in zip(value, variance, strict=True)]

    plain = average(deviation**2 / d, variance((n - 1) / n, 1 / (2 * n)), (size - 1) / size)
    corrected = average(deviation**2 / np.maximum(d - 1, 1) - noise / d, variance(1.0, 0.0), np.ones(len(size)))
    return [Spread(p, c) for p, c in zip(plain, corrected, strict=True)]


def permutation_p_value(cells: Cells, permutations: int, rng: np.random.Generator) -> float:
    """Test "the style of a response does not depend on the descriptor": shuffle responses within each template.

    The statistic is the spread of the descriptors' means over templates, in the 32 directions in which responses vary
    most (which shuffling does not change). Under the hypothesis responses to one template are exchangeable, so the
    test is exact. Resolution: 1 / (permutations + 1).
    """
    code = np.repeat(cells.descriptor, cells.count)
    template = np.repeat(cells.template, cells.count)
    weight = np.repeat(1.0 / (cells.count * np.bincount(cells.descriptor)[cells.descriptor]), cells.count)
    vectors = _leading_directions(np.ascontiguousarray(cells.vectors, dtype=np.float32), PERMUTED_DIRECTIONS)
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


def _leading_directions(vectors: np.ndarray, n: int) -> np.ndarray:
    """Return the vectors (rows, c) in their n directions of largest variance, or as they are if c is no larger."""
    if vectors.shape[1] <= n:
        return vectors
    centred = vectors - vectors.mean(axis=0)
    return centred @ np.linalg.eigh(centred.T @ centred)[1][:, -n:]


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


def codes(values: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return integer codes (n,) and the sorted names they stand for."""
    names, code = np.unique(np.asarray(values, dtype=object).astype(str), return_inverse=True)
    return code, names.tolist()


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Return p-values adjusted for their number, (n,): each is at most α where the family-wise error is kept at α.

    Holm (1979), "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6(2).
    Holds whatever the dependence between the tests. No p-value may be NaN.

    >>> holm([0.01, 0.04, 0.03]).tolist()  # 3 × 0.01; 2 × 0.03; 1 × 0.04, but no less than the one before
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return adjusted
