"""Containers for rows of numbers: arrays in memory, or unnamed temporary files that are read in blocks.

`numpy.memmap` cannot replace `RowFile`, because mapped pages count as resident memory, so that the peak grows with the
number of rows. Peak memory of the stage score, in GiB above the imported libraries:

    responses × styles    RowFile    numpy.memmap
    100,000 × 217         0.23       0.40
    400,000 × 217         0.19       0.83
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MAX_BYTES_IN_MEMORY = 1 << 25  # maximum size of an array; larger data is stored in a file
NUMBERS_PER_BLOCK = 1 << 20  # 8 MiB as float64


class RowFile:
    """Rows (n, c) in an unnamed temporary file that can be indexed like an array.

    An index is a slice, positions (m,), or a mask (n,). Reading returns a copy of the indexed rows as an array. The
    operating system deletes the file when the process ends.
    """

    def __init__(self, n: int, width: int, dtype: np.dtype, folder: Path | None = None) -> None:
        self.shape, self.dtype, self.ndim, self.folder = (n, width), np.dtype(dtype), 2, folder
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 – closed with the object
        self._row_size = width * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        start, count = self._runs(rows)
        values = np.empty((int(count.sum()), self.shape[1]), dtype=self.dtype)
        self._transfer(os.preadv, values, start, count)
        return values

    def __setitem__(self, rows: slice | np.ndarray, values: np.ndarray) -> None:
        self._transfer(os.pwritev, np.ascontiguousarray(values, dtype=self.dtype), *self._runs(rows))

    def _transfer(
        self, read_or_write: Callable[[int, list, int], int], values: np.ndarray, start: np.ndarray, count: np.ndarray
    ) -> None:
        """Read rows from the file into `values`, or write `values` to the file, one run of consecutive rows at a time.

        A call of `read_or_write` may transfer only a part of a run, so it is repeated until the run is complete.
        """
        position, buffer = 0, values.reshape(-1).view(np.uint8).data
        for offset, size in zip((start * self._row_size).tolist(), (count * self._row_size).tolist(), strict=True):
            end = position + size
            while position < end:
                n_bytes = read_or_write(self._file.fileno(), [buffer[position:end]], offset + size - (end - position))
                if not n_bytes:
                    raise OSError("a file of rows is shorter than its rows")
                position += n_bytes

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def _runs(self, rows: slice | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Split an index into runs of consecutive rows; return the first row and the length of each run, (r,) each."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            return np.array([start]), np.array([max(stop - start, 0)])
        rows = np.asarray(rows)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        ends = np.flatnonzero(np.diff(rows) != 1) + 1
        first = np.append(0, ends)[: len(rows)]
        return rows[first], np.diff(np.append(first, len(rows)))


@dataclass(frozen=True)
class JoinedColumns:
    """The columns of several containers of n rows side by side, concatenated when rows are read."""

    parts: tuple["Rows", ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and the total number of columns of all parts."""
        return len(self), sum(part.shape[1] for part in self.parts)

    @property
    def dtype(self) -> np.dtype:
        """The type of the concatenated numbers: NumPy's result type of all parts."""
        return np.result_type(*(part.dtype for part in self.parts))

    @property
    def folder(self) -> Path | None:
        """The folder of the first part's file, or None."""
        return getattr(self.parts[0], "folder", None)

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return np.concatenate([part[rows] for part in self.parts], axis=1)


Rows = np.ndarray | RowFile | JoinedColumns


def new_rows(n: int, width: int, dtype: np.dtype = np.float32, folder: Path | None = None) -> np.ndarray | RowFile:
    """Return uninitialized rows (n, width): an array up to MAX_BYTES_IN_MEMORY, else a `RowFile`.

    Args:
        n, width: number of rows and number of columns.
        dtype: type of the numbers.
        folder: folder of the file. If it is None or not writable, the system's folder of temporary files is used.
    """
    if n * width * np.dtype(dtype).itemsize <= MAX_BYTES_IN_MEMORY:
        return np.empty((n, width), dtype=dtype)
    return RowFile(n, width, dtype, folder if folder is not None and os.access(folder, os.W_OK) else None)


def rows_per_block(width: int) -> int:
    """Return the maximum number of rows in a block of `width` columns."""
    return max(1, NUMBERS_PER_BLOCK // max(width, 1))


def blocks(rows: Rows, positions: np.ndarray | None = None) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield rows in blocks: the slice of each block in all yielded rows, and the rows of the block.

    Args:
        rows: the rows, (n, c).
        positions: positions of the yielded rows, (m,), in the order in which they are yielded; None: all rows.
    """
    n = len(rows) if positions is None else len(positions)
    step = rows_per_block(rows.shape[1])
    for start in range(0, n, step):
        index = slice(start, min(start + step, n))
        yield index, rows[index if positions is None else positions[index]]


def finite_rows(rows: Rows) -> np.ndarray:
    """Return whether each of the rows, (n, c), is finite in all columns, (n,) bool."""
    mask = np.empty(len(rows), dtype=bool)
    for index, block in blocks(rows):
        mask[index] = np.isfinite(block).all(axis=1)
    return mask


def column_sums(rows: Rows, columns: Sequence[int]) -> np.ndarray:
    """Return, for each row, the sum over the given columns, (n,) float64."""
    sums = np.empty(len(rows))
    for index, block in blocks(rows):
        sums[index] = block[:, list(columns)].sum(axis=1, dtype=np.float64)
    return sums


def copy_rows(rows: Rows, positions: np.ndarray) -> np.ndarray | RowFile:
    """Return a copy of the rows at the given positions, (m,), in memory or, if large, in a file in the same folder."""
    copy = new_rows(len(positions), rows.shape[1], rows.dtype, getattr(rows, "folder", None))
    for index, block in blocks(rows, positions):
        copy[index] = block
    return copy
