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

ROUNDING = 1e-6  # relative size below which a float32 product counts as 0


@dataclass(frozen=True)
class PairSums:
    """Sums over the responses i of each cell, (k,), or of each cell and column, (k, c).

    Attributes:
        n: number of responses, (k,) or (k, 1).
        linear: Σ_i l_i².
        mixed: Σ_i l_i q_i, with q_i = ⟨r_i, r_i⟩.
        own: Σ_i q_i.
        own_squares: Σ_i q_i².
        products: Σ_ij ⟨r_i, r_j⟩².
    """

    n: np.ndarray
    linear: np.ndarray
    mixed: np.ndarray
    own: np.ndarray
    own_squares: np.ndarray
    products: np.ndarray

    def variance(self, *, plain: bool = False) -> np.ndarray:
        """Return the variance of the mean of the kernel over pairs, 4 ζ₁ / n + 2 ζ₂ / (n (n−1)); undefined for n < 4.

        If `plain`, return the variance of the squared mean, which includes the square of each response. The kernel is
        then (n−1)/n ⟨r_i, r_j⟩ + l_i + l_j + (q_i + q_j) / 2n.
        """
        n = self.n
        a, b = ((n - 1) / n, 1 / (2 * n)) if plain else (1.0, 0.0)
        spread = self.own_squares - self.own**2 / n
        linear = self.linear + 2 * b * self.mixed + b**2 * spread  # sum of squares of l_i + b (q_i − q̄)
        mixed = self.mixed + b * spread
        squares = a**2 * (self.products - self.own_squares) + 2 * (n - 2) * linear - 4 * a * mixed
        squared_rows = a**2 * self.own_squares - 2 * a * (n - 2) * mixed + (n - 2) ** 2 * linear
        with np.errstate(divide="ignore", invalid="ignore"):
            zeta_1, zeta_2 = components(n, squares, squared_rows, -a * self.own)
            return 4 * zeta_1 / n + 2 * zeta_2 / (n * (n - 1))


def pair_sums(cells: Cells, w: np.ndarray, direction: np.ndarray) -> PairSums:
    """Return the sums over pairs of responses in each of k cells, for weights w, (c,), and directions Δ, (k, c)."""
    c = len(w)
    sums, of_pairs = np.zeros((4, len(cells.count))), np.zeros(len(cells.count))
    for block in cells.blocks():
        deviations = block.deviations
        for n in np.unique(block.count):
            same = block.count == n
            cell, r = block.cells[same], deviations[np.repeat(same, block.count)].reshape(-1, n, c)
            weighted = r * w
            along, own = (weighted @ direction[cell][:, :, None])[:, :, 0], np.einsum("knc,knc->kn", weighted, r)
            for place, values in enumerate((along**2, along * own, own, own**2)):
                sums[place, cell] = values.sum(axis=1)
            if n <= c:
                of_pairs[cell] = ((weighted @ r.transpose(0, 2, 1)) ** 2).sum(axis=(1, 2))
            else:
                of_pairs[cell] = np.maximum(((r.transpose(0, 2, 1) @ r) ** 2 @ w) @ w, 0.0)  # not below 0 by rounding
    return PairSums(cells.count.astype(np.float64), *sums, of_pairs)


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
    return total


def components(
    n: np.ndarray | int, squares: np.ndarray, squared_rows: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
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
    """Noise of each cell, (k,), or of each cell and column, (k, c), with a covariance Σ̄ estimated from other cells.

    Attributes:
        n: number of responses of the cell.
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
    """Return tr((V W)²) of each group of cells, (m,), with W = diag(w) and V = Σ_e scale_e R_e' R_e over its cells."""
    return np.array([w @ summed_products(cells, group, scale) ** 2 @ w for group in _groups(index)])


def borrowed_noise(cells: Cells, w: np.ndarray, deviation: np.ndarray, pairs: PairSums) -> tuple[CellNoise, CellNoise]:
    """Return two estimates of each cell's noise: one that is never negative, and one for small cells.

    The first estimate uses the covariance Σ̄ of the template's other cells. The second estimate adds the mean covariance
    of the template's other cells and the mean covariance of the descriptor's other cells, and subtracts the mean
    covariance of all remaining cells. The second estimate is unbiased if the effects of templates and descriptors on
    the covariance are additive. `deviation` is Δ of each cell, (k, c), and `pairs` the `pair_sums` for it.
    """
    own = np.stack([pairs.linear, pairs.products / (pairs.n - 1), pairs.n - 1])

    def sum_others(index: np.ndarray) -> np.ndarray:
        return np.maximum(_products(cells, w, deviation, index) - own, 0.0)

    return borrowed(cells, sum_others, cells.count.astype(np.float64))


def borrowed(
    cells: Cells, sum_others: Callable[[np.ndarray], np.ndarray], n: np.ndarray
) -> tuple[CellNoise, CellNoise]:
    """Return the two noise estimates of `borrowed_noise` from sums over the other cells of a template or descriptor.

    `sum_others` is a function of the group of each cell, (k,), that returns three sums over the other cells e of the
    group, (3, k) or (3, k, c): Δ' W R_e' R_e W Δ, tr(R_e' R_e W Σ̂ W), and the degrees of freedom n_e − 1. `n` is the
    number of responses of each cell, (k,) or (k, 1).
    """
    template = np.unique(cells.template, return_inverse=True)[1]
    of_template = sum_others(template)

    def noise(part: np.ndarray) -> CellNoise:
        return CellNoise(n, part[0], part[1])

    alike = _mean(of_template)
    for part in alike:  # cells without other cells get the mean of the known estimates
        known = np.isfinite(part).reshape(len(n), -1).all(axis=1)
        part[~known] = part[known].mean(axis=0) if known.any() else np.nan
    if not (cells.count < 4).any() or template.max(initial=0) < 1:
        return noise(alike), noise(alike)
    of_descriptor = sum_others(np.unique(cells.descriptor, return_inverse=True)[1])
    rest = sum_others(np.zeros_like(template)) - of_template - of_descriptor
    additive = _mean(of_template) + _mean(of_descriptor) - _mean(np.maximum(rest, 0.0))
    return noise(alike), noise(np.where(np.isfinite(additive), additive, alike))


def _mean(sums: np.ndarray) -> np.ndarray:
    """Return the first two sums divided by the third; NaN where the third sum is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[2] > 0, sums[:2] / sums[2], np.nan)


def with_small(
    cells: Cells, variances: tuple[np.ndarray, np.ndarray], linear: np.ndarray, small: CellNoise
) -> tuple[np.ndarray, np.ndarray]:
    """Return each cell's contribution to the variances of the corrected and of the plain spread.

    Cells of two or three responses get estimates from other cells. The plain spread includes the square of a mean of n
    responses. To the variance of this square, if deviations are normal, pairs of responses contribute
    (n − 1) 2 ζ₂ / n³ and single responses contribute 2 ζ₂ / n³. `variances` are from the cell alone, `small` and
    `linear`, 4 ζ₁ / n, are from other cells.
    """
    corrected, plain = variances
    few = cells.count < 4
    few = few.reshape(-1, *[1] * (corrected.ndim - 1))
    return (
        np.where(few, linear + small.pair_variance, corrected),
        np.where(few, linear + 2 * small.pairs / small.n**2, plain),
    )


def noise_freedom(cells: Cells, size: np.ndarray) -> np.ndarray:
    """Return the degrees of freedom of the noise estimate, (c,), at least 2, from the size of each cell's Σ̂, (k, c).

    The result is the smaller of Σ (n − 1) over the k cells and 2 k / CV², with CV the coefficient of variation of the
    sizes (Satterthwaite 1946). 2 k / CV² is smaller where nearly all responses have one style and a few cells
    contribute most of the noise.
    """
    k, mean = len(size), size.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.fmin(2 * k * mean**2 / size.var(axis=0, ddof=1), float((cells.count - 1).sum()))


def _products(
    cells: Cells, w: np.ndarray, direction: np.ndarray, index: np.ndarray, scale: np.ndarray | None = None
) -> np.ndarray:
    """Return the three sums of `borrowed` for each cell, (3, k), over all cells with its `index`, times `scale`."""
    result, freedom = np.zeros((3, len(cells.count))), cells.count - 1.0
    root, sign = np.sqrt(np.abs(w)), np.sign(w).astype(np.float32)
    direction, roots = direction * root * sign, np.outer(root, root).astype(np.float32)
    for group in _groups(index):
        square = (summed_products(cells, group, scale) * roots).astype(np.float32, copy=False)
        result[0, group] = ((direction[group] @ square) * direction[group]).sum(axis=1)
        for block in cells.blocks(group):
            residual = (block.deviations * root).astype(np.float32)
            signed = residual * sign
            products = ((signed @ square) * signed).sum(axis=1, dtype=np.float64)
            largest = (residual**2).sum(axis=1, dtype=np.float64) * np.trace(square)
            products[products < ROUNDING * largest] = 0.0
            result[1, block.cells] = block.sum_by_cell(products) / freedom[block.cells]
        result[2, group] = freedom[group].sum()
    return result


def _groups(index: np.ndarray) -> list[np.ndarray]:
    """Return the cells of each value of `index`, in ascending order of the values."""
    return np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
