"""What a run folder records of itself: config, identity and manifest. Imports nothing slow.

A stage writes `config.yaml`, its settings, and `identity.json`, what went into it, when it starts, and the manifest
`run.json` when it ends, so a run without a manifest is unfinished. In a config, the paths of other runs are relative to
its folder, so that a folder of runs can be moved.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.files import is_file_name_inside, json_sha256, read_yaml, sha256_of

CONFIG, IDENTITY, MANIFEST, PARTS = "config.yaml", "identity.json", "run.json", "parts"
# Settings whose value is the folder of another run, and the setting with the path of a model, which may be in one.
RUN_FOLDERS = ("run", "responses", "labels", "tuning", "comparison", "before", "after", "after_without_tag")
IN_RUNS = ("name",)  # settings that may name a model in a run's folder
PACKAGES = ("evenhand", "torch", "transformers", "peft", "trl", "accelerate", "datasets", "numpy", "scipy", "wandb")
FORMAT = 4  # version of the format of a run's files


def read_run(folder: Path, command: str, field: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the manifest of a finished run of `command`.

    Paths of other runs in the settings are relative to the working directory. `field` is the name of the setting that
    contains the folder, for error messages.

    Raises:
        InputError: the folder has no finished run of this command, or the run is damaged or has another format.
    """
    settings = read_config(folder, field) if (folder / MANIFEST).exists() else {}
    manifest = read_manifest(folder, field)
    if manifest is None:
        raise InputError(f"{field}: {folder} has no finished run; run `evenhand {command}` into it first.")
    if settings.get("command") != command:
        raise InputError(f"{field}: {folder} is a run of `{settings.get('command')}`, not of `{command}`.")
    is_changed = json_sha256(settings) != manifest["config"]
    if damaged := [CONFIG] if is_changed else damaged_files(folder, manifest["files"]):
        raise InputError(
            f"{field}: {folder / damaged[0]} is missing or damaged (its SHA-256 is not the manifest's); undo the "
            f"change, or run `evenhand {command}` into that folder again to recompute it."
        )
    return with_resolved_paths(settings, folder), manifest


def run_sha256(manifest: Mapping[str, Any]) -> str:
    """Return the fingerprint of a finished run, for a run that reads it: of what went into the run, and its tables."""
    return json_sha256([manifest["fingerprint"], manifest["files"]])


def read_config(folder: Path, field: str) -> dict[str, Any]:
    """Return the settings in the config of a run folder."""
    settings = read_yaml(folder / CONFIG, field)
    if not isinstance(settings, Mapping):
        raise InputError(f"{field}: {folder / CONFIG} has no settings of a run; repair it, or delete the folder.")
    if settings.get("format") != FORMAT:
        raise InputError(
            f"{field}: {folder} is a run of another version of Evenhand (its format is {settings.get('format')}, not "
            f"{FORMAT}); run `evenhand {settings.get('command')}` again, into another folder."
        )
    return dict(settings)


def read_manifest(folder: Path, field: str) -> dict[str, Any] | None:
    """Return the manifest of a run folder, or None if the manifest is absent or damaged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = dict(manifest["files"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    for name in files:  # the run may come from another person, and a stage deletes damaged files
        if not is_file_name_inside(folder, name):
            raise InputError(
                f"{field}: {folder / MANIFEST} lists the file {format_value(name)}, which is not the name of a file "
                "inside that folder; nothing was deleted. Get an intact copy of the run, or give another folder."
            )
    return manifest


# Reports are not hashed, because users may edit them, nor are summaries, because they are rewritten on request.
RESULTS = (".parquet", ".json", ".csv", ".safetensors")
NOT_RESULTS = (IDENTITY, "parts", "checkpoints", "wandb", "tensorboard", "summary")


def hash_results(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each result file in a run folder, by path relative to the folder, sorted by path."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix in RESULTS and path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in found}
    return {
        name: sha256_of(path)
        for name, path in names.items()
        if name.partition("/")[0] not in NOT_RESULTS and is_file_name_inside(folder, name)
    }


def damaged_files(folder: Path, hashes: Mapping[str, str]) -> list[str]:
    """Return the names of the files that are missing, or whose SHA-256 differs from the hash in `hashes`."""
    return [name for name, sha in hashes.items() if not (folder / name).is_file() or sha256_of(folder / name) != sha]


def with_relative_paths(settings: Any, folder: Path, name: str = "") -> Any:
    """Return nested settings in which paths of other runs, and of models in run folders, are relative to `folder`.

    `name` is the name of the setting.
    """
    if isinstance(settings, Mapping):
        return {key: with_relative_paths(value, folder, str(key)) for key, value in settings.items()}
    if not isinstance(settings, str):
        return settings
    if name not in RUN_FOLDERS and not (name in IN_RUNS and (Path(settings).parent / CONFIG).exists()):
        return settings
    path = os.path.relpath(Path(settings).resolve(), folder)
    return path if path.startswith(".") else f"./{path}"


def with_resolved_paths(settings: Any, folder: Path, name: str = "") -> Any:
    """Return the result of `with_relative_paths` with paths relative to the working directory instead of `folder`."""
    if isinstance(settings, Mapping):
        return {key: with_resolved_paths(value, folder, str(key)) for key, value in settings.items()}
    is_relative = name in RUN_FOLDERS or (name in IN_RUNS and str(settings).startswith("."))
    return os.path.normpath(folder / settings) if isinstance(settings, str) and is_relative else settings


def package_versions() -> dict[str, str]:
    """Return the installed version of each package that may affect the numbers of a run."""
    return {name: version(name) for name in PACKAGES}


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
