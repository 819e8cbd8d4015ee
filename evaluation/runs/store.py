"""What a stage reads and writes in its folder: tables, facts, and rows that are saved in batches.

Every table, and every saved batch of rows, has the fingerprint of the run that computed it. A run reads only its own.
"""

import logging
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_json, write_json
from evenhand.evaluation.json_values import Json, JsonObject
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.progress import progress, working
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.runs.results import PARTS, RESULTS
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.tables import read_table, table_run, write_table

log = logging.getLogger("evenhand")

KEY = "key"  # column of saved batches: the key of the row
RUN = "run"  # key of the fingerprint in a JSON file of facts
SECONDS_BETWEEN_WRITES = 5.0  # the maximum work lost if the process is killed


@dataclass
class Store:
    """The run folder that a stage works in.

    Attributes:
        folder: path of the run folder.
        fingerprint: hash of all settings and inputs, by which later stages identify the run.
        tracker: the tracker of the stage.
        inputs: fingerprints of the files and models that the stage reads.
        family: name of the current family of metrics; each family has a separate folder for parts.
        seconds: duration of each step, for the record.
        record: the entries that the stage adds to the record of the run, run.json.
        failures: what could not be computed for a reason that may pass, by name; the same command then tries again.
        family_of_table: the family that has written or found each table in this process, by the name of the table.
        written: the result files, and folders of them, that this run wrote, also before it was killed.
    """

    folder: Path
    fingerprint: str
    tracker: Tracker
    inputs: JsonObject = field(default_factory=dict)
    family: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    record: dict[str, Json] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    family_of_table: dict[str, str] = field(default_factory=dict)
    written: Sequence[str] = ()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the duration of the block, and record the duration in `seconds` under the step's name."""
        start = time.monotonic()
        with working(name.replace("_", " ")):
            yield
        self.seconds[name.replace("_", " ")] = round(time.monotonic() - start, 2)

    def has(self, name: str) -> bool:
        """Return whether this run's table `name`.parquet is on disk and whole; the result is the same on every rank.

        Raises:
            InputError: the file was not written by a run, so that it is not overwritten.
        """
        is_there = processes.on_rank_zero(lambda: self._has(self.folder / f"{name}.parquet"))
        if is_there:
            self.family_of_table[name] = self.family
        return is_there

    def _has(self, path: Path) -> bool:
        if not path.exists():
            return False
        try:
            run = table_run(path)
        except InputError:
            log.warning("%s is damaged; computed again", path)
            return False
        if not run:
            raise InputError(
                "output_dir", f"{path} is no table of this run; move it, or give another {spelled('output_dir')}."
            )
        return run == self.fingerprint  # an earlier run of other settings may have stopped after its first table

    def read(self, name: str) -> pd.DataFrame:
        """Return the table `name`.parquet."""
        return read_table(self.folder / f"{name}.parquet")

    def write(self, name: str, rows: pd.DataFrame) -> None:
        """Write the table `name`.parquet on rank 0 while the other ranks wait."""
        path = self.folder / f"{name}.parquet"
        self.family_of_table[name] = self.family
        processes.on_rank_zero(lambda: write_table(path, rows, self.fingerprint))

    def keep_facts(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the facts in the file `name`.json; compute and write them first unless this run has written them.

        `compute` is called on rank 0 only.
        """
        facts = self.read_facts(name)
        if facts is None:
            facts = processes.on_rank_zero(compute)
            self.write_facts(name, facts)
        return facts

    def read_facts(self, name: str) -> dict[str, Any] | None:
        """Return the facts in the file `name`.json, the same on every rank; None if this run has not written it."""
        return processes.on_rank_zero(lambda: self._facts(self.folder / f"{name}.json"))

    def _facts(self, path: Path) -> dict[str, Any] | None:
        if path.exists():
            facts = read_json(path, "output_dir")
            if isinstance(facts, dict) and facts.pop(RUN, None) == self.fingerprint:
                return facts
        return None

    def discard_results(self, *, but_rows: Collection[str]) -> None:
        """Delete the tables and facts of the run, and all saved batches of the family except those named, on rank 0.

        Tables that other families have written or found stay: their reports read them at the end of the run. So do all
        files that are not of this run, such as notes of the user and other runs in subfolders.
        """
        processes.on_rank_zero(lambda: self._discard_results(but_rows))

    def _discard_results(self, but_rows: Collection[str]) -> None:
        for path in sorted(self.folder.iterdir()):
            is_of_family = self.family_of_table.get(path.stem, self.family) == self.family
            if path.suffix in RESULTS and is_of_family and path.is_file() and self._is_own(path):
                path.unlink()
        folder = self.folder / PARTS / self.family
        if not folder.exists():
            return
        for path in folder.iterdir():
            if path.is_dir() and path.name not in but_rows:
                shutil.rmtree(path)

    def _is_own(self, path: Path) -> bool:
        """Return whether this run wrote a file of its folder, by its record or by the fingerprint in the file."""
        if path.name in self.written:
            return True
        if path.suffix != ".parquet":
            return False
        try:
            return table_run(path) == self.fingerprint
        except InputError:  # damaged, or of another program
            return False

    def write_facts(self, name: str, facts: dict[str, Any]) -> None:
        """Write facts to the file `name`.json of this run, on rank 0 while the other ranks wait."""
        path = self.folder / f"{name}.json"
        processes.on_rank_zero(lambda: write_json(path, {RUN: self.fingerprint, **facts}))

    def ensure(self, name: str, compute: Callable[[], pd.DataFrame], *, on_all_ranks: bool = False) -> None:
        """Compute and write the table `name`.parquet unless the table is on disk.

        `compute` is called on all ranks if `on_all_ranks` is true, else only on rank 0.
        """
        if self.has(name):
            return
        with self.step(name):
            if on_all_ranks:
                self.write(name, compute())
            else:
                processes.on_rank_zero(lambda: self.write(name, compute()))

    def table(self, name: str, compute: Callable[[], pd.DataFrame], *, on_all_ranks: bool = False) -> pd.DataFrame:
        """Return the table `name`.parquet; compute and write the table first if it is not on disk (`ensure`)."""
        self.ensure(name, compute, on_all_ranks=on_all_ranks)
        return self.read(name)

    def rows(
        self,
        name: str,
        items: pd.DataFrame,
        compute: Callable[[pd.DataFrame], Iterable[pd.DataFrame]],
        unit: str = "rows",
    ) -> pd.DataFrame:
        """Return a row for each item, computed in batches that are saved as they come, so that a killed run can resume.

        Each process computes a part of the rows that are not on disk. Batches that are damaged are computed again.

        Args:
            name: the name of the computation, unique within the family.
            items: what each row is computed from, (n,). The index has a key for each row, by which a later call finds
                it, also among more or other items: ids of prompts, or numbers.
            compute: yields tables of rows for the items that it gets; their index says for which of these items. It
                yields a table without rows, with all columns, if it gets no items.
            unit: the plural noun for a row, for the progress bar.

        Raises:
            InputError: `compute` did not yield every row, or a file cannot be read or written.
        """
        folder = self.folder / PARTS / self.family / name
        if not items.index.is_unique:
            raise ValueError(f"{name}: several items have the same key")
        missing = processes.on_rank_zero(lambda: _missing_keys(folder, items.index, self.fingerprint))
        mine = np.array_split(missing, processes.world_size())[processes.rank()]
        self.tracker.start()
        if len(mine) or items.empty:  # a table without rows is computed, too, since `compute` knows its columns
            # Finished rows are not kept in memory: small tables between a model's large arrays fragment the memory.
            waiting: list[pd.DataFrame] = []
            last_write = -SECONDS_BETWEEN_WRITES  # the first batch is written at once: an unwritable folder fails early
            done = len(items) - len(missing) if processes.world_size() == 1 else 0
            label = name.replace("_", " ") + processes.rank_label()
            with progress(done + len(mine), label, unit, done) as bar:
                try:
                    for batch in compute(items[items.index.isin(mine)]):
                        waiting.append(batch)
                        if time.monotonic() - last_write >= SECONDS_BETWEEN_WRITES:
                            self._write_part(folder, waiting)
                            last_write = time.monotonic()
                        bar.update(len(batch))
                finally:  # rows that were computed before an error are written, too
                    self._write_part(folder, waiting)
        processes.barrier()
        return _read_rows(folder, items.index)

    def _write_part(self, folder: Path, batches: list[pd.DataFrame]) -> None:
        """Write batches of rows to one file, and empty the list."""
        if not batches:
            return
        if not processes.is_rank_zero():  # rank 0 has the lock, which it checks before each write
            record = read_record(self.folder, "output_dir")
            if record is None or record["fingerprint"] != self.fingerprint:
                raise InputError("output_dir", f"{self.folder} was deleted, or another run works in it; give another.")
        rows = pd.concat(batches).rename_axis(KEY).reset_index()
        first = rows[KEY].iloc[0] if len(rows) else 0
        write_table(folder / f"{_file_name(first)}.parquet", rows, self.fingerprint)
        batches.clear()


def _file_name(key: object) -> str:
    """Return the name of the file whose first row has a key: a number, or the hash of a text."""
    return f"{key:08d}" if isinstance(key, (int, np.integer)) else sha256(str(key).encode()).hexdigest()[:16]


def _missing_keys(folder: Path, keys: pd.Index, run: str) -> np.ndarray:
    """Return which of the keys have no row on disk, in their order; delete damaged files.

    Raises:
        InputError: a file has rows of another run, or does not say of which.
    """
    is_on_disk = np.zeros(len(keys), dtype=bool)
    for file in sorted(folder.glob("*.parquet")):
        try:
            owner = table_run(file)
            rows = read_table(file)
        except (InputError, KeyError, IndexError):
            log.warning("%s is damaged; its rows are computed again", file)
            file.unlink()
            continue
        if owner != run:
            raise InputError("output_dir", f"{file} has rows of another run; delete its run's folder, or give another.")
        is_on_disk |= keys.isin(rows[KEY])
    return keys[~is_on_disk].to_numpy()


def _read_rows(folder: Path, keys: pd.Index) -> pd.DataFrame:
    """Return the table of the rows with these keys, in their order."""
    parts = [read_table(file) for file in sorted(folder.glob("*.parquet"))] or [pd.DataFrame(columns=[KEY])]
    table = pd.concat(parts, ignore_index=True).drop_duplicates(KEY).set_index(KEY)
    place = table.index.get_indexer(keys)
    if (place < 0).any():
        raise InputError(folder, f"does not have each of {len(keys)} rows; delete the run's folder and run it again.")
    return table.iloc[place].reset_index(drop=True)
