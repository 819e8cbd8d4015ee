"""Run folders: what a stage was told, what it left, and whether it still has to run.

A folder holds `config.yaml` from its first moment and `run.json`, the manifest, from its last. Running a stage again
does nothing if the manifest is there, and goes on from what is on disk if only the config is. Other runs are named by
their way from this folder, so that a folder of runs can be moved.
"""

import hashlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import write_json, write_text
from evenhand.evaluation.runs.parts import Batches, gather
from evenhand.evaluation.runs.tables import read_table, write_table
from evenhand.evaluation.runs.tracking import Tracker, tracked
from evenhand.evaluation.settings import as_settings

log = logging.getLogger("evenhand")

CONFIG, MANIFEST, PARTS = "config.yaml", "run.json", "parts"
FORMAT = 2  # of a run's files; 0.1 wrote none
PACKAGES = ("evenhand", "torch", "transformers", "peft", "trl", "accelerate", "datasets", "numpy", "scipy", "wandb")
NO_RESULTS = (CONFIG, "wandb", "tensorboard")  # a folder with these alone may be taken for other settings
# Where a run is written and who is told about it, and how, do not shape its numbers.
NOT_COMPARED = ("output_dir", "report_to", "group", "show")
# Settings that name another run's folder; what is in it is compared by its fingerprint, among the inputs.
RUN_FOLDERS = ("responses", "labels", "tuning", "before", "after", "untagged")
DIFFERENCES_SHOWN = 5


@dataclass
class Run:
    """A stage at work: its folder, where its numbers are tracked, what it reads, and what it has to tell.

    The fingerprint is a hash of everything that the stage was told and reads; it names the run to later stages.
    `family` is the family of metrics that is at work, which keeps parts of its own; `seconds` are those of each step,
    `facts` go into the manifest.
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
        """Time one step of the stage."""
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 2)

    def table(self, name: str, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Return the rows in `name`.parquet, made and written first where they are not on disk yet."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            with self.step(name.replace("_", " ")):
                write_table(path, make())
        return read_table(path)

    def gather(
        self, name: str, columns: Sequence[str], n: int, batches: Batches, description: str, unit: str
    ) -> pd.DataFrame:
        """Return `columns` of rows 0 … n−1, kept in parts as they are made (evaluation/runs/parts.py)."""
        return gather(self.folder / PARTS / self.family / name, columns, n, batches, description, unit)


@contextmanager
def stage(command: str, config: Any, inputs: Mapping[str, Any] | None = None) -> Iterator[Run | None]:
    """Yield a Run to be filled, or None if this stage was finished before with the same config and inputs.

    `inputs` are fingerprints of what the stage reads, by name, and what else shapes its results.

    Raises:
        InputError: the folder holds a run with other settings or inputs, or cannot be written.
    """
    folder, inputs = config.output_dir, dict(inputs or {})
    settings = {
        "format": FORMAT,
        "command": command,
        **_from_folder(as_settings(config), folder.resolve()),
        "inputs": inputs,
    }
    if _holds_results(folder):
        _refuse_other(folder, settings)
        if (folder / MANIFEST).exists():
            log.info("%s: %s is finished; nothing to do", command, folder)
            yield None
            return
        log.info("%s: going on in %s", command, folder)
    else:
        write_text(folder / CONFIG, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))
    start, began = time.monotonic(), datetime.now(UTC)
    with tracked(command, config) as tracker:
        run = Run(folder, settings_sha256(settings), tracker, inputs)
        yield run
    write_json(
        folder / MANIFEST,
        {
            "format": FORMAT,
            "command": command,
            "fingerprint": run.fingerprint,
            "began": began.isoformat(timespec="seconds"),
            "seconds": {**run.seconds, "total": round(time.monotonic() - start, 2)},
            "packages": packages(),
            "commit": _commit(),
            "inputs": inputs,
            **run.facts,
        },
    )


def read_run(folder: Path, command: str, field_name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the manifest of a finished run of `command`; the runs that it names are named from here.

    Raises:
        InputError: the folder holds no such run, or one of version 0.1.
    """
    try:
        settings = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            f"{field_name}: {folder} holds no finished run; run `evenhand {command}` into it first."
        ) from None
    _refuse_old(folder, settings, field_name)
    if settings.get("command") != command:
        raise InputError(f"{field_name}: {folder} is a run of `{settings.get('command')}`, not of `{command}`.")
    return _from_here(settings, folder), manifest


def packages() -> dict[str, str]:
    """Return the versions of the packages that shape the numbers."""
    return {name: version(name) for name in PACKAGES}


def settings_sha256(settings: Mapping[str, Any]) -> str:
    """Return a hash of the settings that shape a run's numbers."""
    return hashlib.sha256(json.dumps(_compared(settings), sort_keys=True).encode()).hexdigest()


def _from_folder(value: Any, folder: Path, name: str = "") -> Any:
    """Return settings with other runs, and models that lie in one, named by their way from `folder`."""
    if isinstance(value, Mapping):
        return {key: _from_folder(item, folder, key) for key, item in value.items()}
    is_path = name in RUN_FOLDERS and value is not None
    if is_path or (name == "name" and value is not None and (Path(value).parent / CONFIG).exists()):
        way = os.path.relpath(Path(value).resolve(), folder)
        return way if way.startswith(".") else f"./{way}"
    return value


def _from_here(value: Any, folder: Path, name: str = "") -> Any:
    """Return settings as `_from_folder` got them, seen from the working directory."""
    if isinstance(value, Mapping):
        return {key: _from_here(item, folder, key) for key, item in value.items()}
    if isinstance(value, str) and (name in RUN_FOLDERS or (name == "name" and value.startswith("."))):
        return os.path.normpath(folder / value)
    return value


def _holds_results(folder: Path) -> bool:
    try:
        return (folder / CONFIG).exists() and any(path.name not in NO_RESULTS for path in folder.iterdir())
    except OSError as error:
        raise InputError(f"output_dir: {folder} cannot be read ({error.strerror}); give another.") from None


def _refuse_old(folder: Path, settings: Mapping[str, Any], field_name: str) -> None:
    if settings.get("format") != FORMAT:
        raise InputError(
            f"{field_name}: {folder} is a run of Evenhand 0.1, whose files this version does not read; run it again "
            "into another folder."
        )


def _refuse_other(folder: Path, settings: Mapping[str, Any]) -> None:
    earlier = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8")) or {}
    _refuse_old(folder, earlier, "output_dir")
    changed = list(_differences("", _compared(earlier), _compared(settings)))
    if len(changed) > DIFFERENCES_SHOWN:
        changed[DIFFERENCES_SHOWN:] = [f"and {len(changed) - DIFFERENCES_SHOWN} more"]
    if changed:
        raise InputError(
            f"output_dir: {folder} holds a run with other settings ({'; '.join(changed)}). "
            "Give another --output_dir, or delete the folder."
        )


def _differences(name: str, earlier: Any, now: Any) -> Iterator[str]:
    """Yield what differs, down to the entries of mappings."""
    if isinstance(earlier, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*earlier, *now]):
            yield from _differences(f"{name}.{key}" if name else key, earlier.get(key), now.get(key))
    elif earlier != now:
        yield f"{name} was {earlier!r}, now {now!r}"


def _compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in (*NOT_COMPARED, *RUN_FOLDERS)}


def _commit() -> str | None:
    """Return the commit of the working copy this code runs from, marked if it has changes; None if it is installed."""
    here = Path(__file__).resolve()
    try:
        git = ["git", "-C", str(here.parent)]
        # An installed copy may lie inside somebody else's working copy, whose commit says nothing about it.
        subprocess.run([*git, "ls-files", "--error-unmatch", str(here)], capture_output=True, check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changes.strip() else commit
