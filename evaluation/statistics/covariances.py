"""Covariances within cells, and what other cells say of the noise of one that is too small to say it of itself.

The variance of a cell's part of a spread is 4 ζ₁ / n + 2 ζ₂ / (n (n−1)) with n its responses, Σ their covariance and
W the weights of the columns (`u_statistics`). Of a cell that enters its unit with the share s, and whose unit differs
by Δ from its peers, the projection of the kernel is s ⟨x, Δ⟩, so that

    ζ₁ = s² Δ' W Σ W Δ,    ζ₂ = s⁴ tr(Σ W Σ W).

Both scale with powers of the share, and ζ₁ with the cell's own Δ as well; what cells of one kind have in common is Σ
alone. Estimates of ζ₁ and ζ₂ without bias need four responses. Two or three are enough if one of the two Σ, or the
one in ζ₁, is that of other cells: products of different cells have no bias from noise. With R_e the deviations of
cell e's responses from its mean, Σ̂_e = R_e' R_e / (n_e − 1).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evenhand.evaluation.statistics.cells import Cells

ROUNDING = 1e-6  # what of the largest possible product may be left of 0 by float32


@dataclass(frozen=True)
class CellNoise:
    """Of each cell, (k,) or (k, c) by column: `along`, s² Δ' W Σ̄ W Δ, noise of Δ included; `pairs`, s⁴ tr(Σ̄ W Σ̂ W).

    Σ̄ comes from other cells. `pairs` is then an estimate of ζ₂, and `along` less `pairs` / n one of ζ₁.
    """

    n: np.ndarray
    along: np.ndarray
    pairs: np.ndarray

    @property
    def pair_variance(self) -> np.ndarray:
        """The part of the variance that is there without any spread."""
        return 2 * self.pairs / (self.n * (self.n - 1))

    @property
    def linear_variance(self) -> np.ndarray:
        """The part of the variance that grows with the spread."""
        return 4 * (self.along - self.pairs / self.n) / self.n


def sum_by(index: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sum (k,) or (k, c) values that share an index."""
    indicator = sparse.csr_array((np.ones(len(index)), (index, np.arange(len(index)))))
    return indicator @ values


def filled(part: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the (k,) or (k, c) parts of cells, the mean of the known ones in place of the others."""
    part[~known] = part[known].mean(axis=0) if known.any() else np.nan
    return part


def residuals(cells: Cells, x: np.ndarray, mean: np.ndarray, root: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from rows to their deviations from their cells' means, times the root of each weight."""
    cell_of_row = np.repeat(np.arange(len(cells.count)), cells.count)
    return lambda rows: ((x[rows] - mean[cell_of_row[rows]]) * root).astype(np.float32)


def covariance_square(
    cells: Cells, x: np.ndarray, w: np.ndarray, mean: np.ndarray, scale: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """Return tr((V W)²) with V the summed covariances of the means of the cells that share an index, W = diag(w)."""
    of_rows, result = residuals(cells, x, mean, np.ones(x.shape[1])), []
    for rows, cell in _rows_by(cells, index):
        residual = of_rows(rows) * np.sqrt(scale[cell])[:, None].astype(np.float32)
        result.append(w @ (residual.T @ residual) ** 2 @ w)
    return np.array(result)


def borrowed_noise(
    cells: Cells, x: np.ndarray, w: np.ndarray, mean: np.ndarray, deviation: np.ndarray, share: np.ndarray
) -> tuple[CellNoise, CellNoise]:
    """Return each cell's noise with Σ̄ from its template's other cells, and with the better Σ̄ where cells are small.

    The first is never negative. The second is the sum of the mean covariances of its template's and of its
    descriptor's other cells, less that of the cells which are neither: no bias where templates and descriptors add up.
    Descriptors that are answered in a style of their own have covariances of their own.

    Args:
        cells, x, mean: the responses (n, c), and the cells' means (k, c).
        w: of the columns, (c,).
        deviation: Δ, (k, c).
        share: (k,).
    """
    root, sign = np.sqrt(np.abs(w)), np.sign(w).astype(np.float32)
    of_rows, direction = residuals(cells, x, mean, root), (deviation * root * sign).astype(np.float32)
    n = cells.count.astype(np.float64)
    own = _products(cells, of_rows, sign, direction, np.arange(len(n)))

    def of_others(index: np.ndarray) -> np.ndarray:
        return np.maximum(_products(cells, of_rows, sign, direction, index) - own, 0.0)

    return borrowed(cells, of_others, share)


def borrowed(
    cells: Cells, of_others: Callable[[np.ndarray], np.ndarray], share: np.ndarray
) -> tuple[CellNoise, CellNoise]:
    """Return the same from a function that sums over the other cells of an index.

    Args:
        cells: where they are.
        of_others: from an index of the cells, (k,), to (3, k) or (3, k, c): for each cell, summed over the others of
            its index, Δ' W R_e' R_e W Δ, tr(R_e' R_e W Σ̂ W) and the degrees of freedom n_e − 1.
        share: of each cell in its unit, (k,) or (k, 1).
    """
    n = cells.count.astype(np.float64).reshape(share.shape)
    template = np.unique(cells.template, return_inverse=True)[1]
    of_template = of_others(template)

    def noise(part: np.ndarray) -> CellNoise:
        return CellNoise(n, part[0] * share**2, part[1] * share**4)

    alike = _mean(of_template)
    alike = np.stack([filled(part, np.isfinite(part).reshape(len(n), -1).all(axis=1)) for part in alike])
    if not (cells.count < 4).any() or template.max(initial=0) < 1:
        return noise(alike), noise(alike)
    of_descriptor = of_others(np.unique(cells.descriptor, return_inverse=True)[1])
    rest = of_others(np.zeros_like(template)) - of_template - of_descriptor
    additive = _mean(of_template) + _mean(of_descriptor) - _mean(np.maximum(rest, 0.0))
    return noise(alike), noise(np.where(np.isfinite(additive), additive, alike))


def _mean(sums: np.ndarray) -> np.ndarray:
    """Return the first two sums over the third; NaN where that is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[2] > 0, sums[:2] / sums[2], np.nan)


def linear_variance_without_cell(
    cells: Cells,
    x: np.ndarray,
    w: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    share: np.ndarray,
    unit: np.ndarray,
) -> np.ndarray:
    """Return 4 ζ₁ / n of each cell, (k,), of units with several cells: Σ̂ of its own, Δ of its unit's other cells.

    A unit that differs much has covariances of its own in the direction in which it differs, so no others' Σ will do.
    Δ without the cell is independent of Σ̂, and is the unit's Δ but for what differs by template. Its noise is
    1 / (1 − s)² times what the other cells bring into Δ; what is above that is taken out.

    Args:
        cells, x, w, mean, share: as of `borrowed_noise`.
        deviation: of the unit of each cell without the cell, (k, c).
        unit: of each cell, (k,).
    """
    root, sign = np.sqrt(np.abs(w)), np.sign(w).astype(np.float32)
    of_rows, n = residuals(cells, x, mean, root), cells.count.astype(np.float64)
    direction, every = (deviation * root * sign).astype(np.float32), np.arange(len(n))
    own = _products(cells, of_rows, sign, direction, every)
    of_unit = _products(cells, of_rows, sign, direction, unit, share**2 / (n * (n - 1)))
    itself = _products(cells, of_rows, sign, direction, every, share**2 / (n * (n - 1)))
    surplus = (1 / (1 - share) ** 2 - 1) * share**2 * (of_unit - itself)[1] / n
    return 4 * (share**2 * own[0] / ((n - 1) * n) - surplus)


def with_small(
    cells: Cells, variances: tuple[np.ndarray, np.ndarray], linear: np.ndarray, small: CellNoise
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells' variances (corrected, plain), of those with two or three responses by what they borrow.

    The plain square of a mean of n normal deviations has n − 1 times 2 ζ₂ / n³ from pairs and 2 ζ₂ / n³ from squares.
    """
    corrected, plain = variances
    few = cells.count < 4
    few = few.reshape(-1, *[1] * (corrected.ndim - 1))
    return (
        np.where(few, linear + small.pair_variance, corrected),
        np.where(few, linear + 2 * small.pairs / small.n**2, plain),
    )


def noise_freedom(cells: Cells, size: np.ndarray) -> np.ndarray:
    """Return the degrees of freedom of the noise's estimate, (c,), at least 2, from the size of each cell's Σ̂, (k, c).

    Σ (n − 1), or 2 k / CV² of the sizes where these vary more than those of normal numbers would (Satterthwaite
    1946): as they do where nearly all responses are of one style and a few cells make up the noise.
    """
    k, mean = len(size), size.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = 2 * k * mean**2 / size.var(axis=0, ddof=1)
    return np.fmin(found, float((cells.count - 1).sum()))


def _products(
    cells: Cells,
    of_rows: Callable[[np.ndarray], np.ndarray],
    sign: np.ndarray,
    direction: np.ndarray,
    index: np.ndarray,
    scale: np.ndarray | None = None,
) -> np.ndarray:
    """Return of each cell the sums that `borrowed` wants, times `scale` of each cell e, over all cells of its index."""
    result = np.zeros((3, len(cells.count)))
    freedom = cells.count - 1.0
    scale = np.ones(len(freedom)) if scale is None else scale
    if len(np.unique(index)) == len(index):
        return _own_products(cells, of_rows, sign, direction, scale)
    for rows, cell in _rows_by(cells, index):
        chosen, place = np.unique(cell, return_inverse=True)
        residual = of_rows(rows)
        scaled = residual * np.sqrt(scale[cell])[:, None].astype(np.float32)
        square, signed = scaled.T @ scaled, residual * sign
        products = ((signed @ square) * signed).sum(axis=1, dtype=np.float64)
        largest = (residual**2).sum(axis=1, dtype=np.float64) * np.trace(square)
        products[products < ROUNDING * largest] = 0.0
        result[0, chosen] = ((direction[chosen] @ square) * direction[chosen]).sum(axis=1, dtype=np.float64)
        result[1, chosen] = np.bincount(place, products) / freedom[chosen]
        result[2, chosen] = freedom[chosen].sum()
    return result


def _own_products(
    cells: Cells,
    of_rows: Callable[[np.ndarray], np.ndarray],
    sign: np.ndarray,
    direction: np.ndarray,
    scale: np.ndarray,
) -> np.ndarray:
    """Return the same where each cell has an index of its own: by responses, not by columns."""
    result = np.zeros((3, len(cells.count)))
    result[2] = cells.count - 1.0
    for n in np.unique(cells.count):
        same_size = np.flatnonzero(cells.count == n)
        for chosen in np.array_split(same_size, -(-len(same_size) * n * (n + len(sign)) // (1 << 23))):
            rows = cells.start[chosen][:, None] + np.arange(n)
            residual = of_rows(rows.ravel()).reshape(*rows.shape, -1)
            result[0, chosen] = ((residual @ direction[chosen][:, :, None]) ** 2).sum(axis=(1, 2)) * scale[chosen]
            gram = (residual * sign) @ residual.transpose(0, 2, 1)
            result[1, chosen] = (gram**2).sum(axis=(1, 2)) * scale[chosen] / (n - 1)
    return result


def _rows_by(cells: Cells, index: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each value of the cells' index the rows of its cells, and the cell of each row."""
    cell_of_row = np.repeat(np.arange(len(index)), cells.count)
    order = np.argsort(index[cell_of_row], kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(index[cell_of_row]))[:-1])
    return [(rows, cell_of_row[rows]) for rows in groups]
