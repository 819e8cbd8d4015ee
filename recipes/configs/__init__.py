"""The shipped configs, for `--config NAME`, and the command `configs`, which lists and prints them."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.evaluation.errors import unknown_name

if TYPE_CHECKING:
    from evenhand.recipes.settings import ConfigsSettings

SUFFIX = ".yaml"


def shipped() -> dict[str, Path]:
    """Return the shipped files by name: the files of this folder first, then of its subfolders."""
    folder = Path(__file__).parent
    files = sorted(folder.rglob(f"*{SUFFIX}"), key=lambda file: (file.parent != folder, file))
    return {file.stem: file for file in files}


def config_file(path: Path, field: str = "--config") -> Path:
    """Return the file at `path`, or the shipped config of this name."""
    name = str(path)
    with suppress(OSError):  # the name may be too long for a file
        if path.is_file() or path.name != name or path.suffix:
            return path
    if name not in (files := shipped()):
        raise unknown_name(field, name, files)
    return files[name]


def configs(settings: "ConfigsSettings") -> None:
    """Print the configs in `settings.names`; without names, print the name and first line of each shipped config.

    Raises:
        InputError: a name is unknown.
    """
    files = shipped()
    if unknown := next((name for name in settings.names if name not in files), None):
        raise unknown_name("names", unknown, files)
    width = max(map(len, files))
    for name in settings.names or files:
        text = files[name].read_text(encoding="utf-8")
        print(text.rstrip() if settings.names else f"{name:{width}}  {text.splitlines()[0].removeprefix('# ')}")
