"""Beginning, resuming and ending of a run: a stage computes the tables of a folder once.

If a stage was killed, the same command continues where it stopped; if it is finished, the same command does nothing.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import TEMPORARY, explain_full_disk, json_sha256, remove_temporary_files
from evenhand.evaluation.json_values import Json, JsonObject
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.lock import run_lock
from evenhand.evaluation.runs.pages import check_no_files
from evenhand.evaluation.runs.paths import with_relative_paths
from evenhand.evaluation.runs.record import (
    FINISHED,
    FORMAT,
    RUNNING,
    FinishedRecord,
    RunningRecord,
    RunRecord,
    commit,
    package_versions,
    read_record,
    write_record,
)
from evenhand.evaluation.runs.results import LOCK, RECORD, damaged_files, is_result, own_paths, recorded_results
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker, start_tracking
from evenhand.evaluation.score import SCORES
from evenhand.evaluation.settings import as_settings, identity_of

log = logging.getLogger("evenhand")

MAX_DIFFERENCES_SHOWN = 5
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
    identity = json.loads(json.dumps({"command": command, **identity_of(config), **identity_of({"inputs": inputs})}))
    settings = with_relative_paths(as_settings(config), folder.resolve())
    record = _record_of_start(command, settings, identity, inputs)
    find_state = partial(_state_and_outdated_files, folder, record["identity"], advice, suffices)
    with ExitStack() as locks:
        if processes.on_rank_zero(lambda: _finished_or_begun(folder, record, locks, find_state) == FINISHED):
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


def _record_of_start(
    command: str, settings: dict[str, Any], identity: dict[str, Json], inputs: JsonObject
) -> RunningRecord:
    """Return the record of a run that starts now."""
    return {
        "format": FORMAT,
        "state": RUNNING,
        "command": command,
        "fingerprint": json_sha256(identity),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "processes": processes.launched_world_size(),
        "packages": package_versions(),
        "commit": commit(),
        "settings": settings,
        "identity": identity,
        "inputs": dict(inputs),
        "files": {},
        "versions": {},
        "written": [],
    }


def _finished_or_begun(
    folder: Path, record: RunningRecord, locks: ExitStack, find_state: Callable[[], tuple[str, list[str]]]
) -> str:
    """Return FINISHED if the stage is finished; otherwise begin it, and return RUNNING.

    `find_state` is `_state_and_outdated_files`. Beginning a stage locks its folder until `locks` closes,
    deletes the files that are computed again, and writes the record.
    """
    state, outdated = find_state()
    if state == FINISHED and not outdated:  # a finished run needs no lock, because it is only read
        return FINISHED
    known: list[str] = []  # the results of this run, and of an earlier one that did no long work
    locks.enter_context(run_lock(folder, partial(_list_result, folder.resolve(), record, known)))
    # Again: perhaps another process has finished it.
    state, outdated = find_state()
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


def _list_result(folder: Path, record: RunningRecord, known: Sequence[str], path: Path) -> None:
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
        raise InputError(
            "output_dir", f"{path} is no file of this run; move it, or give another {spelled('output_dir')}."
        )
    record["written"].append(name)
    write_record(folder, record)


def _is_listed(name: str, written: Iterable[str]) -> bool:
    """Return whether a result, or a folder that it is in, or files in it, are among the names of results."""
    return any(name == other or name.startswith(f"{other}/") or other.startswith(f"{name}/") for other in written)


def _state_and_outdated_files(
    folder: Path, identity: Mapping[str, object], advice: Advice | None, suffices: Suffices | None
) -> tuple[str, list[str]]:
    """Return FINISHED if a folder has the finished run of an identity, else RUNNING; and the files to compute again.

    These are damaged files, or all files of a run that does not suffice. A run whose record lists failures, which may
    pass, is RUNNING.

    Raises:
        InputError: the folder has a run of another identity, or it has files and is no run.
    """
    earlier = read_record(folder, "output_dir")
    if earlier is None:
        check_no_files(folder)
        return RUNNING, []
    _check_same_run(folder, earlier, identity, advice)
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
    started = datetime.fromisoformat(earlier["started"]).timestamp()
    last = started
    for path in own_paths(folder):
        if path.is_file() and path.name not in (LOCK, RECORD):
            last = max(last, path.stat().st_mtime)
    return before + last - started


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
    fix = f"Give another {spelled('output_dir')}"
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
