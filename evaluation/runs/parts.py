"""Rows of a long computation, written to disk in parts during the computation, so that a killed run can resume."""

import logging
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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

SECONDS_BETWEEN_PARTS = 5.0  # the maximum work lost if the process is killed
ROW = "row"


@dataclass(frozen=True)
class Parts:
    """Rows 0 … n−1 of a table, stored in Parquet files (parts) in a folder.

    The name of a part is the number of the part's first row. Each process writes only rows of the process's shard, and
    a run can resume with any number of processes.
    """

    folder: Path
    columns: Sequence[str]
    n: int

    def unfinished_shards(self) -> Iterator[WorkShard]:
        """Yield this process's shard of the unfinished rows, again and again until all rows are on disk.

        Damaged parts are removed first. One shard is enough, unless processes form different batches because their
        devices have different amounts of free memory. The rows that no process has computed are then in the next shard.
        """
        processes.on_rank_zero(self._remove_damaged)
        finished = processes.on_rank_zero(self._finished)
        while len(finished) < self.n:
            yield WorkShard(finished, processes.rank(), processes.world_size())
            processes.barrier()
            n_before, finished = len(finished), processes.on_rank_zero(self._finished)
            if len(finished) == n_before:
                break

    def save(self, shard: WorkShard, batches: Iterable[tuple[Sequence, ...]], description: str, unit: str) -> None:
        """Write the unfinished rows of a shard every few seconds, and show the progress.

        Args:
            shard: a shard of `unfinished_shards`.
            batches: iterator that computes the batches. A batch is a tuple of the row numbers and, for each column, the
                values of these rows.
            description: description of the computation for the progress bar.
            unit: the plural noun for a row, for the progress bar.
        """
        # Finished rows are not kept in memory: small tables between a model's large arrays fragment the memory.
        waiting: list[pd.DataFrame] = []
        last_write = -SECONDS_BETWEEN_PARTS  # the first batch is written at once, so an unwritable folder fails early

        def write() -> None:
            nonlocal last_write
            if waiting:
                rows = pd.concat(waiting, ignore_index=True)
                write_table(self.folder / f"{rows[ROW].iloc[0]:08d}.parquet", rows)
                waiting.clear()
            last_write = time.monotonic()

        # The progress bar counts the rows of this process's shard.
        n_finished = len(shard.finished)
        n_mine, n_done = math.ceil((self.n - n_finished) / shard.world_size), n_finished * (shard.world_size == 1)
        with progress(n_done + n_mine, description + processes.rank_label(), unit, n_done) as advance:
            try:
                for batch in batches:
                    rows = pd.DataFrame(dict(zip((ROW, *self.columns), batch, strict=True)))
                    if len(new := rows[shard.is_unfinished(rows[ROW])]):
                        waiting.append(new)
                    if time.monotonic() - last_write >= SECONDS_BETWEEN_PARTS:
                        write()
                    advance(len(rows))
            finally:  # rows that were computed before an error are written, too
                write()

    def read(self) -> pd.DataFrame:
        """Return the table of all rows, sorted by row number.

        Raises:
            InputError: the parts do not contain exactly the rows 0 … n−1, or a part is damaged.
        """
        values: dict[str, np.ndarray] = {}
        for part, rows in self._read_parts():
            for name in self.columns:
                new = part[name].to_numpy()
                dtype = np.promote_types(new.dtype, values[name].dtype) if name in values else new.dtype
                values[name] = values[name].astype(dtype, copy=False) if name in values else np.empty(self.n, dtype)
                values[name][rows] = new
        return pd.DataFrame(values or {name: np.empty(self.n, dtype=object) for name in self.columns})

    def read_numbers(self) -> tuple[np.ndarray, np.ndarray | RowFile]:
        """Return the first column, (n,), and an array of the other columns, float32 (n, c).

        A large array is stored in a temporary file in the folder of the parts (`new_rows`).

        Raises:
            InputError: the parts do not contain exactly the rows 0 … n−1, or a part is damaged.
        """
        numbers, first = new_rows(self.n, len(self.columns) - 1, folder=self.folder), None
        for part, rows in self._read_parts():
            values = part[self.columns[0]].to_numpy()
            first = np.empty(self.n, dtype=values.dtype) if first is None else first
            first[rows] = values
            order = np.argsort(rows)  # consecutive rows are written together
            numbers[rows[order]] = part[list(self.columns[1:])].to_numpy(dtype=np.float32)[order]
        return np.empty(self.n, dtype=object) if first is None else first, numbers

    def _read_parts(self) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
        mismatch = InputError(
            f"{self.folder} does not hold each of {self.n} rows once; delete the run's folder and run it again."
        )
        is_read = np.zeros(self.n, dtype=bool)
        for file in self._files():
            part = read_table(file)
            rows = part.pop(ROW).to_numpy()
            if len(rows) and not 0 <= rows.min() <= rows.max() < self.n:
                raise mismatch
            is_read[rows] = True  # a row that is in two parts has the same values in both
            yield part, rows
        if not is_read.all():
            raise mismatch

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("*.parquet"))

    def _finished(self) -> np.ndarray:
        rows = [read_table(file, [ROW])[ROW].to_numpy() for file in self._files()]
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *rows]))

    def _remove_damaged(self) -> None:
        for file in self._files():
            try:
                is_intact = ROW in read_table(file)
            except InputError:
                is_intact = False
            if not is_intact:
                log.warning("%s is damaged; its rows are computed again", file)
                file.unlink()
