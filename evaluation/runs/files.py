"""Files are written whole or not at all: a temporary name in the same folder, then a rename."""

import errno
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from evenhand.evaluation.errors import InputError

UNFINISHED = ".part"  # how the temporary names end


@contextmanager
def room_on_disk(path: Path) -> Iterator[None]:
    """Let what is written to `path`, or below it, end in one clear error where the disk is full.

    Raises:
        InputError: it is.
    """
    try:
        yield
    except Exception as error:  # tokenizers have no class for theirs
        if is_disk_full(error):
            raise InputError(disk_full_text(path)) from error
        raise


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it into place, on the disk, if the block ends without an error.

    Raises:
        InputError: the folder cannot be made or written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        with room_on_disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _clear_killed(path)
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # a rename that outlives a power cut must not outlive what it renames
            temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another --output_dir.") from error
    finally:
        with suppress(OSError):  # it is not there after a rename, nor where it could not be written
            temporary.unlink()


def _clear_killed(path: Path) -> None:
    """Remove what processes that were killed as they wrote `path` left beside it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"):
        process = left.suffixes[-2][1:]
        if process.isdecimal() and not psutil.pid_exists(int(process)):
            left.unlink(missing_ok=True)


def is_disk_full(error: BaseException) -> bool:
    """Say whether an error is that of a full disk, as Python, safetensors and torch tell it."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    # torch's writer says where it failed, not why: the last two are its own.
    told = (
        *("No space left on device", "os error 28", "Disk quota exceeded"),
        *("PytorchStreamWriter failed", "] . unexpected pos "),
    )
    return any(words in str(error) for words in told)


def disk_full_text(path: Path) -> str:
    """Return what a user is told when there is no room for a file."""
    return f"cannot write {path}: no space is left on its disk. Free some and run again: what is done so far is kept."


def clear_unfinished(folder: Path) -> None:
    """Remove what killed writes left in a folder and those in it."""
    for left in folder.rglob(f".*{UNFINISHED}"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as strict JSON (a NaN in it is an error: write null and a reason)."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_yaml(path: Path, field: str, load: Callable[[str], Any] = yaml.safe_load) -> Any:
    """Return what a YAML file holds; `field` is the setting that errors name.

    Raises:
        InputError: it cannot be read, or is not YAML.
    """
    try:
        return load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{field}: {path} cannot be read: {error.strerror or error}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # no UTF-8, a number of 5000 digits, deep nesting
        raise InputError(f"{field}: {path} is not YAML: {' '.join(str(error).split())}") from None


def sha256_of(*paths: Path) -> str:
    """Return the SHA-256 of the files' contents, read one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
