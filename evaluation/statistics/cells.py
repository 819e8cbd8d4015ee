"""Vectors sorted into cells, a cell being all responses to one template filled with one descriptor."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from evenhand.evaluation.rows import RowFile, Rows, blocks, finite_rows, new_rows, rows_per_block


def to_codes(values: Sequence[str]) -> np.ndarray:
    """Return integer codes, (n,), that number the distinct values from 0 in sorted order.

    >>> to_codes(["deaf", "old", "deaf"]).tolist()
    [0, 1, 0]
    """
    return factorize(values)[0]


def factorize(values: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the same with the distinct values, sorted, as strings."""
    code, names = pd.factorize(pd.Series(values), use_na_sentinel=False)
    names = np.asarray(names, dtype=object).astype(str)
    order = np.argsort(names, kind="stable")
    rank = np.empty(len(names), dtype=np.int32)
    rank[order] = np.arange(len(names))
    return rank[code], names[order]


@dataclass(frozen=True)
class Block:
    """Rows (r, c) of some cells, (m,): of each so many, `count` (m,); and the means of all cells, (k, c)."""

    cells: np.ndarray
    count: np.ndarray
    rows: np.ndarray
    mean: np.ndarray

    @cached_property
    def deviations(self) -> np.ndarray:
        """The rows less their cells' means, (r, c), as float64."""
        found = self.per_row(self.mean)
        return np.subtract(self.rows, found, out=found)

    def split(self, sizes: Sequence[int]) -> Iterator["Block"]:
        """Yield the next so many cells, for each of the sizes, without reading anything again."""
        rows, first = np.append(0, np.cumsum(self.count)), 0
        for size in sizes:
            some = slice(first, first + size)
            yield Block(self.cells[some], self.count[some], self.rows[rows[first] : rows[some.stop]], self.mean)
            first += size

    def per_row(self, values: np.ndarray) -> np.ndarray:
        """Return to each row the value of its cell, from those of all cells (k, …)."""
        return np.repeat(values[self.cells], self.count, axis=0)

    def sum_by_cell(self, values: np.ndarray) -> np.ndarray:
        """Return the sums over each cell's rows, (m, …), of (r, …) values."""
        return np.add.reduceat(values, np.cumsum(self.count) - self.count, axis=0)


@dataclass(frozen=True)
class Cells:
    """Responses sorted by cell: all responses to one (template, descriptor) pair lie together.

    The rows lie in memory only where they are few, and are read in blocks, so that what is computed from them grows
    with the cells and not with the responses.

    rows: (N, C), of which the `columns` (c,) are looked at. start, count, template, descriptor: (k,) for the k cells
    that have enough responses, as a rule two; mean: (k, c). n_left_out: the rows that are not in such a cell, or whose
    vector is undefined (NaN).
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
        """The number of responses in the cells."""
        return int(self.count.sum())

    def blocks(self, chosen: np.ndarray | None = None) -> Iterator[Block]:
        """Yield the rows of all cells, or of the chosen ones, some at a time.

        Whole cells, but for one of more rows than are read at once, of which no block has two parts.
        """
        chosen = np.arange(len(self.count)) if chosen is None else chosen
        most = rows_per_block(self.rows.shape[1])
        parts = -(-self.count[chosen] // most)
        cell = np.repeat(chosen, parts)
        done = most * (np.arange(len(cell)) - np.repeat(np.cumsum(parts) - parts, parts))
        start, count = self.start[cell] + done, np.minimum(self.count[cell] - done, most)
        of_block = (np.cumsum(count) - count) // most
        for some in np.split(np.arange(len(cell)), np.flatnonzero(np.diff(of_block)) + 1):
            if len(some):
                yield Block(cell[some], count[some], self._read(start[some], count[some]), self.mean)

    def _read(self, start: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Return these runs of rows."""
        if (start[1:] == start[:-1] + count[:-1]).all():
            rows = self.rows[start[0] : start[0] + count.sum()]
        else:
            rows = self.rows[np.repeat(start - np.cumsum(count) + count, count) + np.arange(count.sum())]
        return rows if np.array_equal(self.columns, np.arange(rows.shape[1])) else rows[:, self.columns]

    def select_columns(self, columns: np.ndarray) -> "Cells":
        """Return the cells looked at in some of the columns, by number."""
        return replace(self, columns=self.columns[columns], mean=self.mean[:, columns])


def arrange_cells(vectors: Rows, template: np.ndarray, descriptor: np.ndarray, min_count: int = 2) -> Cells:
    """Sort (n, c) vectors into the cells of at least `min_count`, by (n,) integer codes of template and descriptor."""
    usable = finite_rows(vectors)
    cell = descriptor.astype(np.int64) * (int(template.max(initial=0)) + 1) + template
    size = np.bincount(cell[usable], minlength=int(cell.max(initial=0)) + 1)
    usable &= size[cell] >= min_count
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(cell[rows], kind="stable")]
    _, start, count = np.unique(cell[rows], return_index=True, return_counts=True)
    first = rows[start]
    sorted_rows = (some for _, some in blocks(vectors, rows))
    kept, mean = _stored(sorted_rows, count, vectors.shape[1], vectors)
    columns = np.arange(vectors.shape[1])
    return Cells(kept, columns, start, count, template[first], descriptor[first], mean, len(vectors) - len(rows))


def add_group_sums(cells: Cells, groups: Sequence[np.ndarray]) -> Cells:
    """Return the cells with some of their columns alone: those of each group, and behind them their sum."""

    def sums(rows: np.ndarray) -> np.ndarray:
        parts = (rows[:, group] for group in groups)
        return np.concatenate([each for part in parts for each in (part, part.sum(axis=1)[:, None])], axis=1)

    return _made_of(cells, sums, sum(len(group) + 1 for group in groups))


def copy_columns(cells: Cells, columns: Sequence[int]) -> Cells:
    """Return the cells with few of their columns alone: what looks at them reads no others."""
    return _made_of(cells, lambda rows: rows[:, columns], len(columns))


def _made_of(cells: Cells, make: Callable[[np.ndarray], np.ndarray], width: int) -> Cells:
    parts = (make(block.rows) for block in cells.blocks())
    rows, mean = _stored(parts, cells.count, width, cells.rows)
    start = np.cumsum(cells.count) - cells.count
    return replace(cells, rows=rows, columns=np.arange(width), start=start, mean=mean)


def _stored(
    parts: Iterable[np.ndarray], count: np.ndarray, width: int, origin: Rows
) -> tuple[np.ndarray | RowFile, np.ndarray]:
    """Return the parts, one behind the other, and the means (k, c) of the cells, which lie in this order."""
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
    """Return the sums (k, c) of finite vectors (n, c) by their cells' codes from 0, (n,), and the sizes, (k,).

    There are so many cells as the codes say, or `k`.
    """
    size = np.bincount(cell, minlength=k)
    sums = np.zeros((len(size), vectors.shape[1]))
    for place, some in blocks(vectors):
        order = np.argsort(cell[place], kind="stable")
        there, begin = np.unique(cell[place][order], return_index=True)
        sums[there] += np.add.reduceat(some[order], begin, axis=0, dtype=np.float64)
    return sums, size


def variance_of_means(cells: Cells, mean: np.ndarray) -> float:
    """Return the variance between descriptors of the cells' means (k, c), averaged over templates, summed over columns.

    With ddof = 0 and each cell counting as one, whatever its number of responses (002 A.7); over the templates with two
    descriptors or more, NaN where there is none.
    """
    of_template = [mean[cells.template == template] for template in np.unique(cells.template)]
    compared = [means.var(axis=0).sum() for means in of_template if len(means) > 1]
    return float(np.mean(compared)) if compared else np.nan


def complete_descriptors(cells: Cells) -> Cells:
    """Keep the descriptors that have a cell for every template, so that their means over templates compare."""
    per_descriptor = np.bincount(cells.descriptor)
    kept = per_descriptor[cells.descriptor] == len(np.unique(cells.template))
    return select_cells(cells, kept)


def select_cells(cells: Cells, kept: np.ndarray) -> Cells:
    """Return the cells where the (k,) mask is true; the rows of the others count as left out."""
    if kept.all():
        return cells
    of_cell = {name: getattr(cells, name)[kept] for name in ("start", "count", "template", "descriptor", "mean")}
    return replace(cells, **of_cell, n_left_out=cells.n_left_out + int(cells.count[~kept].sum()))
