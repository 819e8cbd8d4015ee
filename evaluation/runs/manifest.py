"""The config and the manifest of a run folder: written by a stage, read and checked by later stages.

`config.yaml` is written when a stage starts, `run.json`, the manifest, when it ends: a run without one is unfinished.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.runs.files import dump_yaml, is_file_name_inside, read_yaml, sha256_of, write_json, write_text
from evenhand.evaluation.runs.run_paths import CONFIG, MANIFEST, with_resolved_paths
from evenhand.evaluation.runs.settings_comparison import json_sha256, settings_sha256

FORMAT = 3  # of the files of a run
MANIFEST_SHA256 = "sha256"  # the key of the hash of all other entries: without it, a manifest is not valid


def read_run(folder: Path, command: str, field: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings and the manifest of a finished run of `command`.

    Paths of other runs in the settings are relative to the working directory. `field` is the setting that errors name.

    Raises:
        InputError: the folder has no finished run of this command, or one that is damaged or of another format.
    """
    settings = read_config(folder, field) if (folder / MANIFEST).exists() else {}
    manifest = read_manifest(folder, field)
    if manifest is None:
        raise InputError(f"{field}: {folder} has no finished run; run `evenhand {command}` into it first.")
    if settings.get("command") != command:
        raise InputError(f"{field}: {folder} is a run of `{settings.get('command')}`, not of `{command}`.")
    if settings_sha256(settings) != manifest["fingerprint"]:
        raise InputError(
            f"{field}: {folder / CONFIG} has changed since the run (its hash is not the manifest's); undo the change, "
            "or run it again."
        )
    if damaged := damaged_files(folder, manifest["files"]):
        raise InputError(
            f"{field}: {folder / damaged[0]} is missing or damaged (its SHA-256 is not the manifest's); run "
            f"`evenhand {command}` into that folder again to recompute it."
        )
    return with_resolved_paths(settings, folder), manifest


def read_config(folder: Path, field: str) -> dict[str, Any]:
    """Return the settings in a run folder; `field` is the setting that errors name.

    Raises:
        InputError: the file cannot be read, or is of another format.
    """
    settings = read_yaml(folder / CONFIG, field)
    if not isinstance(settings, Mapping):
        raise InputError(f"{field}: {folder / CONFIG} has no settings of a run; repair it, or delete the folder.")
    if settings.get("format") != FORMAT:
        raise InputError(
            f"{field}: {folder} is a run of another version of Evenhand (its format is {settings.get('format')}, not "
            f"{FORMAT}); run `evenhand {settings.get('command')}` again, into another folder."
        )
    return dict(settings)


def write_config(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of a run."""
    write_text(folder / CONFIG, dump_yaml(dict(settings)))


def read_manifest(folder: Path, field: str) -> dict[str, Any] | None:
    """Return the manifest, or None if it is absent, damaged or edited.

    Raises:
        InputError: it lists a file that is not inside the folder.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    is_intact = isinstance(manifest, dict) and manifest.pop(MANIFEST_SHA256, None) == json_sha256(manifest)
    if not is_intact or not isinstance(manifest.get("files"), dict):
        return None
    check_file_names(folder, manifest["files"], f"{field}: {folder / MANIFEST}")
    return manifest


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest with a hash of its entries."""
    write_json(folder / MANIFEST, {**manifest, MANIFEST_SHA256: json_sha256(json.loads(json.dumps(manifest)))})


# Results, and no reports, which people may edit, or summaries, which are written again whenever they are asked for.
RESULTS = (".parquet", ".json", ".csv", ".safetensors")
NOT_RESULTS = ("parts", "checkpoints", "wandb", "tensorboard", "summary")


def hash_results(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each result file in a run folder, by its name seen from the folder, sorted."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix in RESULTS and path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in found}
    return {
        name: sha256_of(path)
        for name, path in names.items()
        if name.partition("/")[0] not in NOT_RESULTS and is_file_name_inside(folder, name)
    }


def check_file_names(folder: Path, names: Iterable[str], manifest: str) -> None:
    """Check that every name in a manifest is a plain relative name of a file inside the run folder.

    A manifest may come from somebody else, and a file that differs from its hash is deleted and computed again.

    Raises:
        InputError: a name is absolute, has "..", a backslash or a drive, or leads out of the folder by a link.
    """
    for name in names:
        if not is_file_name_inside(folder, name):
            raise InputError(
                f"{manifest} lists the file {format_value(name)}, which is not the name of a file inside that "
                "folder; nothing was deleted. Get an intact copy of the run, or give another folder."
            )


def damaged_files(folder: Path, hashes: Mapping[str, str]) -> list[str]:
    """Return the names of the files that are missing, or whose SHA-256 is another than the manifest's."""
    return [name for name, sha in hashes.items() if not (folder / name).is_file() or sha256_of(folder / name) != sha]
