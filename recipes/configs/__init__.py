"""The shipped configs, for `--config NAME`, and the command `configs`, which lists and prints them."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import unknown_name

COMMAND = "# $ "  # what a line with a command begins with


def shipped() -> dict[str, Path]:
    """Return the shipped files by name: the files of this folder first, then of its subfolders."""
    folder = Path(__file__).parent
    return {file.stem: file for file in sorted(folder.rglob("*.yaml"), key=lambda file: (file.parent != folder, file))}


def command_of(name: str) -> str:
    """Return the command with which a shipped config begins."""
    lines = shipped()[name].read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix(COMMAND).split("   #")[0] for line in lines if line.startswith(f"{COMMAND}evenhand "))


def config_file(path: Path) -> Path:
    """Return the file at `path`, or the shipped config of this name."""
    with suppress(OSError):  # the name may be too long for a file
        if path.is_file() or path.name != str(path) or path.suffix:
            return path
    if str(path) not in (files := shipped()):
        raise unknown_name("--config", str(path), files)
    return files[str(path)]


def configs(settings: Any) -> None:
    """Print the configs in `settings.names`; without names, print the name and first line of each shipped config."""
    files = shipped()
    for name in settings.names:
        if name not in files:
            raise unknown_name("names", name, files)
        print(files[name].read_text(encoding="utf-8").rstrip())
    if settings.names:
        return
    for name, file in files.items():
        first_line = file.read_text(encoding="utf-8").splitlines()[0]
        print(f"{name:24}  {first_line.removeprefix('# ')}")
