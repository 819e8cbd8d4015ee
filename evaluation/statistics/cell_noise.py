"""The noise of a spread: variance components of each cell. Small cells borrow covariances from other cells.

A cell of n responses contributes 4 ζ₁ / n + 2 ζ₂ / (n (n−1)) to the variance of a spread between the cells of a
template (see `spread`). With Σ the covariance of the cell's responses, W the weights of the columns, and Δ the
difference between the means of the cell and of the other cells, the projection of the kernel is ⟨x, Δ⟩, so that

    ζ₁ = Δ' W Σ W Δ,    ζ₂ = tr(Σ W Σ W).

Unbiased estimates of ζ₁ and ζ₂ need four responses in the cell. Two or three responses are enough if ζ₁, or one factor
of ζ₂, uses Σ of other cells, because products of different cells have no bias from noise. The estimate of cell e is
Σ̂_e = R_e' R_e / (n_e − 1), with R_e the deviations of the cell's n_e responses from the cell's mean.

ζ₁ and ζ₂ are Hoeffding's variance components (W. Hoeffding, 1948, §5) of the U-statistic of the pairs of the cell's
responses, whose kernel is, up to a constant that does not affect variances,

    h_ij = ⟨r_i, r_j⟩ + l_i + l_j,    l_i = ⟨r_i, Δ⟩,

with r_i response i minus the cell's mean and ⟨·,·⟩ the scalar product with weights W. The r_i sum to 0, so
Σ_j ⟨r_i, r_j⟩ = 0 and Σ_i l_i = 0, and the components need only five sums. The only sum over pairs is
Σ_ij ⟨r_i, r_j⟩² = tr((R' R W)²), computed from n × n or from c × c products, whichever are fewer.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evenhand.evaluation.statistics.cells import Cells

Numbers = np.ndarray | float
ROUNDING = 1e-6  # relative size below which a float32 product counts as 0


@dataclass(frozen=True)
class PairSums:
    """Sums over the responses i of each cell and column, (k, c); c is 1 for a weighted sum of columns.

    Attributes:
        n: number of responses, (k, 1).
        linear: Σ_i l_i².
        mixed: Σ_i l_i q_i, with q_i = ⟨r_i, r_i⟩.
        squares: Σ_i q_i.
        fourth: Σ_i q_i².
        products: Σ_ij ⟨r_i, r_j⟩².
    """

    n: np.ndarray
    linear: np.ndarray
    mixed: np.ndarray
    squares: np.ndarray
    fourth: np.ndarray
    products: np.ndarray

    def variance(self, *, plain: bool = False) -> np.ndarray:
        """Return the variance of the mean of the kernel over pairs, 4 ζ₁ / n + 2 ζ₂ / (n (n−1)); undefined for n < 4.

        If `plain`, return the variance of the squared mean, which includes the square of each response. The kernel is
        then a ⟨r_i, r_j⟩ + l_i + l_j + b (q_i + q_j), with a = (n−1)/n and b = 1/2n.
        """
        n = self.n
        a = np.ones_like(n)
        b = np.zeros_like(n)
        if plain:
            a = (n - 1) / n
            b = 1 / (2 * n)
        spread = self.fourth - self.squares**2 / n
        linear = self.linear + 2 * b * self.mixed + b**2 * spread  # sum of squares of l_i + b (q_i − q̄)
        mixed = self.mixed + b * spread
        squared_pairs = a**2 * (self.products - self.fourth) + 2 * (n - 2) * linear - 4 * a * mixed
        squared_rows = a**2 * self.fourth - 2 * a * (n - 2) * mixed + (n - 2) ** 2 * linear
        with np.errstate(divide="ignore", invalid="ignore"):
            zeta_1, zeta_2 = components(n, squared_pairs, squared_rows, -a * self.squares)
            return 4 * zeta_1 / n + 2 * zeta_2 / (n * (n - 1))


def pair_sums(cells: Cells, w: np.ndarray, direction: np.ndarray) -> PairSums:
    """Return the sums over pairs of responses in each of k cells, for weights w, (c,), and directions Δ, (k, c)."""
    c = len(w)
    k = len(cells.count)
    linear = np.zeros(k)
    mixed = np.zeros(k)
    squares = np.zeros(k)
    fourth = np.zeros(k)
    products = np.zeros(k)
    for block in cells.blocks():
        deviations = block.deviations
        for n in np.unique(block.count):  # cells of one size form an array
            has_size = block.count == n
            cell = block.cells[has_size]
            r = deviations[np.repeat(has_size, block.count)].reshape(-1, n, c)
            weighted = r * w
            along = (weighted @ direction[cell][:, :, None])[:, :, 0]  # l_i
            q = np.einsum("knc,knc->kn", weighted, r)
            linear[cell] = (along**2).sum(axis=1)
            mixed[cell] = (along * q).sum(axis=1)
            squares[cell] = q.sum(axis=1)
            fourth[cell] = (q**2).sum(axis=1)
            if n <= c:
                products[cell] = ((weighted @ r.transpose(0, 2, 1)) ** 2).sum(axis=(1, 2))
            else:
                products[cell] = np.maximum(((r.transpose(0, 2, 1) @ r) ** 2 @ w) @ w, 0.0)  # not below 0 by rounding
    return PairSums(
        n=cells.count[:, None].astype(np.float64),
        linear=linear[:, None],
        mixed=mixed[:, None],
        squares=squares[:, None],
        fourth=fourth[:, None],
        products=products[:, None],
    )


def summed_products(cells: Cells, chosen: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
    """Return Σ_e scale_e R_e' R_e over the chosen cells e, (c, c), computed in float32 and summed in float64."""
    total = None
    for block in cells.blocks(chosen):
        residual = block.deviations
        if scale is not None:
            residual = residual * np.sqrt(block.per_row(scale))[:, None]
        residual = residual.astype(np.float32)
        product = residual.T @ residual
        total = product if total is None else np.add(total, product, dtype=np.float64)
    if total is None:
        raise ValueError("there is no cell to sum over")
    return total


def components(n: Numbers, squares: Numbers, squared_rows: Numbers, total: Numbers) -> tuple[Numbers, Numbers]:
    """Return unbiased estimates of the variance components ζ₁ and ζ₂ of a kernel h from sums over n ≥ 4 responses.

    ζ₁ = Var(E[h(X₁, X₂) | X₁]), and ζ₂ is the variance of the remainder of h (Hoeffding 1948, §5). E h₁₂², E h₁₂h₂₃
    and E h₁₂h₃₄ are estimated by averages over distinct indices. Both estimates may be negative by noise.

    Args:
        n: number of responses.
        squares, squared_rows, total: Σ h_ij², Σ_i (Σ_j h_ij)² and Σ h_ij, over i ≠ j.
    """
    triples = squared_rows - squares
    quadruples = total**2 - 4 * triples - 2 * squares
    same = squares / (n * (n - 1))
    overlapping = triples / (n * (n - 1) * (n - 2))
    disjoint = quadruples / (n * (n - 1) * (n - 2) * (n - 3))
    return overlapping - disjoint, same - 2 * overlapping + disjoint


@dataclass(frozen=True)
class CellNoise:
    """Noise of each cell and column, (k, c), with a covariance Σ̄ estimated from other cells.

    Attributes:
        n: number of responses of the cell, (k, 1).
        along: Δ' W Σ̄ W Δ, including the noise of Δ; along − pairs / n estimates ζ₁.
        pairs: tr(Σ̄ W Σ̂ W), an estimate of ζ₂.
    """

    n: np.ndarray
    along: np.ndarray
    pairs: np.ndarray

    @property
    def pair_variance(self) -> np.ndarray:
        """The term 2 ζ₂ / (n (n−1)) of each cell in the variance of a spread; it does not depend on the spread."""
        return 2 * self.pairs / (self.n * (self.n - 1))

    @property
    def linear_variance(self) -> np.ndarray:
        """The term 4 ζ₁ / n of each cell in the variance of a spread; it grows with the spread."""
        return 4 * (self.along - self.pairs / self.n) / self.n


def covariance_square(cells: Cells, w: np.ndarray, scale: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return tr((V W)²) of each group of cells e, (m, 1), with W = diag(w) and V = Σ_e scale_e R_e' R_e."""
    squares = [w @ summed_products(cells, group, scale) ** 2 @ w for group in _groups(index)]
    return np.array(squares)[:, None]


def borrowed_noise(cells: Cells, w: np.ndarray, deviation: np.ndarray, pairs: PairSums) -> tuple[CellNoise, CellNoise]:
    """Return two estimates of each cell's noise, (k, 1): one that is never negative, and one for small cells.

    `deviation` is Δ of each cell, (k, c), and `pairs` the `pair_sums` for it. `borrowed` defines the two estimates.
    """
    of_cell = np.stack([pairs.linear, pairs.products / (pairs.n - 1), pairs.n - 1])

    def sum_others(index: np.ndarray) -> np.ndarray:
        return np.maximum(_products(cells, w, deviation, index) - of_cell, 0.0)

    return borrowed(cells, sum_others, pairs.n)


def borrowed(
    cells: Cells, sum_others: Callable[[np.ndarray], np.ndarray], n: np.ndarray
) -> tuple[CellNoise, CellNoise]:
    """Return two estimates of each cell's noise, (k, c): one that is never negative, and one for small cells.

    The first estimate uses the covariance Σ̄ of the template's other cells. The second estimate adds the mean covariance
    of the template's other cells and the mean covariance of the descriptor's other cells, and subtracts the mean
    covariance of all remaining cells. The second estimate is unbiased if the effects of templates and descriptors on
    the covariance are additive.

    Args:
        cells: responses by cell.
        sum_others: function of the group of each cell, (k,), that returns three sums over the other cells e of the
            group, (3, k, c): Δ' W R_e' R_e W Δ, tr(R_e' R_e W Σ̂ W), and the degrees of freedom n_e − 1.
        n: number of responses of each cell, (k, 1).
    """
    template = np.unique(cells.template, return_inverse=True)[1]
    of_template = sum_others(template)
    alike = _means(of_template)
    for part in alike:  # cells without other cells get the mean of the known estimates
        is_known = np.isfinite(part).all(axis=1)
        part[~is_known] = part[is_known].mean(axis=0) if is_known.any() else np.nan
    from_template = CellNoise(n, along=alike[0], pairs=alike[1])
    has_small_cells = (cells.count < 4).any()
    if not has_small_cells or template.max(initial=0) < 1:
        return from_template, from_template
    descriptor = np.unique(cells.descriptor, return_inverse=True)[1]
    of_descriptor = sum_others(descriptor)
    of_rest = sum_others(np.zeros_like(template)) - of_template - of_descriptor
    additive = _means(of_template) + _means(of_descriptor) - _means(np.maximum(of_rest, 0.0))
    small = np.where(np.isfinite(additive), additive, alike)
    return from_template, CellNoise(n, along=small[0], pairs=small[1])


def _means(sums: np.ndarray) -> np.ndarray:
    """Return the first two of three sums divided by the third, (2, k, c); NaN where the third sum is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[2] > 0, sums[:2] / sums[2], np.nan)


def cell_variances(cells: Cells, pairs: PairSums, small: CellNoise) -> tuple[np.ndarray, np.ndarray]:
    """Return each cell's contribution to the variances of the corrected and of the plain spread, (k, c) each.

    Cells of four responses or more have contributions of their own (`pairs`), and smaller cells those from other cells
    (`small`). The plain spread includes the square of a mean of n responses. To the variance of this square, if
    deviations are normal, pairs of responses contribute (n − 1) 2 ζ₂ / n³ and single responses contribute 2 ζ₂ / n³.
    """
    is_small = (cells.count < 4)[:, None]
    linear = small.linear_variance
    corrected = np.where(is_small, linear + small.pair_variance, pairs.variance())
    plain = np.where(is_small, linear + 2 * small.pairs / small.n**2, pairs.variance(plain=True))
    return corrected, plain


def noise_freedom(cells: Cells, size: np.ndarray) -> np.ndarray:
    """Return the degrees of freedom of the noise estimate, (c,), at least 2, from the size of each cell's Σ̂, (k, c).

    The result is the smaller of Σ (n − 1) over the k cells and 2 k / CV², with CV the coefficient of variation of the
    sizes (Satterthwaite 1946). 2 k / CV² is smaller where nearly all responses have one style and a few cells
    contribute most of the noise.
    """
    k = len(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        from_sizes = 2 * k * size.mean(axis=0) ** 2 / size.var(axis=0, ddof=1)
    return np.fmin(from_sizes, float((cells.count - 1).sum()))


def _products(cells: Cells, w: np.ndarray, direction: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the three sums of `borrowed` for each cell, (3, k, 1), over all cells with its `index`, (k,)."""
    k = len(cells.count)
    along = np.zeros(k)
    pairs = np.zeros(k)
    freedom = np.zeros(k)
    # W = root · sign · root: the products are computed with columns times the roots, and with the signs apart.
    root = np.sqrt(np.abs(w))
    sign = np.sign(w).astype(np.float32)
    roots = np.outer(root, root).astype(np.float32)
    signed_direction = direction * root * sign
    for group in _groups(index):
        square = (summed_products(cells, group) * roots).astype(np.float32, copy=False)
        along[group] = ((signed_direction[group] @ square) * signed_direction[group]).sum(axis=1)
        for block in cells.blocks(group):
            residual = (block.deviations * root).astype(np.float32)
            signed = residual * sign
            products = ((signed @ square) * signed).sum(axis=1, dtype=np.float64)
            largest = (residual**2).sum(axis=1, dtype=np.float64) * np.trace(square)
            products[products < ROUNDING * largest] = 0.0
            pairs[block.cells] = block.sum_by_cell(products) / (block.count - 1.0)
        freedom[group] = (cells.count[group] - 1.0).sum()
    return np.stack([along, pairs, freedom])[:, :, None]


def _groups(index: np.ndarray) -> list[np.ndarray]:
    """Return the cells of each value of `index`, in ascending order of the values."""
    by_value = np.argsort(index, kind="stable")
    ends = np.cumsum(np.bincount(index))
    return np.split(by_value, ends[:-1])
