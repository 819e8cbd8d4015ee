"""Style vectors of responses sorted by cell. A cell is all responses to one template with one descriptor."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pandas as pd
import scipy

NUMBERS_PER_BLOCK = 1 << 20  # 8 MiB as float64
Labels: TypeAlias = Sequence[str] | np.ndarray | pd.Series  # a label of each response, such as its template, (n,)


def to_codes(values: Labels) -> np.ndarray:
    """Return the code of each value, (n,): the index of the value in the sorted list of distinct values.

    >>> to_codes(["deaf", "old", "deaf"]).tolist()
    [0, 1, 0]
    """
    codes, _ = factorize(values)
    return codes


def factorize(values: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Return integer codes of values, (n,), and the names, which are the sorted distinct values as strings.

    names[codes] equals the values.
    """
    first_codes, distinct = pd.factorize(pd.Series(values), use_na_sentinel=False)  # in order of appearance
    names = np.asarray(distinct, dtype=object).astype(str)
    order = np.argsort(names, kind="stable")
    rank = np.empty(len(names), dtype=np.int32)
    rank[order] = np.arange(len(names))
    return rank[first_codes], names[order]


def sum_by(index: np.ndarray, values: np.ndarray, k: int = 0) -> np.ndarray:
    """Return the sums of `values`, (n,) or (n, c), over the rows with equal `index`, (n,).

    The result, (m,) or (m, c), has one row for each index 0 … m−1; indices that do not occur, up to k, have sum 0.
    """
    n = len(index)
    m = max(int(index.max(initial=-1)) + 1, k)
    membership = scipy.sparse.csc_array((np.ones(n), index, np.arange(n + 1)), shape=(m, n))
    return membership @ values


@dataclass(frozen=True)
class Block:
    """The rows of m cells.

    Attributes:
        cells: indices of the m cells, (m,).
        count: number of rows of each of the m cells, (m,).
        rows: rows of the m cells, sorted by cell, (r, c).
        mean: means of all k cells, including cells outside this block, (k, c).
    """

    cells: np.ndarray
    count: np.ndarray
    rows: np.ndarray
    mean: np.ndarray

    @cached_property
    def deviations(self) -> np.ndarray:
        """The rows minus the means of the rows' cells, (r, c), as float64."""
        means = self.per_row(self.mean)
        return np.subtract(self.rows, means, out=means)

    def per_row(self, values: np.ndarray) -> np.ndarray:
        """Return, for each row, the value of its cell, (r, …); `values` has a value for each of all k cells, (k, …)."""
        return np.repeat(values[self.cells], self.count, axis=0)

    def sum_by_cell(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of `values`, (r, …), over the rows of each cell, (m, …), as float64."""
        return np.add.reduceat(values, np.cumsum(self.count) - self.count, axis=0, dtype=np.float64)


@dataclass(frozen=True)
class Cells:
    """Responses sorted by cell.

    Attributes:
        rows: vectors of responses, (N, c).
        start, count, template, descriptor: first row, number of rows, code of the template and code of the descriptor
            of each cell, (k,). Cells with too few responses are excluded.
        mean: mean vector of each cell, (k, c).
        n_left_out: number of responses outside the cells or with an undefined vector (NaN).
    """

    rows: np.ndarray
    start: np.ndarray
    count: np.ndarray
    template: np.ndarray
    descriptor: np.ndarray
    mean: np.ndarray
    n_left_out: int

    @property
    def n(self) -> int:
        """The total number of responses in the cells."""
        return int(self.count.sum())

    def responses(self, chosen: np.ndarray) -> np.ndarray:
        """Return the rows of the cells with the `chosen` indices, in this order, (r, c); a view where possible."""
        start = self.start[chosen]
        count = self.count[chosen]
        total = count.sum()
        is_contiguous = len(chosen) > 0 and (start[1:] == start[:-1] + count[:-1]).all()
        if is_contiguous:
            return self.rows[start[0] : start[0] + total]
        start_in_result = np.cumsum(count) - count
        return self.rows[np.repeat(start - start_in_result, count) + np.arange(total)]

    def blocks(self, chosen: np.ndarray | None = None) -> Iterator[Block]:
        """Yield the rows of the cells with the `chosen` indices (default: all cells) in blocks of whole cells.

        Blocks of about NUMBERS_PER_BLOCK numbers keep temporary float64 arrays small.
        """
        if chosen is None:
            chosen = np.arange(len(self.count))
        count = self.count[chosen]
        n_columns = max(self.rows.shape[1], 1)
        rows_per_block = max(1, NUMBERS_PER_BLOCK // n_columns)
        block_of_cell = (np.cumsum(count) - count) // rows_per_block
        for cells in np.split(chosen, np.flatnonzero(np.diff(block_of_cell)) + 1):
            if len(cells):
                yield Block(cells=cells, count=self.count[cells], rows=self.responses(cells), mean=self.mean)

    def select_columns(self, columns: np.ndarray | Sequence[int]) -> "Cells":
        """Return the cells with only these columns, (c',); without a copy if these are all columns in order."""
        if np.array_equal(columns, np.arange(self.rows.shape[1])):
            return self
        return replace(self, rows=self.rows[:, columns], mean=self.mean[:, columns])


def arrange_cells(
    vectors: np.ndarray,
    template: np.ndarray,
    descriptor: np.ndarray,
    min_count: int = 2,
    mask: np.ndarray | None = None,
) -> Cells:
    """Return the cells that have at least `min_count` finite vectors, which are sorted by content within each cell.

    Permutations shuffle positions, so this order makes their results independent of the order of the rows.

    Args:
        vectors: style vectors of responses, (n, c).
        template, descriptor: integer codes of each vector's template and descriptor, (n,).
        min_count: the minimum number of vectors in a cell; variances need two.
        mask: whether to use each vector, (n,) bool; None: all.
    """
    usable = np.isfinite(vectors).all(axis=1)
    if mask is not None:
        usable &= mask
    n_templates = int(template.max(initial=0)) + 1
    cell = descriptor.astype(np.int64) * n_templates + template
    size = np.bincount(cell[usable], minlength=int(cell.max(initial=0)) + 1)
    usable &= size[cell] >= min_count
    rows = np.flatnonzero(usable)
    # The order of vectors within a cell: by their product with one fixed random vector.
    key = vectors @ np.random.default_rng(0).random(vectors.shape[1], dtype=np.float32)
    rows = rows[np.lexsort((key[rows], cell[rows]))]
    _, start, count = np.unique(cell[rows], return_index=True, return_counts=True)
    first = rows[start]
    empty = vectors[:0]
    cells = Cells(
        rows=empty,
        start=start,
        count=count,
        template=template[first],
        descriptor=descriptor[first],
        mean=empty,
        n_left_out=len(vectors) - len(rows),
    )
    return _with_rows(cells, vectors[rows])


def _with_rows(cells: Cells, rows: np.ndarray) -> Cells:
    """Return the cells with other vectors of the same responses, (N, c), and the means of these vectors."""
    cells = replace(cells, rows=rows, mean=np.empty((len(cells.count), rows.shape[1])))
    for block in cells.blocks():
        cells.mean[block.cells] = block.sum_by_cell(block.rows) / block.count[:, None]
    return cells


def add_group_sums(cells: Cells, groups: Sequence[np.ndarray]) -> Cells:
    """Return a copy of the cells with, for each group of columns, the columns of the group followed by their sum."""
    columns = []
    for group in groups:
        part = cells.rows[:, group]
        columns.append(part)
        columns.append(part.sum(axis=1)[:, None])
    return _with_rows(cells, np.concatenate(columns, axis=1))


def variance_of_means(cells: Cells, mean: np.ndarray) -> float:
    """Return the variance between descriptors of cell means, (k, c), averaged over templates and summed over columns.

    Each cell has the same weight, and ddof = 0 (Smith et al. 2022, A.7). Templates with fewer than two descriptors are
    excluded. The result is NaN if all templates are excluded.
    """
    variances = []
    for template in np.unique(cells.template):
        means = mean[cells.template == template]
        if len(means) > 1:
            variances.append(means.var(axis=0).sum())
    return float(np.mean(variances)) if variances else np.nan


def select_cells(cells: Cells, mask: np.ndarray) -> Cells:
    """Return the cells where the mask, (k,), is true; `n_left_out` then includes the rows of all other cells."""
    if mask.all():
        return cells
    return replace(
        cells,
        start=cells.start[mask],
        count=cells.count[mask],
        template=cells.template[mask],
        descriptor=cells.descriptor[mask],
        mean=cells.mean[mask],
        n_left_out=cells.n_left_out + int(cells.count[~mask].sum()),
    )
