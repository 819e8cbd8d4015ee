"""Names of files in a run folder, and paths of other runs' folders in the settings of a run.

In a saved config the paths are relative to the folder of the config, so that a folder of runs can be moved.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CONFIG, IDENTITY, MANIFEST, PARTS = "config.yaml", "identity.json", "run.json", "parts"
# Settings whose value is the folder of another run.
RUN_FOLDERS = ("responses", "labels", "tuning", "comparison", "before", "after", "after_without_tag")
MODEL_NAME = "name"  # setting with the id or path of a model; the path may be in a run folder


def with_relative_paths(settings: Any, folder: Path, name: str = "") -> Any:
    """Return settings in which paths of other runs, and of models in run folders, are relative to `folder`."""
    if isinstance(settings, Mapping):
        return {key: with_relative_paths(value, folder, key) for key, value in settings.items()}
    if _run_folder(name, settings):
        path = os.path.relpath(Path(settings).resolve(), folder)
        return path if path.startswith(".") else f"./{path}"
    return settings


def with_resolved_paths(settings: Any, folder: Path, name: str = "") -> Any:
    """Return the result of `with_relative_paths` with paths relative to the working directory instead of `folder`."""
    if isinstance(settings, Mapping):
        return {key: with_resolved_paths(value, folder, key) for key, value in settings.items()}
    if isinstance(settings, str) and (name in RUN_FOLDERS or (name == MODEL_NAME and settings.startswith("."))):
        return os.path.normpath(folder / settings)
    return settings


def run_folders(settings: Any, name: str = "") -> Iterator[Path]:
    """Yield the paths of other runs' folders in the settings, and of the run folders that contain the models."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from run_folders(value, key)
    elif folder := _run_folder(name, settings):
        yield folder


def _run_folder(name: str, value: Any) -> Path | None:
    if not isinstance(value, str):  # a filter of prompts may have the same name as one of these settings
        return None
    if name in RUN_FOLDERS:
        return Path(value)
    parent = Path(value).parent
    return parent if name == MODEL_NAME and (parent / CONFIG).exists() else None
