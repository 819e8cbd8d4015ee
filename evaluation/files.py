"""Files of runs: atomic writes, errors for full disks, checks of symbolic links, YAML, JSON and hashes."""

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PureWindowsPath
from typing import Any

import yaml

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError

UNFINISHED = ".part"  # the ending of temporary names
TEMPORARY = re.compile(r"\..+\.\d+\.part")  # `temporary_path`; a user's file `.x.part` has no process number
MAX_TEXT_BYTES = 20_000_000  # of a file of settings or texts that somebody wrote by hand
SOURCES = "sources"  # subfolder of a folder of results, for the texts without a result


# Messages of Python, safetensors and torch, whose writer reports the place of a failure and not its reason.
FULL_DISK = (
    "No space left on device",
    "os error 28",
    "Disk quota exceeded",
    "PytorchStreamWriter failed",
    "unexpected pos ",
)


@contextmanager
def explain_full_disk(path: Path) -> Iterator[None]:
    """Replace every error that a full disk causes in the block by an InputError about writing `path`."""
    try:
        yield
    except Exception as error:  # tokenizers raise plain exceptions
        if any(message in str(error) for message in FULL_DISK):
            problem = "no space is left on its disk. Free some and run again: finished work is kept."
            raise InputError(path, problem) from error
        raise


# The folders in which this process works. Each has a function that gets the path of each file before it is written. It
# raises an error if the folder no longer belongs to this process, because somebody deleted it (`store.run_lock`).
_owned_folders: dict[Path, Callable[[Path], None]] = {}


@contextmanager
def writes_checked(folder: Path, check: Callable[[Path], None]) -> Iterator[None]:
    """Call `check` with the resolved path of each file or folder in `folder` before it is written within the block."""
    folder = folder.resolve()
    outer = _owned_folders.get(folder)
    _owned_folders[folder] = check
    try:
        yield
    finally:
        del _owned_folders[folder]
        if outer is not None:
            _owned_folders[folder] = outer


def check_owner(path: Path) -> None:
    """Raise InputError if `path` is in a folder that this process worked in and that no longer belongs to it.

    Everything that writes a result calls this first, so that the run's record lists the result.
    """
    if _owned_folders:
        resolved = path.parent.resolve()
        for folder in (resolved, *resolved.parents):
            if folder in _owned_folders:
                _owned_folders[folder](resolved / path.name)


def temporary_path(path: Path) -> Path:
    """Return the path that this process writes first, in the folder of `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED}")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename the file to `path` if the block ends without an error.

    Raises:
        InputError: the folder cannot be created or written, or it belongs to a run of another process by now.
    """
    check_owner(path)
    temporary = temporary_path(path)
    try:
        with explain_full_disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())  # after a power cut, a renamed file must have its content
            check_owner(path)
            temporary.replace(path)
    except OSError as error:
        raise InputError(
            path,
            f"cannot be written ({error.strerror or error}); choose another {spelled('output_dir')}, or allow writing "
            "there.",
        ) from error
    finally:
        with suppress(OSError):  # the file is absent after a rename, or if it could not be written
            temporary.unlink()


def remove_temporary_files(paths: Iterable[Path]) -> None:
    """Remove the files and folders among `paths` that killed processes left as temporary ones."""
    for left in paths:
        if not TEMPORARY.fullmatch(left.name):
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def is_inside(folder: Path, path: Path) -> bool:
    """Return whether `path`, after following symbolic links, is `folder` or inside `folder`."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_file_name_inside(folder: Path, name: str) -> bool:
    """Return whether `name` is the plain relative name of a file inside `folder`; the file need not exist.

    A plain name is printable, has no backslash and no drive, and no part of the name between "/" is empty, "." or "..".

    >>> [is_file_name_inside(Path("run"), name) for name in ("adapter/model.json", "../run.json", "/etc/hosts", "C:x")]
    [True, False, False, False]
    """
    if not name.isprintable() or "\\" in name or PureWindowsPath(name).drive:
        return False
    if {"", ".", ".."}.intersection(name.split("/")):
        return False
    try:
        return not (folder / name).is_dir() and is_inside(folder, folder / name)
    except OSError:  # a name that is too long
        return False


def check_links_inside(folder: Path, field: str, within: Path | None = None, leave_out: Collection[str] = ()) -> None:
    """Raise InputError if `folder`, or a symbolic link inside `folder`, leads out of `within`, by default `folder`.

    Folders inside with a name in `leave_out` may be no such links either, but are not searched. The message names the
    setting `field`.
    """
    within = within or folder
    found = [folder]
    for place, folders, files in os.walk(folder):
        inside = [Path(place, name) for name in (*folders, *files)]
        found += [path for path in inside if path.is_symlink()]
        folders[:] = [name for name in folders if name not in leave_out]
    for path in found:
        if not is_inside(within, path):
            raise InputError(
                field,
                f"{path} is, or lies behind, a symbolic link that leads out of {within}; put the content in "
                "place of the link, or give another folder.",
            )


def is_gguf(name: str) -> bool:
    """Return whether a model's name is the name of a GGUF file."""
    return name.lower().endswith(".gguf")


def write_text(path: Path, text: str) -> None:
    """Write `text` to the file `path` as UTF-8, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def results_of_sources(
    field: str, folder: Path, sources: Mapping[str, Sequence[str]], suffix: str, task: str
) -> dict[str, Path]:
    """Return the path FOLDER/NAME + `suffix` of another program's results for each name.

    If results are missing, their sources, one text a line, are first written to FOLDER/sources/NAME.txt.

    Raises:
        InputError: results are missing; `field` is the setting, and `task` says what to do with the sources.
    """
    files = {name: folder / f"{name}{suffix}" for name in sources}
    if missing := {name: path for name, path in files.items() if not path.is_file()}:
        for name in missing:
            lines = [" ".join(text.splitlines()) for text in sources[name]]
            write_text(folder / SOURCES / f"{name}.txt", "".join(f"{line}\n" for line in lines))
        first = next(iter(missing.values())).name
        if len(missing) > 1:
            first += ", …"
        raise InputError(
            field,
            f"{folder} lacks {len(missing)} of {len(files)} files ({first}); {task} the files in "
            f"{folder / SOURCES} line by line, and write the results to {folder} under the same names, as *{suffix}.",
        )
    return files


def write_json(path: Path, value: object) -> None:
    """Write `value` to the file `path` as strict JSON, atomically; NaN and infinity raise ValueError."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_text(path: Path, field: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Return the text of a regular file in UTF-8, without a byte-order mark. `field` is the setting in error messages.

    Raises:
        InputError: the file cannot be read, is no regular file, has more than `limit` bytes, or is not UTF-8.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device may never end
            raise InputError(field, f"{path} is no file; give one.")
        if status.st_size > limit:
            raise InputError(field, f"{path} has {status.st_size:,} bytes, more than {limit:,}; give a shorter file.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(field, f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:  # not UTF-8, or a path with a null character
        if isinstance(error, InputError):
            raise
        raise InputError(field, f"{path} cannot be read: {error}.") from None


def read_json(path: Path, field: str, limit: int = MAX_TEXT_BYTES) -> Any:
    """Return the content of a JSON file.

    Raises:
        InputError: the file cannot be read, is not JSON, or has a key twice.
    """
    text = read_text(path, field, limit)
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise InputError(field, f"{path} is not JSON: {error}.") from None


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the object with these keys; ValueError if a key occurs twice, of which one would be lost."""
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError(f"one of the keys {', '.join(keys)} occurs twice")
    return dict(pairs)


def read_yaml(path: Path, field: str) -> Any:
    """Return the content of a YAML file. `field` is the name of the setting, for error messages.

    Raises:
        InputError: the file cannot be read, is not YAML, has a key twice, or has an alias.
    """
    text = read_text(path, field)
    try:
        return load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a number of 5000 digits, deep nesting
        raise InputError(field, f"{path} is not YAML: {' '.join(str(error).split())}") from None


def load_yaml(text: str) -> Any:
    """Return the value of a YAML text, with the plain values of YAML 1.2 (core schema), and without aliases.

    In YAML 1.1, `1:30` is the number 90, `010` is 8, and `no` is false; here they are texts.

    >>> load_yaml("[1e-3, 1.0e-3, text, 1:30, 010, no, true]")
    [0.001, 0.001, 'text', '1:30', '010', 'no', True]

    Raises:
        yaml.YAMLError: the text is not YAML, a mapping has a key twice, or there is an alias.
    """
    return yaml.load(text, Loader=_Loader)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which makes plain values only and calls no code, without the rules of YAML 1.1.

    It raises YAMLError for an alias, and for a key that a mapping has twice.
    """

    yaml_implicit_resolvers: dict = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):  # a few aliases of aliases stand for a billion values
            event = self.peek_event()
            line = event.start_mark.line + 1
            raise yaml.YAMLError(f"line {line}: the alias *{event.anchor} is not allowed; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in found:
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1}: the key {key.value!r} stands twice")
                found.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


_PLAIN_VALUES = (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(?:0|[1-9]\d*)", [*"-+0123456789"]),
    ("float", r"[-+]?(?:\.\d+|(?:0|[1-9]\d*)(?:\.\d*)?)(?:[eE][-+]?\d+)?", [*"-+.0123456789"]),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", [*"-+."]),
)


def dump_yaml(value: object) -> str:
    """Return a value as YAML without aliases, with the keys of mappings in their order."""
    return yaml.dump(value, Dumper=_NoAliases, sort_keys=False, allow_unicode=True)


class _NoAliases(yaml.SafeDumper):
    """PyYAML's safe writer, which writes a value in full each time that it occurs."""

    def ignore_aliases(self, data: object) -> bool:
        return True


# The writer also keeps the rules of YAML 1.1, so that it quotes texts that other readers would misread.
for _tag, _pattern, _first in _PLAIN_VALUES:
    for _class in (_Loader, _NoAliases):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), _first)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the content of a file, which this process reads once."""
    return _sha256(path, file_version(path))


def files_sha256(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 of several files: of the name, the length and the content of each, sorted by name.

    `files` has the paths of the files by their names. A file with another name, or content that moved from one file to
    another, gives another hash.
    """
    listed = [[name, files[name].stat().st_size, sha256_of(files[name])] for name in sorted(files)]
    return json_sha256(listed)


def file_version(path: Path) -> tuple[int, ...]:
    """Return numbers that change when a file is changed or replaced, for caches of what was read from it.

    Raises:
        OSError: there is no such file.
    """
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@cache
def _sha256(path: Path, version: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_sha256(value: object) -> str:
    """Return the SHA-256 of a value's JSON with sorted keys; values that JSON does not know count as their text."""
    return hashlib.sha256(json.dumps(_text_keys(value), sort_keys=True, default=str).encode()).hexdigest()


def _text_keys(value: object) -> object:
    """Return a value whose mappings have only text as keys, since JSON cannot sort numbers among texts."""
    if isinstance(value, Mapping):
        return {str(key): _text_keys(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_text_keys(item) for item in value]
    return value
