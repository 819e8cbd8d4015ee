"""Finished runs that tests make up."""

from pathlib import Path
from typing import Any

from evenhand.evaluation.runs.record import FINISHED, FORMAT, read_record, write_record


def write_run(folder: Path, command: str, **settings: Any) -> Path:
    """Return the folder of a finished run of a command without results."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"format": FORMAT, "state": FINISHED, "command": command, "fingerprint": "", "identity": {}}
    write_record(folder, {**record, "settings": settings, "inputs": {}, "files": {}, "versions": {}})
    return folder


def change_record(folder: Path, **entries: Any) -> None:
    """Change entries of a run's record, as somebody could who knows its format."""
    write_record(folder, {**read_record(folder, "folder"), **entries})
