"""Run folders: a stage computes tables in a folder, once; a killed stage goes on, and a finished one costs nothing."""

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import (
    UNFINISHED,
    check_links_inside,
    dump_yaml,
    explain_full_disk,
    json_sha256,
    remove_temporary_files,
    write_json,
    write_text,
)
from evenhand.evaluation.manifest import (
    CONFIG,
    FORMAT,
    IDENTITY,
    MANIFEST,
    PARTS,
    commit,
    damaged_files,
    hash_results,
    package_versions,
    read_config,
    read_manifest,
    with_relative_paths,
)
from evenhand.evaluation.progress import progress
from evenhand.evaluation.settings import as_settings, identity_of
from evenhand.evaluation.tables import read_table, write_table
from evenhand.evaluation.tracking import Tracker, start_tracking

log = logging.getLogger("evenhand")

LOCK, SCORES = ".lock", "scores.json"
TRACKERS = ("wandb", "tensorboard")  # these folders contain links to other files, and nothing in them is deleted
NO_RESULTS = (CONFIG, IDENTITY, LOCK, *TRACKERS)  # with nothing else, a folder takes any settings
MAX_DIFFERENCES_SHOWN = 5
ROW = "row"  # column of saved batches: the number of the row
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
        seconds: duration of each step, for the manifest.
        facts: further entries of the manifest.
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

    def write(self, name: str, rows: pd.DataFrame) -> None:
        """Write the table `name`.parquet on rank 0 while the other ranks wait."""
        processes.on_rank_zero(lambda: write_table(self.folder / f"{name}.parquet", rows))

    def ensure(self, name: str, compute: Callable[[], pd.DataFrame], *, on_all_ranks: bool = False) -> None:
        """Compute and write the table `name`.parquet unless the table is on disk.

        `compute` is called on all ranks if `on_all_ranks` is true, else only on rank 0.
        """

        def compute_and_write() -> None:
            with self.step(name):
                self.write(name, compute())

        if not self.has(name):
            compute_and_write() if on_all_ranks else processes.on_rank_zero(compute_and_write)

    def table(self, name: str, compute: Callable[[], pd.DataFrame], *, on_all_ranks: bool = False) -> pd.DataFrame:
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


@contextmanager
def stage(command: str, config: Any, inputs: Mapping[str, Any] | None = None) -> Iterator[Store | None]:
    """Yield the new or resumed Store, or None if the stage with the same settings and inputs is already finished.

    Only rank 0 locks the folder and writes the config and the manifest.

    Args:
        command: the command of the stage.
        config: the settings of the stage; `output_dir` is the run folder.
        inputs: fingerprints, by name, of all files and models that affect the results of the stage.

    Raises:
        InputError: the folder has a run with other settings or inputs, or cannot be written.
    """
    folder, inputs = config.output_dir, dict(inputs or {})
    identity = {"command": command, **identity_of(config), **identity_of({"inputs": inputs})}
    with ExitStack() as locks:
        if processes.on_rank_zero(lambda: _is_finished(folder, identity, locks)):
            log.info("%s: %s is finished; nothing to do", command, folder)
            yield None
            return
        start, started = time.monotonic(), datetime.now(UTC)
        settings = with_relative_paths(as_settings(config), folder.resolve())
        settings = {"format": FORMAT, "command": command, **settings, "inputs": inputs}
        tracking = start_tracking(command, config) if processes.is_rank_zero() else nullcontext(Tracker())
        with explain_full_disk(folder):
            processes.on_rank_zero(lambda: write_text(folder / CONFIG, dump_yaml(settings)))
            with tracking as tracker:
                run = Store(folder, json_sha256(identity), tracker, inputs)
                yield run

            def manifest() -> dict[str, Any]:
                return {
                    "format": FORMAT,
                    "command": command,
                    "fingerprint": run.fingerprint,
                    "config": json_sha256(read_config(folder, "output_dir")),
                    "started": started.isoformat(timespec="seconds"),
                    "seconds": {**run.seconds, "total": round(time.monotonic() - start, 2)},
                    "processes": processes.launched_world_size(),
                    "packages": package_versions(),
                    "commit": commit(),
                    "inputs": inputs,
                    "files": hash_results(folder),
                    **run.facts,
                }

            processes.on_rank_zero(lambda: write_json(folder / MANIFEST, manifest()))


def _is_finished(folder: Path, identity: Mapping[str, Any], locks: ExitStack) -> bool:
    """Return whether the stage is finished; if it is not, lock the folder until `locks` closes, and write the identity.

    If files of a finished run are damaged, they and the manifest are deleted, so that the stage recomputes them.
    """
    had_manifest = (folder / MANIFEST).exists()
    if not had_manifest:  # a finished run needs no lock, because it is only read
        locks.enter_context(run_lock(folder))
    if _has_results(folder):
        _check_same_run(folder, identity)
        if (folder / MANIFEST).exists():  # perhaps written by another process before the lock
            manifest = read_manifest(folder, "output_dir")
            damaged = [MANIFEST] if manifest is None else damaged_files(folder, manifest["files"])
            if not damaged:
                return True
            if had_manifest:
                locks.enter_context(run_lock(folder))
            log.warning("%s: %s missing or damaged; computed again", folder, ", ".join(damaged))
            for name in (*damaged, MANIFEST):
                (folder / name).unlink(missing_ok=True)
        log.info("%s: going on in %s", identity["command"], folder)
    remove_temporary_files(folder)
    write_json(folder / IDENTITY, identity)  # before the config, which marks a run that can go on
    return False


def _has_results(folder: Path) -> bool:
    try:
        return (folder / CONFIG).exists() and any(path.name not in NO_RESULTS for path in folder.iterdir())
    except OSError as error:
        raise InputError(f"output_dir: {folder} cannot be read ({error.strerror}); give another.") from None


def _check_same_run(folder: Path, identity: Mapping[str, Any]) -> None:
    """Check that a folder has no run of another identity; if it measured nothing yet, delete its tables instead."""
    read_config(folder, "output_dir")  # of this format
    try:
        earlier = dict(json.loads((folder / IDENTITY).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"output_dir: {folder / IDENTITY} cannot be read ({error}); delete the folder.") from None
    changed = [name for name in {**earlier, **identity} if earlier.get(name, "") != identity.get(name, "")]
    if not changed:
        return
    if (folder / MANIFEST).exists() or (folder / SCORES).exists() or _files_in_subfolders(folder):
        lines = [f"{name} was {earlier.get(name)!r}, now {identity.get(name)!r}" for name in changed]
        if len(lines) > MAX_DIFFERENCES_SHOWN:
            lines[MAX_DIFFERENCES_SHOWN:] = [f"and {len(lines) - MAX_DIFFERENCES_SHOWN} more"]
        responses = folder / "responses.parquet"
        again = f", there with --responses {responses} to score its responses again" if responses.exists() else ""
        raise InputError(
            f"output_dir: {folder} has a run with other settings ({'; '.join(lines)}). "
            f"Give another --output_dir{again}, or delete the folder."
        )
    for path in folder.iterdir():
        if path.suffix in (".parquet", ".json"):
            path.unlink(missing_ok=True)


def _files_in_subfolders(folder: Path) -> list[Path]:
    """Return the files of work that takes long, such as batches of responses or checkpoints."""
    subfolders = (path for path in folder.iterdir() if path.is_dir() and path.name not in NO_RESULTS)
    return [path for it in subfolders for path in it.rglob("*") if path.is_file() and path.suffix != UNFINISHED]


class RunLocked(InputError):
    """The error that another process works in the run folder."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Lock a folder until the block ends; create the folder if it does not exist.

    Raises:
        RunLocked: another process has locked the folder.
        InputError: the folder cannot be written, or a link inside leads out of the folder, so that other files could be
            changed.
    """
    check_links_inside(folder, "output_dir", leave_out=TRACKERS)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        with explain_full_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    except Timeout:
        holder = (folder / LOCK).read_text(encoding="utf-8") or "another process"
        raise RunLocked(f"output_dir: {holder} is at work in {folder}; wait for it, or give another.") from None
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}; choose another --output_dir.") from None
    try:
        with explain_full_disk(folder):
            (folder / LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield
    finally:
        lock.release()


def _missing_rows(folder: Path, n: int, columns: Sequence[str]) -> np.ndarray:
    """Return the numbers of the rows that are not on disk, ascending; delete damaged files."""
    is_missing = np.ones(n, dtype=bool)
    for file in sorted(folder.glob("*.parquet")):
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
    """Write batches of rows every few seconds."""
    # Finished rows are not kept in memory: small tables between a model's large arrays fragment the memory.
    waiting: list[pd.DataFrame] = []
    last_write = -SECONDS_BETWEEN_WRITES  # the first batch is written at once, so an unwritable folder fails early

    def write() -> None:
        if waiting:
            rows = pd.concat(waiting, ignore_index=True)
            write_table(folder / f"{rows[ROW].iloc[0]:08d}.parquet", rows)
            waiting.clear()

    try:
        for indices, *values in batches:
            rows = {ROW: missing[np.asarray(indices, dtype=np.int64)], **dict(zip(columns, values, strict=True))}
            waiting.append(pd.DataFrame(rows))
            if time.monotonic() - last_write >= SECONDS_BETWEEN_WRITES:
                write()
                last_write = time.monotonic()
            advance(len(indices))
    finally:  # rows that were computed before an error are written, too
        write()


def _read_rows(folder: Path, n: int, columns: Sequence[str]) -> pd.DataFrame:
    """Return the table of all rows, in the order of their numbers."""
    parts = [read_table(file) for file in sorted(folder.glob("*.parquet"))] or [pd.DataFrame(columns=[ROW, *columns])]
    table = pd.concat(parts, ignore_index=True).drop_duplicates(ROW).sort_values(ROW, ignore_index=True)
    if len(table) < n:
        raise InputError(f"{folder} does not have each of {n} rows; delete the run's folder and run it again.")
    return table[[*columns]]
