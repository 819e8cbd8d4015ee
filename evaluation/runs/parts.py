"""Long work in batches, kept on disk as it goes: a run that was killed goes on where it was, processes share it."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rows import RowFile, new_rows
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.progress import progress
from evenhand.evaluation.runs.tables import read_table, write_table
from evenhand.evaluation.runs.work_shards import WorkShard

log = logging.getLogger("evenhand")

SECONDS_BETWEEN_PARTS = 5.0  # what a kill may cost
ROW = "row"

# Batches of a share of the rows: the row numbers of each, and a value a row for each column.
Batches = Callable[[WorkShard], Iterator[tuple[Sequence, ...]]]


def compute_resumable(
    parts: Path, columns: Sequence[str], n: int, batches: Batches, description: str, unit: str
) -> pd.DataFrame:
    """Return `columns` of rows 0 … n−1, computing only what is not in the folder `parts` yet.

    A part is called by its first row; a damaged one is made again. Several processes make a share each, in parts of
    their own, so that a run goes on with any number of them.

    Raises:
        InputError: the parts are not of these rows, or another process is gone.
    """
    _make_all(parts, columns, n, batches, description, unit)
    found = {}
    for part, rows in _read(parts, n):
        for name in columns:
            values = part[name].to_numpy()
            kind = np.promote_types(values.dtype, found[name].dtype) if name in found else values.dtype
            found[name] = found[name].astype(kind, copy=False) if name in found else np.empty(n, dtype=kind)
            found[name][rows] = values
    return pd.DataFrame(found if found else {name: np.empty(n, dtype=object) for name in columns})


def gather_numbers(
    parts: Path, columns: Sequence[str], n: int, batches: Batches, description: str, unit: str
) -> tuple[np.ndarray, np.ndarray | RowFile]:
    """Return the first column, (n,), and the others as float32 rows (n, c), which lie in a file where they are many.

    Otherwise as `gather`.
    """
    _make_all(parts, columns, n, batches, description, unit)
    numbers, first = new_rows(n, len(columns) - 1, folder=parts), None
    for part, rows in _read(parts, n):
        values = part[columns[0]].to_numpy()
        first = np.empty(n, dtype=values.dtype) if first is None else first
        first[rows] = values
        order = np.argsort(rows)  # neighbours are written together
        numbers[rows[order]] = part[list(columns[1:])].to_numpy(dtype=np.float32)[order]
    return np.empty(n, dtype=object) if first is None else first, numbers


def _make_all(parts: Path, columns: Sequence[str], n: int, batches: Batches, description: str, unit: str) -> None:
    processes.on_rank_zero(lambda: _remove_damaged(parts))
    finished = processes.on_rank_zero(lambda: _finished(parts))
    while len(finished) < n:
        _make(parts, columns, n, batches, finished, description, unit)
        processes.barrier()
        # Short of memory, processes may cut batches in different ways: what fell between them is made now.
        before, finished = len(finished), processes.on_rank_zero(lambda: _finished(parts))
        if len(finished) == before:
            break


def _make(
    parts: Path, columns: Sequence[str], n: int, batches: Batches, finished: np.ndarray, description: str, unit: str
) -> None:
    """Make this process' share of what is left, and keep it every few seconds."""
    share = WorkShard(finished, processes.rank(), processes.world_size())
    # What is on disk is read at the end: small tables that stay between a model's large ones would scatter the memory.
    waiting: list[pd.DataFrame] = []
    written = -SECONDS_BETWEEN_PARTS  # the first batch is kept at once: a folder that cannot be written shows early

    def keep() -> None:
        nonlocal written
        if waiting:
            rows = pd.concat(waiting, ignore_index=True)
            write_table(parts / f"{rows[ROW].iloc[0]:08d}.parquet", rows)
            waiting.clear()
        written = time.monotonic()

    # What other processes do is not seen from here: of several, the bar is that of this one's share.
    mine, done = math.ceil((n - len(finished)) / share.processes), len(finished) if share.processes == 1 else 0
    with progress(done + mine, description + processes.name(), unit, done) as advance:
        try:
            for batch in batches(share):
                rows = pd.DataFrame(dict(zip((ROW, *columns), batch, strict=True)))
                if len(new := rows[share.left(rows[ROW])]):
                    waiting.append(new)
                if time.monotonic() - written >= SECONDS_BETWEEN_PARTS:
                    keep()
                advance(len(rows))
        finally:  # what was made before a server or a batch failed is kept, too
            keep()


def _read(parts: Path, n: int) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """Yield all parts, one after the other, and the numbers of their rows.

    Raises:
        InputError: the parts are not of these rows.
    """
    made = np.zeros(n, dtype=bool)
    for file in _files(parts):
        part = read_table(file)
        rows = part.pop(ROW).to_numpy()
        if len(rows) and not 0 <= rows.min() <= rows.max() < n:
            raise _not_these(parts, n)
        made[rows] = True  # a row is the same whenever it is made
        yield part, rows
    if not made.all():
        raise _not_these(parts, n)


def _not_these(parts: Path, n: int) -> InputError:
    return InputError(f"{parts} does not hold each of {n} rows once; delete the run's folder and run it again.")


def _files(parts: Path) -> list[Path]:
    return sorted(parts.glob("*.parquet"))


def _finished(parts: Path) -> np.ndarray:
    """Return the numbers of the rows that the parts hold, each once, ascending."""
    rows = [read_table(file, [ROW])[ROW].to_numpy() for file in _files(parts)]
    return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *rows]))


def _remove_damaged(parts: Path) -> None:
    for file in _files(parts):
        try:
            whole = ROW in read_table(file)
        except InputError:
            whole = False
        if not whole:
            log.warning("%s is damaged; its rows are made again", file)
            file.unlink()
