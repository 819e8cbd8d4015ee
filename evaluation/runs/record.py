"""What a run records of itself, in one file, `run.json`. Imports nothing slow.

A stage writes `run.json` when it starts, with the state "running", and again when it ends, with the state "finished",
the duration of each step and the hashes of its results. In the recorded settings, the paths of other runs are relative
to the folder, so that a folder of runs can be moved.
"""

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.files import is_file_name_inside, json_sha256, read_json, write_json
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.runs.paths import with_resolved_paths
from evenhand.evaluation.runs.results import RECORD, damaged_files

RUNNING = "running"
FINISHED = "finished"
FORMAT = 5  # version of the format of a run's files
PACKAGES = ("evenhand", "torch", "transformers", "peft", "trl", "accelerate", "datasets", "numpy", "scipy", "wandb")
MAX_RECORD_BYTES = 200_000_000  # of a run.json, which lists every result file


class RunRecord(TypedDict):
    """The content of a run.json; a command adds further facts, such as the threshold of `label`.

    Attributes:
        format: version of the format of a run's files.
        state: RUNNING or FINISHED.
        command: the command of the stage.
        fingerprint: hash of the identity.
        settings: all settings of the command, with relative paths of other runs.
        identity: the settings and inputs that decide what the results are.
        inputs: fingerprints, by name, of the files and models that the stage reads.
        files: the SHA-256 of each result file, by its relative path; of a finished run.
        versions: the size and the time of change of each result file.
        started: when the stage began, as a text in UTC; of a resumed run, when it was resumed.
        seconds_before: how long a resumed run had worked before.
        processes: the number of processes of the run.
        packages: the version of each package that may affect the numbers.
        commit: the git commit of the code, or None.
        failures: what could not be computed for a reason that may pass, by name.
    """

    format: int
    state: str
    command: str
    fingerprint: str
    settings: dict[str, Any]
    identity: dict[str, Json]
    inputs: dict[str, Any]
    files: dict[str, str]
    versions: dict[str, list[int]]
    started: str
    seconds_before: NotRequired[float]
    processes: int
    packages: dict[str, str]
    commit: str | None
    failures: NotRequired[dict[str, str]]


class RunningRecord(RunRecord):
    """The content of the run.json of a run that is not finished.

    Attributes:
        written: the result files, and folders of them, that the run wrote or is about to write.
    """

    written: list[str]


class FinishedRecord(RunRecord):
    """The content of the run.json of a finished run.

    Attributes:
        seconds: the duration of each step, since a resumed run was resumed; "total" is the whole, also before.
    """

    seconds: dict[str, float]


def read_run(folder: Path, command: str, field: str) -> tuple[dict[str, Any], FinishedRecord]:
    """Return the settings and the record of a finished run of `command`.

    Paths of other runs in the settings are relative to the working directory. `field` is the name of the setting that
    contains the folder, for error messages.

    Raises:
        InputError: the folder has no finished run of this command, or the run is damaged or has another format.
    """
    record = read_record(folder, field)
    if record is None or record["state"] != FINISHED:
        inside = finished_runs_inside(folder, command)
        fix = f"give {' or '.join(map(str, inside))}" if inside else f"run `evenhand {command}` into it first"
        raise InputError(field, f"{folder} has no finished run; {fix}.")
    if record["command"] != command:
        raise InputError(field, f"{folder} is a run of `{record['command']}`, not of `{command}`.")
    if damaged := damaged_files(folder, record):
        raise InputError(
            field,
            f"{folder / damaged[0]} is missing or damaged (its SHA-256 is not the recorded one); undo the "
            f"change, or run `evenhand {command}` into that folder again to recompute it.",
        )
    return with_resolved_paths(record["settings"], folder), cast(FinishedRecord, record)


def finished_runs_inside(folder: Path, command: str) -> list[Path]:
    """Return the folders of finished runs of a command in a folder, such as a loop's, or in a folder in it."""
    found = []
    for path in sorted([*folder.glob(f"*/{RECORD}"), *folder.glob(f"*/*/{RECORD}")]):
        with suppress(InputError):  # of another version
            record = read_record(path.parent, "")
            if record is not None and (record["command"], record["state"]) == (command, FINISHED):
                found.append(path.parent)
    return found


def run_sha256(record: RunRecord) -> str:
    """Return the fingerprint of a finished run, for a run that reads it: of what went into the run, and its tables."""
    return json_sha256([record["fingerprint"], record["files"]])


def run_state(folder: Path, field: str = "output_dir") -> str | None:
    """Return the state of the run in a folder, RUNNING or FINISHED; None without a run."""
    record = read_record(folder, field)
    return None if record is None else record["state"]


def read_record(folder: Path, field: str) -> RunRecord | None:
    """Return the record of the run in a folder, finished or not; None without one.

    Raises:
        InputError: the record cannot be read, was changed by hand, or is of an unknown format.
    """
    path = folder / RECORD
    try:
        exists = path.exists()
    except OSError as error:  # a name that is too long, or a folder that nobody may read
        raise InputError(field, f"{folder} cannot be used: {error.strerror or error}; give another.") from None
    if not exists:
        return None
    record = read_json(path, field, MAX_RECORD_BYTES)
    repair = f"get an intact copy, or delete {folder} and run the command again"
    if not isinstance(record, dict) or not isinstance(record.get("command"), str):
        raise InputError(field, f"{path} is no record of a run; {repair}.")
    if record.get("format") != FORMAT:
        raise InputError(
            field,
            f"{folder} is a run of another version of Evenhand (its format is {record.get('format')}, not "
            f"{FORMAT}); run `evenhand {record['command']}` again, into another folder.",
        )
    if record.pop("sha256", None) != json_sha256(record):
        raise InputError(field, f"{path} was changed or is damaged (its SHA-256 is not right); undo that, {repair}.")
    return _checked_record(record, path, field)


def write_record(folder: Path, record: Mapping[str, object]) -> None:
    """Write the record of a run, with its own SHA-256, by which a change by hand is noticed."""
    plain = json.loads(json.dumps(record, default=str))
    write_json(folder / RECORD, {**plain, "sha256": json_sha256(plain)})


def _checked_record(record: dict[str, Any], path: Path, field: str) -> RunRecord:
    """Return the record; InputError if it lists a file outside of its folder, or lacks a key that every record has."""
    files = record.get("files")
    kinds = {"versions": dict, "settings": dict, "identity": dict, "inputs": dict, "command": str, "fingerprint": str}
    if not isinstance(files, dict) or any(not isinstance(record.get(name), kind) for name, kind in kinds.items()):
        raise InputError(field, f"{path} is no record of a run; delete its folder and run the command again.")
    for name in files:  # the run may come from another person, and a stage deletes damaged files
        if not is_file_name_inside(path.parent, name):
            raise InputError(
                field,
                f"{path} lists the file {format_value(name)}, which is not the name of a file "
                "inside that folder; nothing was deleted. Get an intact copy of the run, or give another folder.",
            )
    return cast(RunRecord, record)


def package_versions() -> dict[str, str]:
    """Return the installed version of each package that may affect the numbers of a run."""
    return {name: _version(name) for name in PACKAGES}


@cache
def _version(package: str) -> str:
    """Return the installed version of a package, which takes a few milliseconds to find."""
    return version(package)


def commit() -> str | None:
    """Return the git commit of this code, with "-dirty" if the working copy has changes.

    The result is None if git does not track this file, for example because the package is installed.
    """
    path = Path(__file__).resolve()
    git = ["git", "-C", str(path.parent)]
    try:
        # An installed package may lie inside another project's working copy, whose commit does not describe it.
        subprocess.run([*git, "ls-files", "--error-unmatch", str(path)], capture_output=True, check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty" if changes.strip() else head
