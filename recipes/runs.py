"""Run directories: what a stage was told, what it left, and whether it still has to run.

A directory holds `config.yaml` from its first moment and `run.json`, the manifest, from its last. Running a stage
again does nothing if the manifest is there, and goes on from what is on disk if only the config is.
"""

import hashlib
import json
import logging
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from evaluation.errors import InputError
from evaluation.files import write_json, write_text
from recipes.config import as_settings
from recipes.tracking import Tracker, tracked

log = logging.getLogger("evenhand")

CONFIG, MANIFEST = "config.yaml", "run.json"
PACKAGES = ("evenhand", "torch", "transformers", "peft", "trl", "accelerate", "datasets", "numpy", "scipy", "wandb")
NO_RESULTS = (CONFIG, "wandb", "tensorboard")  # a folder with these alone may be taken for other settings
# Where a run is written and who is told about it, and how, do not shape its numbers.
NOT_COMPARED = ("output_dir", "report_to", "group", "show")
DIFFERENCES_SHOWN = 5


@dataclass
class Run:
    """A stage at work: its folder, where its numbers are tracked, the seconds each step took, further facts.

    The fingerprint is a hash of everything that the stage was told and reads; it names the run to later stages.
    """

    folder: Path
    fingerprint: str
    tracker: Tracker
    seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step of the stage."""
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 2)


@contextmanager
def stage(command: str, config: Any, inputs: Mapping[str, Any] | None = None) -> Iterator[Run | None]:
    """Yield a Run to be filled, or None if this stage was finished before with the same config and inputs.

    Args:
        command: the stage's name.
        config: its config; `output_dir` is the folder.
        inputs: fingerprints of what the stage reads, by name, and what else shapes its results.

    Raises:
        InputError: the folder holds a run with other settings or inputs, or cannot be written.
    """
    folder = config.output_dir
    settings = {"command": command, **as_settings(config), "inputs": dict(inputs or {})}
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
    fingerprint = hashlib.sha256(json.dumps(_compared(settings), sort_keys=True).encode()).hexdigest()
    with tracked(command, config) as tracker:
        run = Run(folder, fingerprint, tracker)
        yield run
    write_json(
        folder / MANIFEST,
        {
            "command": command,
            "fingerprint": fingerprint,
            "began": began.isoformat(timespec="seconds"),
            "seconds": {**run.seconds, "total": round(time.monotonic() - start, 2)},
            "packages": packages(),
            "commit": _commit(),
            "inputs": settings["inputs"],
            **run.facts,
        },
    )


def read_run(folder: Path, command: str, field_name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the config and the manifest of a finished run of `command`.

    Raises:
        InputError: the folder holds no such run.
    """
    try:
        settings = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        raise InputError(
            f"{field_name}: {folder} holds no finished run; run `evenhand {command}` into it first."
        ) from None
    if settings.get("command") != command:
        raise InputError(f"{field_name}: {folder} is a run of `{settings.get('command')}`, not of `{command}`.")
    return settings, manifest


def packages() -> dict[str, str]:
    """Return the versions of the packages that shape the numbers."""
    return {name: version(name) for name in PACKAGES}


def _holds_results(folder: Path) -> bool:
    try:
        return (folder / CONFIG).exists() and any(path.name not in NO_RESULTS for path in folder.iterdir())
    except OSError as error:
        raise InputError(f"output_dir: {folder} cannot be read ({error.strerror}); give another.") from None


def _refuse_other(folder: Path, settings: Mapping[str, Any]) -> None:
    earlier = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8")) or {}
    changed = [
        difference
        for key, value in _compared(settings).items()
        for difference in _differences(key, earlier.get(key), value)
    ]
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
            yield from _differences(f"{name}.{key}", earlier.get(key), now.get(key))
    elif earlier != now:
        yield f"{name} was {earlier!r}, now {now!r}"


def _compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in NOT_COMPARED}


def _commit() -> str | None:
    """Return the commit of the working copy this code runs from, marked if it has changes; None if it is installed."""
    try:
        git = ["git", "-C", str(Path(__file__).parent)]
        # An installed copy may lie inside somebody else's working copy, whose commit says nothing about it.
        subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=True)
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changes.strip() else commit
