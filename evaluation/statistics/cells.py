"""Vectors sorted into cells, a cell being all responses to one template filled with one descriptor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ROWS_AT_ONCE = 1 << 15


def codes(values: Sequence[str]) -> np.ndarray:
    """Return integer codes, (n,), that number the distinct values from 0 in sorted order.

    >>> codes(["deaf", "old", "deaf"]).tolist()
    [0, 1, 0]
    """
    return np.unique(np.asarray(values, dtype=str), return_inverse=True)[1]


@dataclass(frozen=True)
class Cells:
    """Responses sorted by cell: all responses to one (template, descriptor) pair lie together.

    vectors: (n, c); start, count, template, descriptor: (k,) for the k cells that have enough responses, as a rule two;
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


def arrange_cells(
    vectors: np.ndarray,
    template: np.ndarray,
    descriptor: np.ndarray,
    fewest: int = 2,
    sums: Sequence[Sequence[int]] = (),
) -> Cells:
    """Sort (n, c) vectors into the cells of at least `fewest`, by (n,) integer codes of template and descriptor.

    For each of `sums` a column is appended, the sum of those columns.
    """
    usable = finite_rows(vectors)
    cell = descriptor.astype(np.int64) * (int(template.max(initial=0)) + 1) + template
    size = np.bincount(cell[usable], minlength=int(cell.max(initial=0)) + 1)
    usable &= size[cell] >= fewest
    rows = np.flatnonzero(usable)
    rows = rows[np.argsort(cell[rows], kind="stable")]
    _, start, count = np.unique(cell[rows], return_index=True, return_counts=True)
    first = rows[start]
    of_cells = _sorted(vectors, rows, sums)
    return Cells(of_cells, start, count, template[first], descriptor[first], len(vectors) - len(rows))


def _sorted(vectors: np.ndarray, rows: np.ndarray, sums: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the rows in this order, with the sums; some at a time, so that nothing is in memory but the result."""
    width = vectors.shape[1]
    found = np.empty((len(rows), width + len(sums)), dtype=vectors.dtype)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some, into = vectors[rows[start : start + ROWS_AT_ONCE]], found[start : start + ROWS_AT_ONCE]
        into[:, :width] = some
        for place, columns in enumerate(sums, start=width):
            into[:, place] = some[:, list(columns)].sum(axis=1)
    return found


def finite_rows(vectors: np.ndarray) -> np.ndarray:
    """Return which of (n, c) vectors are finite, (n,) bool, some of them at a time."""
    parts = range(0, max(len(vectors), 1), ROWS_AT_ONCE)
    return np.concatenate([np.isfinite(vectors[start : start + ROWS_AT_ONCE]).all(axis=1) for start in parts])


def variance_of_means(cells: Cells) -> np.ndarray:
    """Return the variance between descriptors of each column's cell means, averaged over templates, (c,).

    With ddof = 0 and each cell counting as one, whatever its number of responses (002 A.7); over the templates with two
    descriptors or more, NaN where there is none.
    """
    mean = np.add.reduceat(cells.vectors, cells.start, axis=0, dtype=np.float64) / cells.count[:, None]
    of_template = [mean[cells.template == template] for template in np.unique(cells.template)]
    compared = [means.var(axis=0) for means in of_template if len(means) > 1]
    return np.mean(compared, axis=0) if compared else np.full(cells.vectors.shape[1], np.nan)


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
        (np.cumsum(count) - count).astype(cells.start.dtype),
        count,
        cells.template[kept],
        cells.descriptor[kept],
        cells.n_left_out + int((~rows).sum()),
    )
