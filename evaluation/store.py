"""Run folders: a stage computes the tables of a folder once.

If a stage was killed, the same command continues where it stopped; if it is finished, the same command does nothing.
Every table, and every saved batch of rows, has the fingerprint of the run that computed it. A run reads only its own.
"""

import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import (
    TEMPORARY,
    check_links_inside,
    explain_full_disk,
    json_sha256,
    read_json,
    remove_temporary_files,
    write_json,
    write_text,
    writes_checked,
)
from evenhand.evaluation.json_values import Json, JsonObject
from evenhand.evaluation.manifest import (
    FINISHED,
    FORMAT,
    LOCK,
    MANIFEST,
    PAGES,
    PARTS,
    RESULTS,
    RUNNING,
    TRACKERS,
    FinishedRecord,
    RunRecord,
    commit,
    damaged_files,
    is_result,
    own_paths,
    package_versions,
    read_record,
    recorded_results,
    with_relative_paths,
    write_record,
)
from evenhand.evaluation.progress import progress, working
from evenhand.evaluation.score import SCORES
from evenhand.evaluation.settings import as_settings, identity_of
from evenhand.evaluation.tables import read_table, table_run, write_table
from evenhand.evaluation.tracking import Tracker, start_tracking

log = logging.getLogger("evenhand")

MAX_DIFFERENCES_SHOWN = 5
ROW = "row"  # column of saved batches: the number of the row
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
            raise InputError("output_dir", f"{path} is no table of this run; move it, or give another --output_dir.")
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
        """Return the facts in the file `name`.json; compute and write them first unless this run has written them."""
        kept = self.read_facts(name)
        if kept is not None:
            return kept
        facts = compute()
        self.write_facts(name, facts)
        return facts

    def read_facts(self, name: str) -> dict[str, Any] | None:
        """Return the facts in the file `name`.json; None if this run has not written it."""
        path = self.folder / f"{name}.json"
        if path.exists():
            facts = read_json(path, "output_dir")
            if isinstance(facts, dict) and facts.pop(RUN, None) == self.fingerprint:
                return facts
        return None

    def discard_results(self, *, but_rows: Collection[str]) -> None:
        """Delete the tables and facts of the run, and all saved batches of the family except those named.

        Tables that other families have written or found stay: their reports read them at the end of the run. So do all
        files that are not of this run, such as notes of the user and other runs in subfolders.
        """
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
        """Write facts to the file `name`.json of this run."""
        write_json(self.folder / f"{name}.json", {RUN: self.fingerprint, **facts})

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
        numbers: np.ndarray | None = None,
        watch: Callable[[pd.DataFrame], object] | None = None,
    ) -> pd.DataFrame:
        """Return a row for each item, computed in batches that are saved as they come, so that a killed run can resume.

        Each process computes a part of the rows that are not on disk. Batches that are damaged are computed again.

        Args:
            name: the name of the computation, unique within the family.
            items: what each row is computed from, (n,).
            compute: yields tables of rows for the items that it gets; their index says for which of these items. It
                yields a table without rows, with all columns, if it gets no items.
            unit: the plural noun for a row, for the progress bar.
            numbers: the number of each item among all items of which rows may be computed later, (n,), ascending;
                None: these are all items.
            watch: called with each batch as it comes, such as to show it.

        Raises:
            InputError: `compute` did not yield every row, or a file cannot be read or written.
        """
        folder = self.folder / PARTS / self.family / name
        if numbers is None:
            numbers = np.arange(len(items))
        missing = processes.on_rank_zero(lambda: _missing_rows(folder, numbers, self.fingerprint))
        mine = np.array_split(missing, processes.world_size())[processes.rank()]
        if len(mine) or items.empty:  # a table without rows is computed, too, since `compute` knows its columns
            # Finished rows are not kept in memory: small tables between a model's large arrays fragment the memory.
            waiting: list[pd.DataFrame] = []
            last_write = -SECONDS_BETWEEN_WRITES  # the first batch is written at once: an unwritable folder fails early
            done = len(items) - len(missing) if processes.world_size() == 1 else 0
            label = name.replace("_", " ") + processes.rank_label()
            with progress(done + len(mine), label, unit, done) as bar:
                try:
                    for batch in compute(items.set_axis(numbers).loc[mine]):
                        waiting.append(batch)
                        if time.monotonic() - last_write >= SECONDS_BETWEEN_WRITES:
                            self._write_part(folder, waiting)
                            last_write = time.monotonic()
                        bar.update(len(batch))
                        if watch is not None:
                            watch(batch)
                finally:  # rows that were computed before an error are written, too
                    self._write_part(folder, waiting)
        processes.barrier()
        return _read_rows(folder, numbers)

    def _write_part(self, folder: Path, batches: list[pd.DataFrame]) -> None:
        """Write batches of rows to one file, and empty the list."""
        if not batches:
            return
        if not processes.is_rank_zero():  # rank 0 has the lock, which it checks before each write
            record = read_record(self.folder, "output_dir")
            if record is None or record["fingerprint"] != self.fingerprint:
                raise InputError("output_dir", f"{self.folder} was deleted, or another run works in it; give another.")
        rows = pd.concat(batches).rename_axis(ROW).reset_index()
        first = rows[ROW].iloc[0] if len(rows) else 0
        write_table(folder / f"{first:08d}.parquet", rows, self.fingerprint)
        batches.clear()


Advice = Callable[[Sequence[str], Path], str]
Suffices = Callable[[RunRecord], bool]


@contextmanager
def stage(
    command: str,
    config: Any,
    inputs: JsonObject | None = None,
    advice: Advice | None = None,
    suffices: Suffices | None = None,
) -> Iterator[Store | None]:
    """Yield the new or resumed Store, or None if the stage with the same settings and inputs is already finished.

    Only rank 0 locks the folder and writes the record.

    Args:
        command: the command of the stage.
        config: the settings of the stage; `output_dir` is the run folder.
        inputs: fingerprints, by name, of all files and models that affect the results of the stage.
        advice: returns a part of the error about a run with other settings, given the names of what changed and the
            folder; None: the error has no such part.
        suffices: returns whether a finished run with this record is all that is asked for; if not, the stage goes on,
            and computes the results again from the rows that are on disk and more. None: any finished run is.

    Raises:
        InputError: the folder has a run with other settings or inputs, has files and is no run, or cannot be written.
    """
    folder = config.output_dir
    inputs = dict(inputs or {})
    start = time.monotonic()
    record = _record_of_start(command, config, inputs)
    with ExitStack() as locks:
        if processes.on_rank_zero(lambda: _finished_or_begun(folder, record, locks, advice, suffices) == FINISHED):
            log.info("%s: %s is finished; nothing to do", command, folder)
            yield None
            return
        tracking = start_tracking(command, config) if processes.is_rank_zero() else nullcontext(Tracker())
        with explain_full_disk(folder):
            with tracking as tracker:
                store = Store(folder, record["fingerprint"], tracker, inputs, written=record["written"])
                yield store

            def finish() -> None:
                finished: dict[str, object] = {**record, "state": FINISHED}
                del finished["written"]
                finished.update(recorded_results(folder, record["written"]))
                total = record.get("seconds_before", 0.0) + time.monotonic() - start
                finished["seconds"] = {**store.seconds, "total": round(total, 2)}
                finished.update(store.record)
                if store.failures:
                    finished["failures"] = store.failures
                    listed = "; ".join(f"{name}: {reason}" for name, reason in store.failures.items())
                    log.warning("%s: not computed: %s. The same command tries again.", command, listed)
                write_record(folder, finished)

            processes.on_rank_zero(finish)


def _record_of_start(command: str, config: Any, inputs: JsonObject) -> RunRecord:
    """Return the record of a run that starts now."""
    identity = json.loads(json.dumps({"command": command, **identity_of(config), **identity_of({"inputs": inputs})}))
    return {
        "format": FORMAT,
        "state": RUNNING,
        "command": command,
        "fingerprint": json_sha256(identity),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "processes": processes.launched_world_size(),
        "packages": package_versions(),
        "commit": commit(),
        "settings": with_relative_paths(as_settings(config), config.output_dir.resolve()),
        "identity": identity,
        "inputs": dict(inputs),
        "files": {},
        "versions": {},
        "written": [],
    }


def _finished_or_begun(
    folder: Path, record: RunRecord, locks: ExitStack, advice: Advice | None, suffices: Suffices | None
) -> str:
    """Return FINISHED if the stage is finished; otherwise begin it, and return RUNNING.

    Beginning a stage locks its folder until `locks` closes, deletes the files that are computed again, and writes the
    record.
    """
    state, outdated = _state_and_outdated_files(folder, record, advice, suffices)
    if state == FINISHED and not outdated:  # a finished run needs no lock, because it is only read
        return FINISHED
    known: list[str] = []  # the results of this run, and of an earlier one that did no long work
    locks.enter_context(run_lock(folder, partial(_list_result, folder.resolve(), record, known)))
    # Again: perhaps another process has finished it.
    state, outdated = _state_and_outdated_files(folder, record, advice, suffices)
    if state == FINISHED and not outdated:
        return FINISHED
    earlier = read_record(folder, "output_dir")
    if state == FINISHED:
        log.warning("%s: %s missing or damaged; computed again", folder, ", ".join(outdated))
    elif earlier is not None and earlier["fingerprint"] == record["fingerprint"]:
        log.info("%s: going on in %s", record["command"], folder)
    if earlier is not None:
        known += [*earlier["files"], *earlier.get("written", [])]
    if earlier is not None and earlier["fingerprint"] == record["fingerprint"]:
        record["seconds_before"] = round(_seconds_worked(folder, earlier), 2)
        record["written"] += known
    remove_temporary_files(list(own_paths(folder)))
    for name in outdated:
        (folder / name).unlink(missing_ok=True)
    write_record(folder, record)
    return RUNNING


def _list_result(folder: Path, record: RunRecord, known: Sequence[str], path: Path) -> None:
    """Add a result that is about to be written to the record, which then also lists the results of a killed run.

    Args:
        folder, path: the resolved paths of the run's folder, and of the file, or the folder of files, in it.
        known: the names of results that are in the folder from before.

    Raises:
        InputError: there is a file at the path, and it is none of this run.
    """
    name = path.relative_to(folder).as_posix()
    if not is_result(name) or _is_listed(name, record["written"]):
        return
    if path.exists() and not _is_listed(name, known):
        raise InputError("output_dir", f"{path} is no file of this run; move it, or give another --output_dir.")
    record["written"].append(name)
    write_record(folder, record)


def _is_listed(name: str, written: Iterable[str]) -> bool:
    """Return whether a result, or a folder that it is in, or files in it, are among the names of results."""
    return any(name == other or name.startswith(f"{other}/") or other.startswith(f"{name}/") for other in written)


def _state_and_outdated_files(
    folder: Path, record: RunRecord, advice: Advice | None, suffices: Suffices | None
) -> tuple[str, list[str]]:
    """Return FINISHED if a folder has the finished run of a record, else RUNNING; and the files to compute again.

    These are damaged files, or all files of a run that does not suffice. A run whose record lists failures, which may
    pass, is RUNNING.

    Raises:
        InputError: the folder has a run of another identity, or it has files and is no run.
    """
    earlier = read_record(folder, "output_dir")
    if earlier is None:
        check_no_files(folder)
        return RUNNING, []
    _check_same_run(folder, earlier, record["identity"], advice)
    if earlier["state"] != FINISHED:
        return RUNNING, []
    if suffices is not None and not suffices(earlier):
        return RUNNING, list(earlier["files"])
    damaged = damaged_files(folder, earlier)
    if earlier.get("failures"):
        return RUNNING, damaged
    return FINISHED, damaged


def _seconds_worked(folder: Path, earlier: RunRecord) -> float:
    """Return the seconds that an earlier run worked; a killed run worked until it last wrote a file."""
    if earlier["state"] == FINISHED:
        return cast(FinishedRecord, earlier)["seconds"]["total"]
    before = earlier.get("seconds_before", 0.0)
    if "started" not in earlier:
        return before
    started = datetime.fromisoformat(earlier["started"]).timestamp()
    last = started
    for path in own_paths(folder):
        if path.is_file() and path.name not in (LOCK, MANIFEST):
            last = max(last, path.stat().st_mtime)
    return before + last - started


def check_no_files(folder: Path, but_folders: bool = False) -> None:
    """Raise InputError if a folder has files, since it is no run: files of the user are not replaced or deleted.

    With `but_folders`, it may have folders.
    """
    try:
        found = sorted(folder.iterdir()) if folder.exists() else []
        names = [path.name for path in found if not (but_folders and path.is_dir())]
    except OSError as error:
        raise InputError("output_dir", f"{folder} cannot be read ({error.strerror}); give another.") from None
    others = [name for name in names if name != LOCK and not TEMPORARY.fullmatch(name)]
    if others:
        raise InputError(
            "output_dir",
            f"{folder} is not empty and no run of Evenhand (it has {others[0]}); give another folder, so "
            "that no file of yours is replaced.",
        )


def _check_same_run(folder: Path, earlier: RunRecord, identity: Mapping[str, object], advice: Advice | None) -> None:
    """Raise InputError if a folder has a run of another identity, unless that run has done no long work yet."""
    old = earlier["identity"]
    changed = [name for name in {**old, **identity} if old.get(name, "") != identity.get(name, "")]
    is_unfinished = earlier["state"] != FINISHED
    if not changed or (is_unfinished and not _has_work(folder)):
        return
    lines = [f"{name} was {old.get(name)!r}, now {identity.get(name)!r}" for name in changed]
    if len(lines) > MAX_DIFFERENCES_SHOWN:
        lines[MAX_DIFFERENCES_SHOWN:] = [f"and {len(lines) - MAX_DIFFERENCES_SHOWN} more"]
    fix = "Give another --output_dir"
    if advice is not None:
        fix += advice(changed, folder)
    raise InputError(
        "output_dir",
        f"{folder} has a run with other settings ({'; '.join(lines)}). {fix}, or delete the folder.",
    )


def _has_work(folder: Path) -> bool:
    """Return whether an unfinished run has results that took long: scores, batches of responses, checkpoints."""
    files = (path for path in own_paths(folder) if path.parent != folder and path.is_file())
    return (folder / SCORES).exists() or any(not TEMPORARY.fullmatch(path.name) for path in files)


def claim_pages(folder: Path, command: str) -> None:
    """Mark a folder that is no run as the folder of a command's pages, which the command may replace.

    Subfolders do not matter, since nothing in them is replaced.

    Raises:
        InputError: the folder has files of the user, or pages of another command.
    """
    mark = folder / PAGES
    check_links_inside(folder, "output_dir", leave_out=TRACKERS)
    if mark.is_file():
        written_by = mark.read_text(encoding="utf-8", errors="replace").strip()
        if written_by != command:
            raise InputError("output_dir", f"{folder} has pages of `{written_by[:40]}`; give another folder.")
        return
    if read_record(folder, "output_dir") is not None:
        raise InputError("output_dir", f"{folder} has a run; give another folder to `{command}`.")
    check_no_files(folder, but_folders=True)
    write_text(mark, f"{command}\n")


class RunLocked(InputError):
    """The error that another process works in the run folder."""


@contextmanager
def run_lock(folder: Path, list_result: Callable[[Path], None] = lambda path: None) -> Iterator[None]:
    """Lock a folder until the block ends; create the folder if it does not exist.

    `list_result` is called with the resolved path of each file in the folder before it is written within the block.

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
        raise RunLocked("output_dir", f"{holder} is at work in {folder}; wait for it, or give another.") from None
    except OSError as error:
        raise InputError(
            folder, f"cannot be written ({error.strerror or error}); choose another --output_dir."
        ) from None
    try:
        with explain_full_disk(folder):
            (folder / LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        held = _file_number(folder / LOCK)

        def check(path: Path) -> None:
            if _file_number(folder / LOCK) != held:
                raise InputError(
                    "output_dir",
                    f"{folder} was deleted while this command worked in it, and perhaps another one works "
                    "in it now; nothing more was written. Give another --output_dir, or the command again.",
                )
            list_result(path)

        with writes_checked(folder, check):
            yield
    finally:
        lock.release()


def _file_number(path: Path) -> tuple[int, int] | None:
    """Return the numbers of the device and of the file; another file at the same path has other numbers."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _missing_rows(folder: Path, numbers: np.ndarray, run: str) -> np.ndarray:
    """Return which of the numbers of rows are not on disk, ascending; delete damaged files.

    Raises:
        InputError: a file has rows of another run, or does not say of which.
    """
    on_disk = []
    for file in sorted(folder.glob("*.parquet")):
        try:
            owner = table_run(file)
            rows = read_table(file)[ROW].to_numpy()
            if owner == run:
                on_disk.append(rows)
        except (InputError, KeyError, IndexError):
            log.warning("%s is damaged; its rows are computed again", file)
            file.unlink()
            continue
        if owner != run:
            raise InputError("output_dir", f"{file} has rows of another run; delete its run's folder, or give another.")
    return np.setdiff1d(numbers, np.concatenate([*on_disk, []]))


def _read_rows(folder: Path, numbers: np.ndarray) -> pd.DataFrame:
    """Return the table of the rows with these numbers, in their order."""
    parts = [read_table(file) for file in sorted(folder.glob("*.parquet"))] or [pd.DataFrame(columns=[ROW])]
    table = pd.concat(parts, ignore_index=True).drop_duplicates(ROW).sort_values(ROW, ignore_index=True)
    table = table.loc[np.isin(table[ROW].to_numpy(), numbers)]
    if len(table) < len(numbers):
        raise InputError(
            folder, f"does not have each of {len(numbers)} rows; delete the run's folder and run it again."
        )
    return table.drop(columns=ROW).reset_index(drop=True)
