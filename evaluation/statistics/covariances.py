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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import sparse

from evenhand.evaluation.rows import rows_at_once
from evenhand.evaluation.statistics.cells import Block, Cells
from evenhand.evaluation.statistics.hoeffding import PairSums, summed_products

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


def covariance_square(cells: Cells, w: np.ndarray, scale: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return tr((V W)²) with V the summed covariances of the means of the cells that share an index, W = diag(w)."""
    return np.array([w @ summed_products(blocks(), scale) ** 2 @ w for _, blocks in _groups(cells, index)])


def borrowed_noise(
    cells: Cells, w: np.ndarray, deviation: np.ndarray, share: np.ndarray, pairs: PairSums
) -> tuple[CellNoise, CellNoise]:
    """Return each cell's noise with Σ̄ from its template's other cells, and with the better Σ̄ where cells are small.

    The first is never negative. The second is the sum of the mean covariances of its template's and of its
    descriptor's other cells, less that of the cells which are neither: no bias where templates and descriptors add up.
    Descriptors that are answered in a style of their own have covariances of their own.

    Args:
        cells: the responses, (n, c).
        w: of the columns, (c,).
        deviation: Δ, (k, c).
        share: (k,).
        pairs: of the same w and Δ.
    """
    own = np.stack([pairs.linear, pairs.products / (pairs.n - 1), pairs.n - 1])

    def of_others(index: np.ndarray) -> np.ndarray:
        return np.maximum(_products(cells, w, deviation, index) - own, 0.0)

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
    cells: Cells, w: np.ndarray, deviation: np.ndarray, share: np.ndarray, unit: np.ndarray, pairs: PairSums
) -> np.ndarray:
    """Return 4 ζ₁ / n of each cell, (k,), of units with several cells: Σ̂ of its own, Δ of its unit's other cells.

    A unit that differs much has covariances of its own in the direction in which it differs, so no others' Σ will do.
    Δ without the cell is independent of Σ̂, and is the unit's Δ but for what differs by template. Its noise is
    1 / (1 − s)² times what the other cells bring into Δ; what is above that is taken out.

    Args:
        cells, w, share, pairs: as of `borrowed_noise`.
        deviation: of the unit of each cell without the cell, (k, c).
        unit: of each cell, (k,).
    """
    n, along = pairs.n, np.zeros(len(pairs.n))
    for block in cells.blocks():
        along[block.cells] += block.summed((block.deviations * block.of_rows(deviation * w)).sum(axis=1) ** 2)
    scale = share**2 / (n * (n - 1))
    of_unit, itself = _products(cells, w, deviation, unit, scale)[1], scale * pairs.products / (n - 1)
    surplus = (1 / (1 - share) ** 2 - 1) * share**2 * (of_unit - itself) / n
    return 4 * (share**2 * along / ((n - 1) * n) - surplus)


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
    cells: Cells, w: np.ndarray, direction: np.ndarray, index: np.ndarray, scale: np.ndarray | None = None
) -> np.ndarray:
    """Return of each cell the sums that `borrowed` wants, times `scale` of each cell e, over all cells of its index."""
    result, freedom = np.zeros((3, len(cells.count))), cells.count - 1.0
    root, sign = np.sqrt(np.abs(w)), np.sign(w).astype(np.float32)
    direction, roots = direction * root * sign, np.outer(root, root).astype(np.float32)
    for group, blocks in _groups(cells, index):
        square = (summed_products(blocks(), scale) * roots).astype(np.float32, copy=False)
        result[0, group] = ((direction[group] @ square) * direction[group]).sum(axis=1)
        for block in blocks():
            residual = (block.deviations * root).astype(np.float32)
            signed = residual * sign
            products = ((signed @ square) * signed).sum(axis=1, dtype=np.float64)
            largest = (residual**2).sum(axis=1, dtype=np.float64) * np.trace(square)
            products[products < ROUNDING * largest] = 0.0
            result[1, block.cells] += block.summed(products) / freedom[block.cells]
        result[2, group] = freedom[group].sum()
    return result


def _groups(cells: Cells, index: np.ndarray) -> Iterator[tuple[np.ndarray, Callable[[], Iterable[Block]]]]:
    """Yield the cells of each value of the index, which numbers them from 0, and what gives out their rows.

    Small groups are read together, once; a large one each time that it is asked for.
    """
    groups = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    rows, half = np.bincount(index, cells.count), rows_at_once(cells.rows.shape[1]) / 2
    together = ((np.cumsum(rows) - rows) // half).astype(int)
    for some in np.split(np.arange(len(groups)), np.flatnonzero(np.diff(together)) + 1):
        if rows[some].max() > half:
            yield from ((groups[place], partial(cells.blocks, groups[place])) for place in some)
        else:
            (whole,) = cells.blocks(np.concatenate([groups[place] for place in some]))
            parts = whole.split([len(groups[place]) for place in some])
            yield from ((part.cells, lambda part=part: [part]) for part in parts)
