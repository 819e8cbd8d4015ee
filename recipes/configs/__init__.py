"""Configs: the settings that ship with Evenhand, by name: `--config NAME`, listed and printed by `evenhand configs`."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.evaluation.errors import unknown_name

if TYPE_CHECKING:
    from evenhand.recipes.settings import ConfigsSettings

SUFFIX = ".yaml"


def shipped() -> dict[str, Path]:
    """Return the shipped files by name, those for `evenhand` first, then each folder's."""
    folder = Path(__file__).parent
    files = sorted(folder.rglob(f"*{SUFFIX}"), key=lambda file: (file.parent != folder, file))
    return {file.stem: file for file in files}


def config_file(told: Path, field: str = "--config") -> Path:
    """Return the file that is meant: the one of that path, or the shipped one of that name.

    Raises:
        InputError: a name without a suffix or a folder is neither's.
    """
    name = str(told)
    with suppress(OSError):  # a name that is too long for a file
        if told.is_file() or told.name != name or told.suffix:
            return told
    if name not in (known := shipped()):
        raise unknown_name(field, name, known)
    return known[name]


def configs(settings: "ConfigsSettings") -> None:
    """Print a line on each shipped config, or whole those that are named.

    Raises:
        InputError: there is none of that name.
    """
    known = shipped()
    if unknown := next((name for name in settings.names if name not in known), None):
        raise unknown_name("names", unknown, known)
    width = max(map(len, known))
    for name in settings.names or known:
        text = known[name].read_text(encoding="utf-8")
        print(text.rstrip() if settings.names else f"{name:{width}}  {text.splitlines()[0].removeprefix('# ')}")
