"""Long work in batches, kept on disk as it goes: a run that was killed goes on where it was."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.progress import progress
from evenhand.evaluation.runs.tables import read_table, write_table

SECONDS_BETWEEN_PARTS = 5.0  # what a kill may cost
ROW = "row"

# Batches from the given number on: the row numbers of each, and a value a row for each column.
Batches = Callable[[int], Iterator[tuple[Sequence, ...]]]


def gather(parts: Path, columns: Sequence[str], n: int, batches: Batches, description: str, unit: str) -> pd.DataFrame:
    """Return `columns` of rows 0 … n−1, computing only what is not in the folder `parts` yet.

    A part is called by the number of batches that are finished with it.

    Raises:
        InputError: the parts are not of these rows.
    """
    files = sorted(parts.glob("*.parquet"))
    done, finished = sum(len(read_table(file)) for file in files), int(files[-1].stem) if files else 0
    # What is on disk is read at the end: small tables that stay between a model's large ones would scatter the memory.
    waiting: list[pd.DataFrame] = []
    written = -SECONDS_BETWEEN_PARTS  # the first batch is kept at once: a folder that cannot be written shows early

    def keep() -> None:
        nonlocal written
        if waiting:
            write_table(parts / f"{finished:08d}.parquet", pd.concat(waiting, ignore_index=True))
            waiting.clear()
        written = time.monotonic()

    with progress(n, description, unit, done) as advance:
        for batch in batches(finished):
            waiting.append(pd.DataFrame(dict(zip((ROW, *columns), batch, strict=True))))
            finished += 1
            if time.monotonic() - written >= SECONDS_BETWEEN_PARTS:
                keep()
            advance(len(batch[0]))
        keep()
    found = [read_table(file) for file in sorted(parts.glob("*.parquet"))]
    rows = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=[ROW, *columns])
    if sorted(rows[ROW]) != list(range(n)):
        raise InputError(f"{parts} does not hold each of {n} rows once; delete the run's folder and run it again.")
    return rows.sort_values(ROW, ignore_index=True)[list(columns)]
