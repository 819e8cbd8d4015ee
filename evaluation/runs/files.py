"""Files are written whole or not at all: a temporary name in the same folder, then a rename."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from evenhand.evaluation.errors import InputError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it into place if the block ends without an error.

    Raises:
        InputError: the folder cannot be made or written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; choose another --output_dir.") from error
    finally:
        with suppress(OSError):  # it is not there after a rename, nor where it could not be written
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, whole or not at all."""
    with written_whole(path) as temporary:
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
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{field}: {path} is not YAML: {' '.join(str(error).split())}") from None


def sha256_of(*paths: Path) -> str:
    """Return the SHA-256 of the files' contents, read one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
