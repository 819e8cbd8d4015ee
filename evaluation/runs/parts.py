"""Long work in batches, kept on disk as it goes: a run that was killed goes on where it was."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.progress import progress
from evenhand.evaluation.runs.tables import read_table, write_table

log = logging.getLogger("evenhand")

SECONDS_BETWEEN_PARTS = 5.0  # what a kill may cost
ROW = "row"

# Batches of what is left when so many rows are finished: the row numbers of each, and a value a row for each column.
Batches = Callable[[int], Iterator[tuple[Sequence, ...]]]


def gather(parts: Path, columns: Sequence[str], n: int, batches: Batches, description: str, unit: str) -> pd.DataFrame:
    """Return `columns` of rows 0 … n−1, computing only what is not in the folder `parts` yet.

    A part is called by the number of rows that are finished with it; from a damaged one on they are made again. Rows
    come in an order that is always the same, in batches of any size.

    Raises:
        InputError: the parts are not of these rows.
    """
    finished = _sound(parts)
    # What is on disk is read at the end: small tables that stay between a model's large ones would scatter the memory.
    waiting: list[pd.DataFrame] = []
    written = -SECONDS_BETWEEN_PARTS  # the first batch is kept at once: a folder that cannot be written shows early

    def keep() -> None:
        nonlocal written
        if waiting:
            write_table(parts / f"{finished:08d}.parquet", pd.concat(waiting, ignore_index=True))
            waiting.clear()
        written = time.monotonic()

    with progress(n, description, unit, finished) as advance:
        for batch in batches(finished):
            waiting.append(pd.DataFrame(dict(zip((ROW, *columns), batch, strict=True))))
            finished += len(batch[0])
            if time.monotonic() - written >= SECONDS_BETWEEN_PARTS:
                keep()
            advance(len(batch[0]))
        keep()
    return _joined(parts, columns, n)


def _joined(parts: Path, columns: Sequence[str], n: int) -> pd.DataFrame:
    """Return the rows of all parts, read one after the other into the place of each: no row is in memory twice.

    Raises:
        InputError: the parts are not of these rows.
    """
    found, made = {name: np.empty(n, dtype=object) for name in columns}, np.zeros(n, dtype=bool)
    for number, file in enumerate(sorted(parts.glob("*.parquet"))):
        part = read_table(file)
        rows = part.pop(ROW).to_numpy()
        if len(rows) and not 0 <= rows.min() <= rows.max() < n:
            raise _not_these(parts, n)
        made[rows] = True  # a row is the same whenever it is made
        for name in columns:
            values = part[name].to_numpy()
            if number == 0:
                found[name] = np.empty(n, dtype=values.dtype)
            elif not np.can_cast(values.dtype, found[name].dtype, "safe"):
                found[name] = found[name].astype(np.promote_types(values.dtype, found[name].dtype))
            found[name][rows] = values
    if not made.all():
        raise _not_these(parts, n)
    return pd.DataFrame(found, copy=False)


def _not_these(parts: Path, n: int) -> InputError:
    return InputError(f"{parts} does not hold each of {n} rows once; delete the run's folder and run it again.")


def _sound(parts: Path) -> int:
    """Return how many rows the parts hold; what is damaged is removed, with all that follows it."""
    rows, damaged = 0, False
    for file in sorted(parts.glob("*.parquet")):
        try:
            if not damaged:
                read_table(file)
        except InputError:
            log.warning("%s is damaged; it and what follows it are made again", file)
            damaged = True
        if damaged:
            file.unlink()
        else:
            rows = int(file.stem)
    return rows
