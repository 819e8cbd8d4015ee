"""Finished runs that tests make up, and runs as format 4 recorded them."""

import json
from pathlib import Path
from typing import Any

import yaml

from evenhand.evaluation.files import json_sha256, write_json
from evenhand.evaluation.manifest import FINISHED, FORMAT, OLD_FORMAT, read_record, write_record


def write_run(folder: Path, command: str, **settings: Any) -> Path:
    """Return the folder of a finished run of a command without results."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {"format": FORMAT, "state": FINISHED, "command": command, "fingerprint": "", "identity": {}}
    write_record(folder, {**record, "settings": settings, "inputs": {}, "files": {}})
    return folder


def change_record(folder: Path, **entries: Any) -> None:
    """Change entries of a run's record, as somebody could who knows its format."""
    write_record(folder, {**read_record(folder, "folder"), **entries})


def as_format_4(folder: Path) -> Path:
    """Return the folder of a run, whose record is turned into the three files of format 4; tables stay as they are."""
    record = read_record(folder, "folder")
    named = {"format": OLD_FORMAT, "command": record["command"]}
    config = {**named, **record["settings"], "inputs": record["inputs"]}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    write_json(folder / "identity.json", record["identity"])
    kept = {"fingerprint": record["fingerprint"], "files": record["files"], "seconds": record.get("seconds")}
    (folder / "run.json").unlink()
    if record["state"] == FINISHED:
        facts = json.loads(json.dumps({**named, **kept, "inputs": record["inputs"]}))
        write_json(folder / "run.json", {**facts, "config": json_sha256(config)})
    return folder
