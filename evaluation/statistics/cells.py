"""Style vectors of responses sorted by cell. A cell is all responses to one template with one descriptor."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from evenhand.evaluation.rows import RowFile, Rows, blocks, finite_rows, new_rows, rows_per_block


def to_codes(values: Sequence[str]) -> np.ndarray:
    """Return the code of each value, (n,): the index of the value in the sorted list of distinct values.

    >>> to_codes(["deaf", "old", "deaf"]).tolist()
    [0, 1, 0]
    """
    return factorize(values)[0]


def factorize(values: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return integer codes of values, (n,), and the names, which are the sorted distinct values as strings.

    names[codes] equals the values.
    """
    code, names = pd.factorize(pd.Series(values), use_na_sentinel=False)
    names = np.asarray(names, dtype=object).astype(str)
    order = np.argsort(names, kind="stable")
    rank = np.empty(len(names), dtype=np.int32)
    rank[order] = np.arange(len(names))
    return rank[code], names[order]


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

    def split(self, sizes: Sequence[int]) -> Iterator["Block"]:
        """Yield consecutive parts of the block, as views; `sizes` contains the number of cells of each part."""
        start_row, first = np.append(0, np.cumsum(self.count)), 0
        for size in sizes:
            last = first + size
            rows = self.rows[start_row[first] : start_row[last]]
            yield Block(self.cells[first:last], self.count[first:last], rows, self.mean)
            first = last

    def per_row(self, values: np.ndarray) -> np.ndarray:
        """Return, for each row, the value of its cell, (r, …); `values` has a value for each of all k cells, (k, …)."""
        return np.repeat(values[self.cells], self.count, axis=0)

    def sum_by_cell(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of `values`, (r, …), over the rows of each cell, (m, …)."""
        return np.add.reduceat(values, np.cumsum(self.count) - self.count, axis=0)


@dataclass(frozen=True)
class Cells:
    """Responses sorted by cell. Blocks of rows are read one at a time, so memory use grows only with the cells.

    Attributes:
        rows: vectors of responses, (N, C).
        columns: indices of the columns of `rows` in use, (c,).
        start, count, template, descriptor: first row, number of rows, code of the template and code of the descriptor
            of each cell, (k,). Cells with too few responses are excluded.
        mean: mean vector of each cell, (k, c).
        n_left_out: number of responses outside the cells or with an undefined vector (NaN).
    """

    rows: np.ndarray | RowFile
    columns: np.ndarray
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

    def blocks(self, chosen: np.ndarray | None = None) -> Iterator[Block]:
        """Yield the rows of the cells with the `chosen` indices (default: all cells) in blocks.

        A block has whole cells. A cell with more rows than a block is split into parts, each in another block.
        """
        chosen = np.arange(len(self.count)) if chosen is None else chosen
        max_rows = rows_per_block(self.rows.shape[1])
        n_parts = -(-self.count[chosen] // max_rows)
        cell = np.repeat(chosen, n_parts)
        offset = max_rows * (np.arange(len(cell)) - np.repeat(np.cumsum(n_parts) - n_parts, n_parts))
        start, count = self.start[cell] + offset, np.minimum(self.count[cell] - offset, max_rows)
        block_number = (np.cumsum(count) - count) // max_rows
        for index in np.split(np.arange(len(cell)), np.flatnonzero(np.diff(block_number)) + 1):
            if len(index):
                yield Block(cell[index], count[index], self._read(start[index], count[index]), self.mean)

    def _read(self, start: np.ndarray, count: np.ndarray) -> np.ndarray:
        if (start[1:] == start[:-1] + count[:-1]).all():
            rows = self.rows[start[0] : start[0] + count.sum()]
        else:
            rows = self.rows[np.repeat(start - np.cumsum(count) + count, count) + np.arange(count.sum())]
        return rows if np.array_equal(self.columns, np.arange(rows.shape[1])) else rows[:, self.columns]

    def select_columns(self, columns: np.ndarray) -> "Cells":
        """Return the cells restricted to the columns at some positions, without copying the rows."""
        return replace(self, columns=self.columns[columns], mean=self.mean[:, columns])


def arrange_cells(
    vectors: Rows, template: np.ndarray, descriptor: np.ndarray, min_count: int = 2, mask: np.ndarray | None = None
) -> Cells:
    """Return the cells that have at least `min_count` finite vectors.

    Args:
        vectors: style vectors of responses, (n, c).
        template, descriptor: integer codes of each vector's template and descriptor, (n,).
        min_count: the minimum number of vectors in a cell; variances need two.
        mask: whether to use each vector, (n,) bool; None: all.
    """
    usable = finite_rows(vectors) if mask is None else finite_rows(vectors) & mask
    cell = descriptor.astype(np.int64) * (int(template.max(initial=0)) + 1) + template
    size = np.bincount(cell[usable], minlength=int(cell.max(initial=0)) + 1)
    usable &= size[cell] >= min_count
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(cell[rows], kind="stable")]
    _, start, count = np.unique(cell[rows], return_index=True, return_counts=True)
    first = rows[start]
    sorted_blocks = (block for _, block in blocks(vectors, rows))
    sorted_rows, mean = _store_rows(sorted_blocks, count, vectors.shape[1], vectors)
    columns = np.arange(vectors.shape[1])
    return Cells(sorted_rows, columns, start, count, template[first], descriptor[first], mean, len(vectors) - len(rows))


def add_group_sums(cells: Cells, groups: Sequence[np.ndarray]) -> Cells:
    """Return a copy of the cells with, for each group of columns, the columns of the group followed by their sum."""

    def with_sum(rows: np.ndarray) -> np.ndarray:
        parts = (rows[:, group] for group in groups)
        return np.concatenate([columns for part in parts for columns in (part, part.sum(axis=1)[:, None])], axis=1)

    return _map_rows(cells, with_sum, sum(len(group) + 1 for group in groups))


def copy_columns(cells: Cells, columns: Sequence[int]) -> Cells:
    """Return a copy of the cells with only these columns. If the cells are on disk, no other column is read."""
    return _map_rows(cells, lambda rows: rows[:, columns], len(columns))


def paired_differences(cells: Cells) -> Cells:
    """Return the k differences between the two halves of 2k columns: column k + i minus column i, for each row."""
    n = len(cells.columns) // 2
    return _map_rows(cells, lambda rows: rows[:, n:] - rows[:, :n], n)


def _map_rows(cells: Cells, function: Callable[[np.ndarray], np.ndarray], width: int) -> Cells:
    parts = (function(block.rows) for block in cells.blocks())
    rows, mean = _store_rows(parts, cells.count, width, cells.rows)
    start = np.cumsum(cells.count) - cells.count
    return replace(cells, rows=rows, columns=np.arange(width), start=start, mean=mean)


def _store_rows(
    parts: Iterable[np.ndarray], count: np.ndarray, width: int, origin: Rows
) -> tuple[np.ndarray | RowFile, np.ndarray]:
    """Return the concatenation of `parts`, (n, width), and the mean of each cell, (k, width); rows are sorted by cell.

    A large result is stored in a file, in the folder of `origin` if `origin` is in a file.
    """
    n, ends = int(count.sum()), np.cumsum(count)
    rows = new_rows(n, width, origin.dtype, getattr(origin, "folder", None))
    mean, done = np.zeros((len(count), width)), 0
    for part in parts:
        rows[done : done + len(part)] = part
        first, last = np.searchsorted(ends, [done, done + len(part) - 1], side="right")
        begin = np.maximum(ends[first : last + 1] - count[first : last + 1] - done, 0)
        mean[first : last + 1] += np.add.reduceat(part, begin, axis=0, dtype=np.float64)
        done += len(part)
    mean /= count[:, None]
    return rows, mean


def cell_sums(vectors: Rows, cell: np.ndarray, k: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of the vectors of each cell, (k, c), and the number of vectors, (k,).

    Args:
        vectors: finite vectors, (n, c).
        cell: integer code (from 0) of each vector's cell, (n,).
        k: the minimum number of cells; cells without vectors have sum 0.
    """
    size = np.bincount(cell, minlength=k)
    sums = np.zeros((len(size), vectors.shape[1]))
    for index, block in blocks(vectors):
        order = np.argsort(cell[index], kind="stable")
        present, begin = np.unique(cell[index][order], return_index=True)
        sums[present] += np.add.reduceat(block[order], begin, axis=0, dtype=np.float64)
    return sums, size


def variance_of_means(cells: Cells, mean: np.ndarray) -> float:
    """Return the variance between descriptors of cell means, averaged over templates and summed over columns.

    Each cell has the same weight, and ddof = 0 (002 A.7). Templates with fewer than two descriptors are excluded. The
    result is NaN if all templates are excluded.

    Args:
        cells: the cells.
        mean: the mean of each cell, (k, c).
    """
    of_template = [mean[cells.template == template] for template in np.unique(cells.template)]
    variances = [means.var(axis=0).sum() for means in of_template if len(means) > 1]
    return float(np.mean(variances)) if variances else np.nan


def complete_descriptors(cells: Cells) -> Cells:
    """Return the cells of the descriptors that have all templates, so that descriptors' means are comparable.

    Templates with one descriptor compare nobody, and are left out unless there is no other template.
    """
    compared = select_cells(cells, np.bincount(cells.template)[cells.template] > 1)
    cells = compared if len(compared.count) else cells
    n_templates = np.bincount(cells.descriptor)[cells.descriptor]
    return select_cells(cells, n_templates == len(np.unique(cells.template)))


def select_cells(cells: Cells, mask: np.ndarray) -> Cells:
    """Return the cells where the mask, (k,), is true; `n_left_out` then includes the rows of all other cells."""
    if mask.all():
        return cells
    selected = {name: getattr(cells, name)[mask] for name in ("start", "count", "template", "descriptor", "mean")}
    return replace(cells, **selected, n_left_out=cells.n_left_out + int(cells.count[~mask].sum()))
