"""The files of a run folder, and the paths by which the settings of one run name the folders of others.

A saved config has these paths relative to its folder, so that a folder of runs can be moved.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CONFIG, MANIFEST, PARTS = "config.yaml", "run.json", "parts"
# Settings whose value is the folder of another run.
RUN_FOLDERS = ("responses", "labels", "tuning", "comparison", "before", "after", "after_without_tag")
MODEL_NAME = "name"  # the setting of a model's path, which may lie in a run folder


def with_relative_paths(settings: Any, folder: Path, name: str = "") -> Any:
    """Return settings with the paths of other runs, and of models in a run folder, relative to `folder`."""
    if isinstance(settings, Mapping):
        return {key: with_relative_paths(value, folder, key) for key, value in settings.items()}
    if _run_folder(name, settings):
        path = os.path.relpath(Path(settings).resolve(), folder)
        return path if path.startswith(".") else f"./{path}"
    return settings


def with_resolved_paths(settings: Any, folder: Path, name: str = "") -> Any:
    """Return settings of `with_relative_paths` with their paths relative to the working directory."""
    if isinstance(settings, Mapping):
        return {key: with_resolved_paths(value, folder, key) for key, value in settings.items()}
    if isinstance(settings, str) and (name in RUN_FOLDERS or (name == MODEL_NAME and settings.startswith("."))):
        return os.path.normpath(folder / settings)
    return settings


def run_folders(settings: Any, name: str = "") -> Iterator[Path]:
    """Yield the run folders that settings name, and the run folder of each model that lies in one."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from run_folders(value, key)
    elif folder := _run_folder(name, settings):
        yield folder


def _run_folder(name: str, value: Any) -> Path | None:
    if not isinstance(value, str):  # a filter of prompts may have the name of such a setting
        return None
    if name in RUN_FOLDERS:
        return Path(value)
    parent = Path(value).parent
    return parent if name == MODEL_NAME and (parent / CONFIG).exists() else None
