"""The folder of a running stage, with the tables and parts that the stage reads and writes."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.progress import progress
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.run_paths import PARTS
from evenhand.evaluation.runs.tables import read_table, write_table
from evenhand.evaluation.runs.tracking import Tracker

log = logging.getLogger("evenhand")

ROW = "row"  # column of saved batches: the number of the row
SECONDS_BETWEEN_WRITES = 5.0  # the maximum work lost if the process is killed
Table = pd.DataFrame | Iterable[pd.DataFrame]  # a whole table, or consecutive parts of a table (`write_table`)


@dataclass
class Run:
    """The run folder that a stage works in.

    Attributes:
        folder: path of the run folder.
        fingerprint: hash of all settings and inputs, by which later stages identify the run.
        tracker: the tracker of the stage.
        inputs: fingerprints of the files and models that the stage reads.
        family: name of the current family of metrics; each family has a separate folder for parts.
        seconds: duration of each step, for the manifest.
        facts: further entries of the manifest.

    A table that all ranks compute together:

        table = run.table("cosines", lambda: cosines(...), on_all_ranks=True)

    A long computation within this table, which resumes after the process was killed:

        vectors = run.rows("vectors", ["vector"], lambda texts: sentence_embeddings(encoder, texts), all_texts)
    """

    folder: Path
    fingerprint: str
    tracker: Tracker
    inputs: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the duration of the block, and record the duration in `seconds` under the step's name."""
        start = time.monotonic()
        yield
        self.seconds[name.replace("_", " ")] = round(time.monotonic() - start, 2)

    def has(self, name: str) -> bool:
        """Return whether the table `name`.parquet is on disk; the result is the same on every rank."""
        return processes.on_rank_zero((self.folder / f"{name}.parquet").exists)

    def read(self, name: str) -> pd.DataFrame:
        """Return the table `name`.parquet."""
        return read_table(self.folder / f"{name}.parquet")

    def write(self, name: str, rows: Table) -> None:
        """Write the table `name`.parquet on rank 0 while the other ranks wait."""
        processes.on_rank_zero(lambda: write_table(self.folder / f"{name}.parquet", rows))

    def ensure(self, name: str, compute: Callable[[], Table], *, on_all_ranks: bool = False) -> None:
        """Compute and write the table `name`.parquet unless the table is on disk.

        `compute` is called on all ranks if `on_all_ranks` is true, else only on rank 0.
        """

        def compute_and_write() -> None:
            with self.step(name):
                self.write(name, compute())

        if not self.has(name):
            compute_and_write() if on_all_ranks else processes.on_rank_zero(compute_and_write)

    def table(self, name: str, compute: Callable[[], Table], *, on_all_ranks: bool = False) -> pd.DataFrame:
        """Return the table `name`.parquet; compute and write the table first if it is not on disk (`ensure`)."""
        self.ensure(name, compute, on_all_ranks=on_all_ranks)
        return self.read(name)

    def rows(
        self,
        name: str,
        columns: Sequence[str],
        compute: Callable[..., Iterable[tuple[Sequence[Any], ...]]],
        *inputs: Sequence[Any],
        unit: str = "rows",
    ) -> pd.DataFrame:
        """Return a table of n rows, computed in batches that are saved as they come, so that a killed run can resume.

        Each process computes a part of the rows that are not on disk. Batches that are damaged are computed again.

        Args:
            name: the name of the computation, unique within the family.
            columns: the names of the columns.
            compute: yields batches of the rows whose inputs it gets: tuples of indices into these inputs and, for each
                column, the values.
            inputs: one or several lists or arrays with an item for each row, (n,).
            unit: the plural noun for a row, for the progress bar.

        Raises:
            InputError: `compute` did not yield every row, or a file cannot be read or written.
        """
        folder, n = self.folder / PARTS / self.family / name, len(inputs[0])
        missing = processes.on_rank_zero(lambda: _missing_rows(folder, n, columns))
        mine = np.array_split(missing, processes.world_size())[processes.rank()]
        if len(mine):
            done = (n - len(missing)) * (processes.world_size() == 1)
            chosen = (it[mine] if isinstance(it, np.ndarray) else [it[row] for row in mine] for it in inputs)
            with progress(done + len(mine), name.replace("_", " ") + processes.rank_label(), unit, done) as advance:
                _save_batches(folder, mine, columns, compute(*chosen), advance)
        processes.barrier()
        return _read_rows(folder, n, columns)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def _missing_rows(folder: Path, n: int, columns: Sequence[str]) -> np.ndarray:
    """Return the numbers of the rows that are not on disk, ascending; delete damaged files."""
    is_missing = np.ones(n, dtype=bool)
    for file in _files(folder):
        try:
            is_missing[read_table(file)[[ROW, *columns]][ROW].to_numpy()] = False
        except (InputError, KeyError, IndexError):
            log.warning("%s is damaged; its rows are computed again", file)
            file.unlink()
    return np.flatnonzero(is_missing)


def _save_batches(
    folder: Path,
    missing: np.ndarray,
    columns: Sequence[str],
    batches: Iterable[tuple[Sequence[Any], ...]],
    advance: Callable[[int], object],
) -> None:
    """Write batches of rows every few seconds. The name of a file is the number of its first row."""
    # Finished rows are not kept in memory: small tables between a model's large arrays fragment the memory.
    waiting: list[pd.DataFrame] = []
    last_write = -SECONDS_BETWEEN_WRITES  # the first batch is written at once, so an unwritable folder fails early

    def write() -> None:
        nonlocal last_write
        if waiting:
            rows = pd.concat(waiting, ignore_index=True)
            write_table(folder / f"{rows[ROW].iloc[0]:08d}.parquet", rows)
            waiting.clear()
        last_write = time.monotonic()

    try:
        for indices, *values in batches:
            rows = {ROW: missing[np.asarray(indices, dtype=np.int64)], **dict(zip(columns, values, strict=True))}
            waiting.append(pd.DataFrame(rows))
            if time.monotonic() - last_write >= SECONDS_BETWEEN_WRITES:
                write()
            advance(len(indices))
    finally:  # rows that were computed before an error are written, too
        write()


def _read_rows(folder: Path, n: int, columns: Sequence[str]) -> pd.DataFrame:
    """Return the table of all rows, in the order of their numbers."""
    values: dict[str, np.ndarray] = {}
    is_read = np.zeros(n, dtype=bool)
    for file in _files(folder):
        part = read_table(file)
        rows = part[ROW].to_numpy()
        is_read[rows] = True
        for name in columns:
            new = part[name].to_numpy()
            dtype = np.promote_types(new.dtype, values[name].dtype) if name in values else new.dtype
            values[name] = values[name].astype(dtype, copy=False) if name in values else np.empty(n, dtype)
            values[name][rows] = new
    if not is_read.all():
        raise InputError(f"{folder} does not have each of {n} rows; delete the run's folder and run it again.")
    return pd.DataFrame(values or {name: np.empty(n, dtype=object) for name in columns})
