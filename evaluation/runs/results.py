"""The files of a run's folder: which are results of the run, and which of these are damaged. Imports nothing slow."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from evenhand.evaluation.files import TEMPORARY, is_file_name_inside, sha256_of

RECORD = "run.json"
PARTS = "parts"
PAGES = ".evenhand"  # marks a folder of pages that is no run: the command that wrote them
LOCK = ".lock"
TRACKERS = ("wandb", "tensorboard")  # these folders contain links to other files, and nothing in them is deleted
# Reports are not hashed, because users may edit them, nor are summaries, because they are rewritten on request.
RESULTS = (".parquet", ".json", ".csv", ".safetensors")
NOT_RESULTS = (RECORD, PARTS, "checkpoints", "summary", *TRACKERS)


def own_paths(folder: Path) -> Iterator[Path]:
    """Yield the files and folders in a run's folder, without trackers' folders and the folders of other runs."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders[:] = [name for name in folders if name not in TRACKERS and not _is_run(here / name)]
        yield from (here / name for name in (*folders, *files))


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (RECORD, LOCK, PAGES))


def is_result(name: str) -> bool:
    """Return whether a file, by its path relative to the run's folder, is a result, or may be a folder of results."""
    parts = name.split("/")
    is_kept = parts[0] not in NOT_RESULTS and not any(TEMPORARY.fullmatch(part) for part in parts)
    return is_kept and PurePath(name).suffix in (*RESULTS, "") and not parts[0].startswith(".")


def recorded_results(folder: Path, written: Iterable[str]) -> dict[str, dict[str, str] | dict[str, list[int]]]:
    """Return the entries of a record on the result files: the SHA-256 of each, and its size and time of change.

    `written` has the files, and folders of files, that the run wrote. Others in the folder are not the run's.
    """
    files: dict[str, Path] = {}
    for written_name in written:
        written_path = folder / written_name
        found = written_path.rglob("*") if written_path.is_dir() else [written_path]
        for path in found:
            name = path.relative_to(folder).as_posix()
            if path.suffix in RESULTS and path.is_file() and is_file_name_inside(folder, name):
                files[name] = path
    files = dict(sorted(files.items()))
    return {
        "files": {name: sha256_of(path) for name, path in files.items()},
        "versions": {name: _size_and_time(path) for name, path in files.items()},
    }


def damaged_files(folder: Path, record: Mapping[str, Any]) -> list[str]:
    """Return the names of the recorded files that are missing or have changed.

    A file with the recorded size and time of change is not read; any other file is compared by its SHA-256.
    """
    versions = record["versions"]
    damaged = []
    for name, sha256 in record["files"].items():
        path = folder / name
        is_as_recorded = path.is_file() and (versions.get(name) == _size_and_time(path) or sha256_of(path) == sha256)
        if not is_as_recorded:
            damaged.append(name)
    return damaged


def _size_and_time(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
