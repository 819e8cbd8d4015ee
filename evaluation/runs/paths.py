"""Paths of other runs in recorded settings, relative to the run's folder, so that a folder of runs can be moved."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from evenhand.evaluation.runs.results import RECORD

# Settings whose value is the folder of another run, and the setting with the path of a model, which may be in one.
RUN_FOLDERS = ("run", "responses", "labels", "tuning", "comparison", "before", "after", "after_without_tag")
IN_RUNS = ("name",)  # settings that may name a model in a run's folder


def with_relative_paths(settings: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Return nested settings in which paths of other runs, and of models in run folders, are relative to `folder`."""

    def to_relative(name: str, value: str) -> str:
        is_path = name in IN_RUNS and value != "" and (value.startswith(".") or _is_in_run(Path(value)))
        if name not in RUN_FOLDERS and not is_path:
            return value
        path = os.path.relpath(Path(value).resolve(), folder)
        return path if path.startswith(".") else f"./{path}"

    return _with_texts(settings, to_relative)


def _is_in_run(path: Path) -> bool:
    """Return whether something is at a path in a run's folder; a name such as `gpt2` alone is no path."""
    return path.exists() and (path.parent / RECORD).exists()


def with_resolved_paths(settings: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Return the result of `with_relative_paths` with paths relative to the working directory instead of `folder`."""

    def to_resolved(name: str, value: str) -> str:
        is_relative = name in RUN_FOLDERS or (name in IN_RUNS and value.startswith("."))
        return os.path.normpath(folder / value) if is_relative else value

    return _with_texts(settings, to_resolved)


def _with_texts(
    settings: Mapping[str, object], change: Callable[[str, str], str], group: str = ""
) -> dict[str, object]:
    """Return nested settings with `change(name of the setting, text)` in place of each text that is a value."""
    changed: dict[str, object] = {}
    for key, value in settings.items():
        name = _path_setting(group, str(key))
        if isinstance(value, Mapping):
            changed[key] = _with_texts(value, change, name)
        elif isinstance(value, str):
            changed[key] = change(name, value)
        else:
            changed[key] = value
    return changed


def _path_setting(group: str, name: str) -> str:
    """Return the name of a setting; of the path in a group such as `responses: {name: …}`, the name of the group."""
    return group if name == "name" and group in RUN_FOLDERS else name
