"""Stages that work in a run folder. A stage is skipped if it is finished, and resumed if it is unfinished.

A stage raises an error if the folder has a run with other settings.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.environment import commit, package_versions
from evenhand.evaluation.runs.files import (
    UNFINISHED,
    explain_full_disk,
    json_sha256,
    remove_temporary_files,
    write_json,
)
from evenhand.evaluation.runs.lock import LOCK, run_lock
from evenhand.evaluation.runs.manifest import (
    FORMAT,
    damaged_files,
    hash_results,
    read_config,
    read_identity,
    read_manifest,
    write_config,
    write_manifest,
)
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.run_paths import CONFIG, IDENTITY, MANIFEST, run_folders, with_relative_paths
from evenhand.evaluation.runs.tracking import Tracker, start_tracking
from evenhand.evaluation.settings import as_settings, identity_of

log = logging.getLogger("evenhand")

NO_RESULTS = (CONFIG, IDENTITY, LOCK, "wandb", "tensorboard")  # with nothing else, a folder takes any settings
SCORES = "scores.json"
MAX_DIFFERENCES_SHOWN = 5


@contextmanager
def stage(
    command: str, config: Any, inputs: Mapping[str, Any] | None = None, recomputable: Mapping[str, str] | None = None
) -> Iterator[Run | None]:
    """Yield a new or resumed Run, or None if the stage with the same settings and inputs is already finished.

    Only rank 0 locks the folder and writes the config and the manifest.

    Args:
        command: the command of the stage.
        config: the settings of the stage; `output_dir` is the run folder.
        inputs: fingerprints, by name, of all files and models that affect the results of the stage.
        recomputable: dotted names of settings that affect only one table, with the name of this table. If only such
            settings differ from the settings of an unfinished run, the tables are deleted and the run continues.

    Raises:
        InputError: the folder has a run with other settings or inputs, or cannot be written.
    """
    folder, inputs = config.output_dir, dict(inputs or {})
    settings = {
        "format": FORMAT,
        "command": command,
        **with_relative_paths(as_settings(config), folder.resolve()),
        "inputs": inputs,
    }
    identity = {"command": command, **identity_of(config), **identity_of({"inputs": inputs})}
    with ExitStack() as locks:
        if processes.on_rank_zero(lambda: _is_finished(folder, settings, identity, recomputable or {}, locks)):
            log.info("%s: %s is finished; nothing to do", command, folder)
            yield None
            return
        start, started = time.monotonic(), datetime.now(UTC)
        tracking = start_tracking(command, config) if processes.is_rank_zero() else nullcontext(Tracker())
        with explain_full_disk(folder), tracking as tracker:
            run = Run(folder, json_sha256(identity), tracker, inputs)
            for read in dict.fromkeys(run_folders(as_settings(config))):
                tracker.link_inputs(read)
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

        processes.on_rank_zero(lambda: write_manifest(folder, manifest()))


def _is_finished(
    folder: Path,
    settings: Mapping[str, Any],
    identity: Mapping[str, Any],
    recomputable: Mapping[str, str],
    locks: ExitStack,
) -> bool:
    """Return whether the stage is finished; if it is not, lock the folder, write the config and remove temporary files.

    The lock is released when `locks` is closed.

    Raises:
        InputError: the folder has a run with other settings, or cannot be written.
    """
    if not (folder / MANIFEST).exists():  # a finished run needs no lock, because it is only read
        locks.enter_context(run_lock(folder))
    if _has_results(folder):
        _check_same_run(folder, identity, recomputable)
        if _is_intact(folder, locks):
            return True
        log.info("%s: going on in %s", settings["command"], folder)
    remove_temporary_files(folder)
    write_json(folder / IDENTITY, identity)  # before the config, which marks a run that can go on
    write_config(folder, settings)
    return False


def _has_results(folder: Path) -> bool:
    try:
        return (folder / CONFIG).exists() and any(path.name not in NO_RESULTS for path in folder.iterdir())
    except OSError as error:
        raise InputError(f"output_dir: {folder} cannot be read ({error.strerror}); give another.") from None


def _check_same_run(folder: Path, identity: Mapping[str, Any], recomputable: Mapping[str, str]) -> None:
    """Delete the tables of an unfinished run that depend on a difference of the run's identity.

    These are the tables of `recomputable` if only such settings differ, and all tables if nothing was measured yet.

    Raises:
        InputError: the run is finished, or the difference affects tables that take long to compute.
    """
    earlier = read_identity(folder, "output_dir")
    changed = [name for name in {**earlier, **identity} if earlier.get(name, "") != identity.get(name, "")]
    if changed and not (folder / MANIFEST).exists():
        if recomputable.keys() >= set(changed):
            stale = [folder / f"{recomputable[name]}.parquet" for name in changed]
        elif _is_unmeasured(folder):
            stale = [path for path in folder.iterdir() if path.suffix in (".parquet", ".json")]
        else:
            stale = []
        for path in stale:
            path.unlink(missing_ok=True)
        if stale:
            return
    lines = [f"{name} was {earlier.get(name)!r}, now {identity.get(name)!r}" for name in changed]
    if len(lines) > MAX_DIFFERENCES_SHOWN:
        lines[MAX_DIFFERENCES_SHOWN:] = [f"and {len(lines) - MAX_DIFFERENCES_SHOWN} more"]
    if lines:
        raise InputError(
            f"output_dir: {folder} has a run with other settings ({'; '.join(lines)}). "
            "Give another --output_dir, or delete the folder."
        )


def _is_unmeasured(folder: Path) -> bool:
    """Return whether a run has made nothing but what takes seconds: it has no scores, and no file in a subfolder."""
    subfolders = (path for path in folder.iterdir() if path.is_dir() and path.name not in NO_RESULTS)
    return not (folder / SCORES).exists() and not any(
        path.is_file() and not path.name.endswith(UNFINISHED)
        for subfolder in subfolders
        for path in subfolder.rglob("*")
    )


def _is_intact(folder: Path, locks: ExitStack) -> bool:
    """Return whether a run has a manifest and all files that the manifest lists are unchanged.

    If files are damaged, lock the folder and delete the damaged files and the manifest, so that the stage recomputes
    the files.
    """
    if not (folder / MANIFEST).exists():
        return False
    manifest = read_manifest(folder, "output_dir")
    damaged = [MANIFEST] if manifest is None else damaged_files(folder, manifest["files"])
    if not damaged:
        return True
    locks.enter_context(run_lock(folder))
    log.warning("%s: %s missing or damaged; computed again", folder, ", ".join(damaged))
    for name in (*damaged, MANIFEST):
        (folder / name).unlink(missing_ok=True)
    return False
