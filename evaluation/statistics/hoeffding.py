"""Hoeffding's variance components of a U-statistic of pairs (W. Hoeffding, 1948, §5), from sums over responses.

The pairs of a cell's n responses form a U-statistic whose kernel is, up to a constant that does not affect variances,

    h_ij = ⟨r_i, r_j⟩ + l_i + l_j,    l_i = ⟨r_i, Δ⟩,

with r_i response i minus the cell's mean, ⟨·,·⟩ the scalar product with weights W of the c columns, and Δ a given
vector. The r_i sum to 0, so Σ_j ⟨r_i, r_j⟩ = 0 and Σ_i l_i = 0, and Hoeffding's decomposition needs only five sums.
The only sum over pairs is Σ_ij ⟨r_i, r_j⟩² = tr((R' R W)²), with R the matrix of the r_i. The code computes this sum
from n × n or from c × c products, whichever are fewer.
"""

from dataclasses import dataclass

import numpy as np

from evenhand.evaluation.statistics.cells import Cells


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

    def shared(self, share: np.ndarray) -> "PairSums":
        """Return the sums for the kernel share² ⟨r_i, r_j⟩ + share (l_i + l_j), with the share of each cell, (k,)."""
        return PairSums(
            self.n,
            self.linear * share**2,
            self.mixed * share**3,
            self.own * share**2,
            self.own_squares * share**4,
            self.products * share**4,
        )

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
    """Return the `PairSums` of each cell, (k,), for the column weights w, (c,), and the cells' vectors Δ, (k, c)."""
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
    """Return Σ_e scale_e R_e' R_e over the cells e with the `chosen` indices, (c, c).

    R_e are the deviations from the cell's mean, and `scale`, (k,), is a factor of each cell, default 1. Products are
    computed in float32 and summed in float64.
    """
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
