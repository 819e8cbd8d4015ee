"""Conversion of plain values to settings, with checks of every key, type and range."""

import re
import typing
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader
from pydantic import ConfigDict, TypeAdapter, ValidationError

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.runs.files import check_yaml
from evenhand.evaluation.runs.files import read_yaml as read_file
from evenhand.evaluation.runs.run_paths import with_resolved_paths
from evenhand.recipes.configs import config_file

CANNOT = " cannot be used: "
STRICT = ConfigDict(strict=True)
NAME = "name"  # the field of a group that a plain value in place of the group sets
RUN_RECORD = {"format", "command", "inputs"}  # what a run adds to the settings in its config.yaml
# (name in 0.2, name in 0.3) of each renamed setting; a plain name, or the end of a dotted one. An old name may have
# several new names: an error gives the name that is a setting of the command.
RENAMED = (
    ("side", "split"),
    ("untagged", "measure_without_tag"),
    ("untagged", "after_without_tag"),
    ("even_if_unbiased", "allow_no_bias"),
    ("largest_perplexity_rise", "max_perplexity_increase"),
    ("generations", "num_generations"),
    ("warmup", "warmup_ratio"),
    ("fewest_masculine", "min_masculine_references"),
    ("held_out", "test_fraction"),
)


@dataclass(frozen=True)
class Setting:
    """A setting of a command, or a group of settings: dotted name, type, default and help text."""

    name: str
    kind: Any
    default: Any
    text: str
    is_group: bool = False


def settings_in(cls: type, prefix: str = "", default: Any = None) -> Iterator[Setting]:
    """Yield every setting of a class, each group before its settings.

    Args:
        prefix: the beginning of the dotted names.
        default: the instance with the default values; None: `cls()`.
    """
    hints, default = typing.get_type_hints(cls, include_extras=True), cls() if default is None else default
    for field in fields(cls):
        name, kind, value = f"{prefix}{field.name}", hints[field.name], getattr(default, field.name)
        text, group = cls.__pydantic_fields__[field.name].description, settings_class_of(kind)
        yield Setting(name, kind, value, text, is_group=group is not None)
        if group is not None:
            yield from settings_in(group, f"{name}.", value)


def settings_class_of(kind: Any) -> type | None:
    """Return the settings class that a field's type is or contains; None if the field is not a group of settings."""
    if isinstance(kind, type) and is_dataclass(kind):
        return kind
    return next((cls for part in typing.get_args(kind) if (cls := settings_class_of(part))), None)


def checked(cls: type, mapping: Mapping[str, Any], source: str) -> Any:
    """Return an instance of `cls` with the values of a nested mapping, after a check of every key, type and range.

    Error messages begin with `source`.

    Raises:
        InputError: a key is unknown or was renamed; a value has the wrong type or is out of range.
    """
    return _build(cls, with_groups(cls, mapping, source), source)


def _build(cls: type, mapping: Mapping[str, Any], source: str, prefix: str = "") -> Any:
    """Return an instance of `cls` in which nested mappings are instances of the groups' classes."""
    hints, values = typing.get_type_hints(cls, include_extras=True), dict(mapping)
    for key, value in mapping.items():
        if isinstance(value, Mapping) and (group := settings_class_of(hints[key])):
            values[key] = _build(group, value, source, f"{prefix}{key}.")
        elif reason := _reason_unusable(value):
            raise InputError(f"{source}: {prefix}{key}: {format_value(value)}{CANNOT}{reason}.")
    try:
        return cls(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = prefix + ".".join(str(part) for part in first["loc"])
        if isinstance(cause := first.get("ctx", {}).get("error"), InputError):
            raise InputError(f"{source}: {name}{cause}") from None
        raise InputError(f"{source}: {refusal(name, first)}") from None


def refusal(name: str, error: Mapping[str, Any]) -> str:
    """Return pydantic's error about the value of a setting as one line."""
    return f"{name}: {format_value(error['input'])}{CANNOT}{error['msg']}."


def _reason_unusable(value: Any) -> str:
    """Return the reason why a value cannot be stored in a config file; "" if it can."""
    if isinstance(value, (Mapping, list)):
        items = [*value, *value.values()] if isinstance(value, Mapping) else value
        return next(filter(None, map(_reason_unusable, items)), "")
    if isinstance(value, (str, Path)):
        text = str(value)
        is_invalid = "\0" in text or text.encode(errors="replace") != text.encode(errors="ignore")
        return "It contains a null character or a lone surrogate" * is_invalid
    if isinstance(value, int):
        return "It has more than 64 bits" * (abs(value) >= 1 << 63)
    return "" if value is None or isinstance(value, float) else f"A setting has no type {type(value).__name__}"


def with_groups(cls: type, mapping: Mapping[str, Any], source: str, root: type | None = None, prefix: str = "") -> dict:
    """Return nested settings in which `{group: value}` is written out as `{group: {"name": value}}`.

    Raises:
        InputError: a key is unknown or contains a dot, or a group without the field `name` has a plain value.
    """
    hints, values = typing.get_type_hints(cls, include_extras=True), {}
    for key, value in mapping.items():
        if "." in str(key):
            nested = str(key).replace(".", ": {") + ": …" + "}" * str(key).count(".")
            raise InputError(f"{source}: {prefix}{key}: write groups as nested keys, {nested}.")
        if key not in hints:
            raise unknown_setting(root or cls, f"{prefix}{key}", source)
        values[key] = value
        group = settings_class_of(hints[key])
        may_be_none = type(None) in typing.get_args(hints[key])
        if group is None or isinstance(value, group) or (value is None and may_be_none):
            continue
        if not isinstance(value, Mapping):
            names = [field.name for field in fields(group)]
            if NAME not in names and value is not None:
                raise InputError(
                    f"{source}: {prefix}{key}: {format_value(value)} is not a group of settings ({', '.join(names)})."
                )
            value = {NAME: value} if NAME in names else {}
        values[key] = with_groups(group, value, source, root or cls, f"{prefix}{key}.")
        if NAME in value and value[NAME] is None and may_be_none:
            values[key] = None
    return values


def unknown_setting(cls: type, name: str, source: str) -> InputError:
    """Return the error for an unknown setting, with the setting's new name or similar known settings."""
    known = [setting.name for setting in settings_in(cls)]
    if new := next((new for new in new_names(name) if new in known), None):
        return InputError(f"{source}: {name} is now {new}.")
    group, _, last = name.rpartition(".")
    if is_set_by_caller(cls, group, last):
        return InputError(f"{source}: {name}: the command sets this itself; leave it out.")
    if name in known:
        first = next(setting for setting in known if setting.startswith(f"{name}."))
        return InputError(f"{source}: {name} is a group of settings; give them one by one, such as --{first}.")
    in_group = f"{group}." if group else ""
    inside = [setting for setting in known if setting.startswith(in_group) and setting.endswith(f".{last}")]
    likely = [min(inside, key=lambda setting: setting.count("."), default=last if last in known else None)]
    likely = [name for name in likely if name] or get_close_matches(name, known, n=1) or _described_by(cls, last)
    hint = f"did you mean {' or '.join(map(repr, likely))}?" if likely else "see --help."
    return InputError(f"{source}: {name!r} is unknown; {hint}")


def _described_by(cls: type, word: str) -> list[str]:
    """Return the settings outside groups whose help text contains a word; [] if more than three settings do."""
    names = [
        setting.name
        for setting in settings_in(cls)
        if "." not in setting.name and word.lower() in re.findall(r"\w+", setting.text.lower())
    ]
    return names if len(names) <= 3 else []


def new_names(name: str) -> list[str]:
    """Return the possible current dotted names of a setting of Evenhand 0.2.

    >>> new_names("tune.training.largest_perplexity_rise")
    ['tune.training.max_perplexity_increase']
    """
    return [(name.removesuffix(old) + new) for old, new in RENAMED if name == old or name.endswith(f".{old}")]


def is_set_by_caller(cls: type, group: str, name: str) -> bool:
    """Return whether the stage command of the settings group `group` has the field `name`.

    The loop and the ablation set such fields for their stages, so their users cannot set them.
    """
    for part in filter(None, group.split(".")):
        cls = settings_class_of(typing.get_type_hints(cls).get(part))
        if cls is None:
            return False
    fields_of_commands = {field.name for command in cls.__subclasses__() for field in fields(command)}
    return not fields_of_commands.isdisjoint((name, *new_names(name)))


def reader(name: str, kind: Any) -> Callable[[Any], Any]:
    """Return a function that parses the text of a flag.

    The function reads the text as null, plain text, a list `A,B` and YAML; it returns the first value of the setting's
    type.
    """

    def read(text: Any) -> Any:
        adapter, refused = TypeAdapter(kind, config=STRICT), []
        for value in _parsed_values(text, kind) if isinstance(text, str) else [text]:
            try:
                adapter.validate_python(value)
            except ValidationError as error:
                refused.append(error.errors()[0])
            else:
                return value
        furthest = max(reversed(refused), key=lambda error: len(error["loc"]))
        raise ArgumentTypeError(refusal(".".join(map(str, (name, *furthest["loc"]))), furthest))

    return read


def _parsed_values(text: str, kind: Any) -> Iterator[Any]:
    if text == "null":
        yield None
    yield text
    texts = [text]
    if _is_list(kind):
        yield [part.strip() for part in text.split(",")] if text[:1] != "[" else text
        texts.append(f"[{text}]")
    for candidate in texts:
        with suppress(yaml.YAMLError, ValueError, RecursionError):  # an integer of 5000 digits is a ValueError
            check_yaml(candidate)
            yield get_loader("yaml")(candidate)


def _is_list(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    return origin is list or (origin is not dict and any(map(_is_list, typing.get_args(kind))))


def read_yaml(file: Path, command: str) -> dict[str, Any]:
    """Return the settings in a YAML file, in a shipped config or in the `config.yaml` of a run.

    Raises:
        InputError: the file cannot be read, is not YAML, has no keys, or is a run of another command; no shipped
            config has this name.
    """
    settings = read_file(config_file(file), "--config", get_loader("yaml")) or {}
    if not isinstance(settings, dict):
        raise InputError(f"--config: {file} holds {type(settings).__name__}, not `field: value` lines.")
    if not settings.keys() >= RUN_RECORD:
        return settings
    if settings["command"] != command:
        raise InputError(f"--config: {file} is of a run of `{settings['command']}`, not of `{command}`.")
    return settings_of_run(with_resolved_paths(settings, file.parent))


def settings_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a run's `config.yaml` without the keys that the run adds to the settings."""
    return {name: value for name, value in config.items() if name not in RUN_RECORD}
