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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.files import clear_unfinished, read_yaml, room_on_disk, write_json, write_text
from evenhand.evaluation.runs.lock import LOCK, run_lock
from evenhand.evaluation.runs.parts import Batches, compute_resumable
from evenhand.evaluation.runs.result_files import check_file_names, damaged_files, hash_results
from evenhand.evaluation.runs.tables import read_table, write_table
from evenhand.evaluation.runs.tracking import Tracker, tracked
from evenhand.evaluation.settings import as_settings

log = logging.getLogger("evenhand")

CONFIG, MANIFEST, PARTS = "config.yaml", "run.json", "parts"
OWN_HASH = "sha256"  # of the rest of a manifest: one that is truncated, damaged or edited says nothing
FORMAT = 2  # of a run's files; 0.1 wrote none
PACKAGES = ("evenhand", "torch", "transformers", "peft", "trl", "accelerate", "datasets", "numpy", "scipy", "wandb")
NO_RESULTS = (CONFIG, LOCK, "wandb", "tensorboard")  # a folder with these alone may be taken for other settings
# Where a run is written, who is told about it and how, and what is done at once do not shape its numbers; nor does how
# votes on the pairs of a rating come in.
NOT_COMPARED = (
    *("output_dir", "report_to", "log_artifacts", "group", "show"),
    *("host", "port", "import_votes", "summary", "push_to_hub", "trust_remote_code"),
)
# Settings that name another run's folder.
RUN_FOLDERS = ("responses", "labels", "tuning", "comparison", "before", "after", "after_without_tag")
# What is in them, in models and in these files is compared by its fingerprint, among the inputs, however it is spelled.
FILES = ("file", "texts", "test_texts", "references", "translations", "neutral_dialogue", "questions", "leave_out")
# Where a model is served, how many requests it gets at once, and where its tokenizer is, whose content is compared.
SERVING = ("server", "concurrency", "tokenizer")
NAMES = (*RUN_FOLDERS, "name", *FILES, *SERVING)
# What shapes no row of a run but the last: the table of each, with which an unfinished run goes on as it is told now.
RECOMPUTABLE = {
    "generation_bias.neutral_dialogue": "neutral",
    "inputs.generation_bias.neutral_dialogue": "neutral",
    "translation_bias.tokenize": "sentence_scores",
}
DIFFERENCES_SHOWN = 5


Making = Callable[[], pd.DataFrame | Iterable[pd.DataFrame]]  # of a table, whole or in parts (`write_table`)


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

    def table(self, name: str, make: Making, *, shared: bool = False) -> pd.DataFrame:
        """Return the rows in `name`.parquet, made and written first where they are not on disk yet: see `make`."""
        self.make(name, make, shared=shared)
        return read_table(self.folder / f"{name}.parquet")

    def make(self, name: str, make: Making, *, shared: bool = False) -> None:
        """Make and write the rows of `name`.parquet, where they are not on disk yet.

        The main process makes them alone, or all make them together if they are `shared`: where `make` gathers.
        """
        path = self.folder / f"{name}.parquet"

        def made() -> None:
            with self.step(name.replace("_", " ")):
                rows = make()
                if processes.is_rank_zero():
                    write_table(path, rows)

        if not processes.on_rank_zero(path.exists):
            if shared:
                made()
            else:
                processes.on_rank_zero(made)
            processes.barrier()

    def compute_resumable(
        self, name: str, columns: Sequence[str], n: int, batches: Batches, description: str, unit: str
    ) -> pd.DataFrame:
        """Return `columns` of rows 0 … n−1, kept in parts as they are made (evaluation/runs/parts.py)."""
        return compute_resumable(self.parts(name), columns, n, batches, description, unit)

    def parts(self, name: str) -> Path:
        """Return the folder of the parts that the family at work keeps under a name."""
        return self.folder / PARTS / self.family / name


@contextmanager
def stage(command: str, config: Any, inputs: Mapping[str, Any] | None = None) -> Iterator[Run | None]:
    """Yield a Run to be filled, or None if this stage was finished before with the same config and inputs.

    `inputs` are fingerprints of what the stage reads, by name, and what else shapes its results. Of several processes
    the main one alone holds the folder and writes here; the stage ends for all when it has ended for the main one.

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
    with ExitStack() as until_done:
        if processes.on_rank_zero(lambda: _is_done(folder, settings, until_done)):
            log.info("%s: %s is finished; nothing to do", command, folder)
            yield None
            return
        start, began = time.monotonic(), datetime.now(UTC)
        tracking = tracked(command, config) if processes.is_rank_zero() else nullcontext(Tracker())
        with room_on_disk(folder), tracking as tracker:
            run = Run(folder, settings_sha256(settings), tracker, inputs)
            for read in dict.fromkeys(_runs_named(as_settings(config))):
                tracker.uses(read)
            yield run

        def manifest() -> dict[str, Any]:
            return {
                "format": FORMAT,
                "command": command,
                "fingerprint": run.fingerprint,
                "began": began.isoformat(timespec="seconds"),
                "seconds": {**run.seconds, "total": round(time.monotonic() - start, 2)},
                "processes": processes.launched_world_size(),
                "packages": packages(),
                "commit": _commit(),
                "inputs": inputs,
                "files": hash_results(folder),
                **run.facts,
            }

        processes.on_rank_zero(lambda: write_manifest(folder, manifest()))


def read_run(folder: Path, command: str, field_name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the manifest of a finished run of `command`; the runs that it names are named from here.

    Raises:
        InputError: the folder holds no such run, one that was damaged since, or one of version 0.1.
    """
    settings = _config(folder, field_name) if (folder / MANIFEST).exists() else {}
    manifest = _manifest(folder, field_name)
    if manifest is None:
        raise InputError(f"{field_name}: {folder} holds no finished run; run `evenhand {command}` into it first.")
    if settings.get("command") != command:
        raise InputError(f"{field_name}: {folder} is a run of `{settings.get('command')}`, not of `{command}`.")
    if settings_sha256(settings) != manifest["fingerprint"]:
        raise InputError(
            f"{field_name}: {folder / CONFIG} is not what the run was told (its hash is not the manifest's); "
            "undo what was changed there, or run it again."
        )
    if damaged := damaged_files(folder, manifest["files"]):
        raise InputError(
            f"{field_name}: {folder / damaged[0]} is missing or damaged (its SHA-256 is not the manifest's); run "
            f"`evenhand {command}` into that folder again, which makes it anew."
        )
    return _from_here(settings, folder), manifest


def packages() -> dict[str, str]:
    """Return the versions of the packages that shape the numbers."""
    return {name: version(name) for name in PACKAGES}


def settings_sha256(settings: Mapping[str, Any]) -> str:
    """Return a hash of the settings that shape a run's numbers."""
    return _sha256(_compared(settings))


def _sha256(value: Any) -> str:
    """Return a hash of a value as JSON has it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_manifest(folder: Path, told: Mapping[str, Any]) -> None:
    """Write the manifest, with its own hash, without which it is none."""
    write_json(folder / MANIFEST, {**told, OWN_HASH: _sha256(json.loads(json.dumps(told)))})


def _from_folder(value: Any, folder: Path, name: str = "") -> Any:
    """Return settings with other runs, and models that lie in one, named by their way from `folder`."""
    if isinstance(value, Mapping):
        return {key: _from_folder(item, folder, key) for key, item in value.items()}
    if _run_named(name, value):
        way = os.path.relpath(Path(value).resolve(), folder)
        return way if way.startswith(".") else f"./{way}"
    return value


def _runs_named(value: Any, name: str = "") -> Iterator[Path]:
    """Yield the folders of the runs that settings name: of those that are read, and of a model that lies in one."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _runs_named(item, key)
    elif run := _run_named(name, value):
        yield run


def _run_named(name: str, value: Any) -> Path | None:
    """Return the folder of the run that a setting names, if it does."""
    if not isinstance(value, str):  # a filter of prompts may be called as a folder is
        return None
    if name in RUN_FOLDERS:
        return Path(value)
    parent = Path(value).parent
    return parent if name == "name" and (parent / CONFIG).exists() else None


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


def _config(folder: Path, field_name: str) -> dict[str, Any]:
    """Return what a folder's stage was told."""
    settings = read_yaml(folder / CONFIG, field_name)
    if not isinstance(settings, Mapping):
        raise InputError(f"{field_name}: {folder / CONFIG} is none of a stage's; repair it, or delete the folder.")
    _refuse_old(folder, settings, field_name)
    return dict(settings)


def _manifest(folder: Path, field_name: str) -> dict[str, Any] | None:
    """Return the manifest; None where there is none that can be read, so that nothing is finished.

    Raises:
        InputError: it lists a file that is not inside the folder.
    """
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    whole = isinstance(found, dict) and found.pop(OWN_HASH, None) == _sha256(found)
    if not whole or not isinstance(found.get("files"), dict):
        return None
    check_file_names(folder, found["files"], f"{field_name}: {folder / MANIFEST}")
    return found


def _is_done(folder: Path, settings: Mapping[str, Any], until_done: ExitStack) -> bool:
    """Say whether a stage is finished; one that is not is held until then, and its folder ready to be worked in."""
    if not (folder / MANIFEST).exists():  # what is finished is only read
        until_done.enter_context(run_lock(folder))
    if _holds_results(folder):
        _refuse_other(folder, settings)
        if _is_finished(folder, until_done):
            return True
        log.info("%s: going on in %s", settings["command"], folder)
    else:
        _write_config(folder, settings)
    clear_unfinished(folder)
    return False


def _write_config(folder: Path, settings: Mapping[str, Any]) -> None:
    write_text(folder / CONFIG, yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))


def _is_finished(folder: Path, until_done: ExitStack) -> bool:
    """Say whether a stage is finished and all it left is as it was; what is damaged is removed, to be made again."""
    if not (folder / MANIFEST).exists():
        return False
    manifest = _manifest(folder, "output_dir")
    damaged = [MANIFEST] if manifest is None else damaged_files(folder, manifest["files"])
    if not damaged:
        return True
    until_done.enter_context(run_lock(folder))
    log.warning("%s: %s missing or damaged; made again", folder, ", ".join(damaged))
    for name in (*damaged, MANIFEST):
        (folder / name).unlink(missing_ok=True)
    return False


def _refuse_old(folder: Path, settings: Mapping[str, Any], field_name: str) -> None:
    if settings.get("format") != FORMAT:
        raise InputError(
            f"{field_name}: {folder} is a run of Evenhand 0.1, whose files this version does not read; run it again "
            "into another folder."
        )


def _refuse_other(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuse other settings; where they shape what is made last, and that is not finished, it is made by these."""
    earlier = _config(folder, "output_dir")
    differences = dict(_differences("", _compared(earlier), _compared(settings)))
    if differences and differences.keys() <= RECOMPUTABLE.keys() and not (folder / MANIFEST).exists():
        for name in differences:
            (folder / f"{RECOMPUTABLE[name]}.parquet").unlink(missing_ok=True)
        _write_config(folder, settings)
        return
    changed = list(differences.values())
    if len(changed) > DIFFERENCES_SHOWN:
        changed[DIFFERENCES_SHOWN:] = [f"and {len(changed) - DIFFERENCES_SHOWN} more"]
    if changed:
        raise InputError(
            f"output_dir: {folder} holds a run with other settings ({'; '.join(changed)}). "
            "Give another --output_dir, or delete the folder."
        )


def _differences(name: str, earlier: Any, now: Any) -> Iterator[tuple[str, str]]:
    """Yield the name of what differs, down to the entries of mappings, and how."""
    if isinstance(earlier, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*earlier, *now]):
            yield from _differences(f"{name}.{key}" if name else key, earlier.get(key), now.get(key))
    elif earlier != now:
        yield name, f"{name} was {earlier!r}, now {now!r}"


def _compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what shapes a run's numbers, without the names of what is compared by its content."""
    shaping = {key: value for key, value in settings.items() if key not in NOT_COMPARED}
    return {key: value if key == "inputs" else _nameless(key, value) for key, value in shaping.items()}


def _nameless(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        # How many contexts are answered at once shapes no answer, unlike the batches of a training.
        told = {name: item for name, item in value.items() if not (name == "batch_size" and key.endswith("decoding"))}
        return {str(name): _nameless(name, item) for name, item in told.items()}  # to be sorted, whatever they are
    return "…" if key in NAMES and value is not None else value


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
