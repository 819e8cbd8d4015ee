"""Rows of numbers that may be too many for memory: an array where they are few, else a file that has no name."""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MAX_BYTES_IN_MEMORY = 1 << 25  # bytes of an array; what is larger lies in a file
NUMBERS_PER_BLOCK = 1 << 20  # that are read, and computed with, at once: 8 MiB as float64


class RowFile:
    """Rows (n, c) in a file that no folder lists and that is gone with the process; read and written like an array's.

    What is read is a copy of the rows asked for: a slice, positions (m,), or a mask (n,). Nothing else is in memory.
    """

    def __init__(self, n: int, width: int, dtype: np.dtype, folder: Path | None = None) -> None:
        self.shape, self.dtype, self.ndim, self.folder = (n, width), np.dtype(dtype), 2, folder
        # Open as long as the rows live.
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._bytes_of_row = width * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        start, count = self._runs(rows)
        found = np.empty((int(count.sum()), self.shape[1]), dtype=self.dtype)
        self._each_run(os.preadv, found, start, count)
        return found

    def __setitem__(self, rows: slice | np.ndarray, values: np.ndarray) -> None:
        self._each_run(os.pwritev, np.ascontiguousarray(values, dtype=self.dtype), *self._runs(rows))

    def _each_run(
        self, move: Callable[[int, list, int], int], values: np.ndarray, start: np.ndarray, count: np.ndarray
    ):
        """Read or write the values run by run, each until all of it has moved."""
        place, values = 0, values.reshape(-1).view(np.uint8).data
        for first, size in zip(
            (start * self._bytes_of_row).tolist(), (count * self._bytes_of_row).tolist(), strict=True
        ):
            done = 0
            while done < size:
                moved = move(self._file.fileno(), [values[place + done : place + size]], first + done)
                if not moved:
                    raise OSError("a file of rows ends before they do")
                done += moved
            place += size

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def _runs(self, rows: slice | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where each run of neighbouring rows starts, and their numbers."""
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
    """The columns of several sets of rows (n, c), side by side: they are joined as they are read."""

    sides: tuple["Rows", ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and of all columns."""
        return len(self), sum(side.shape[1] for side in self.sides)

    @property
    def dtype(self) -> np.dtype:
        """The type that holds the numbers of all."""
        return np.result_type(*(side.dtype for side in self.sides))

    @property
    def folder(self) -> Path | None:
        """Where the first lies, if in a file."""
        return getattr(self.sides[0], "folder", None)

    def __len__(self) -> int:
        return len(self.sides[0])

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return np.concatenate([side[rows] for side in self.sides], axis=1)


Rows = np.ndarray | RowFile | JoinedColumns


def new_rows(n: int, width: int, dtype: np.dtype = np.float32, folder: Path | None = None) -> np.ndarray | RowFile:
    """Return room for rows (n, width): an array, or a file if that is larger than IN_MEMORY.

    Args:
        folder: where a file lies, if it can be written; else where the system keeps temporary files.
    """
    if n * width * np.dtype(dtype).itemsize <= MAX_BYTES_IN_MEMORY:
        return np.empty((n, width), dtype=dtype)
    return RowFile(n, width, dtype, folder if folder is not None and os.access(folder, os.W_OK) else None)


def rows_per_block(width: int) -> int:
    """Return how many rows of so many columns are read at once."""
    return max(1, NUMBERS_PER_BLOCK // max(width, 1))


def blocks(rows: Rows, positions: np.ndarray | None = None) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield all rows, or those at the positions, some at a time: their places, from 0, and what they hold."""
    n = len(rows) if positions is None else len(positions)
    step = rows_per_block(rows.shape[1])
    for start in range(0, n, step):
        place = slice(start, min(start + step, n))
        yield place, rows[place if positions is None else positions[place]]


def finite_rows(rows: Rows) -> np.ndarray:
    """Return which of the rows (n, c) are finite, (n,) bool."""
    found = np.empty(len(rows), dtype=bool)
    for place, some in blocks(rows):
        found[place] = np.isfinite(some).all(axis=1)
    return found


def column_sums(rows: Rows, columns: Sequence[int]) -> np.ndarray:
    """Return the sum of these columns of each row, (n,) float64."""
    found = np.empty(len(rows))
    for place, some in blocks(rows):
        found[place] = some[:, list(columns)].sum(axis=1, dtype=np.float64)
    return found


def copy_rows(rows: Rows, positions: np.ndarray) -> np.ndarray | RowFile:
    """Return a copy of the rows at these positions, (m,), where those lie."""
    found = new_rows(len(positions), rows.shape[1], rows.dtype, getattr(rows, "folder", None))
    for place, some in blocks(rows, positions):
        found[place] = some
    return found
