"""Settings from plain values and back: every key, type and range checked, a mistake one clear error."""

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

from evenhand.evaluation.errors import InputError, shown
from evenhand.evaluation.runs.files import read_yaml as read_file
from evenhand.recipes.configs import config_file

CANNOT = " cannot be used: "
STRICT = ConfigDict(strict=True)
NAME = "name"  # the field that a plain value in a group's place is for
# (name in 0.2, name in 0.3) of each renamed setting; a plain name, or the end of a dotted one. An old name may have
# several new names: an error gives the one that is a setting of the command.
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
    """A field of a command, or a group of them: its dotted name, its type, its default and its line in `--help`."""

    name: str
    kind: Any
    default: Any
    text: str
    is_group: bool = False


def settings_in(cls: type, prefix: str = "", default: Any = None) -> Iterator[Setting]:
    """Yield every field by its dotted name, each group before what is in it; a family has its own defaults."""
    hints, default = typing.get_type_hints(cls, include_extras=True), cls() if default is None else default
    for field in fields(cls):
        name, kind, value = f"{prefix}{field.name}", hints[field.name], getattr(default, field.name)
        text, group = cls.__pydantic_fields__[field.name].description, group_in(kind)
        yield Setting(name, kind, value, text, is_group=group is not None)
        if group is not None:
            yield from settings_in(group, f"{name}.", value)


def group_in(kind: Any) -> type | None:
    """Return the class of settings that a field's type is, or may be."""
    if isinstance(kind, type) and is_dataclass(kind):
        return kind
    return next((found for part in typing.get_args(kind) if (found := group_in(part))), None)


def checked(cls: type, mapping: Mapping[str, Any], source: str) -> Any:
    """Return `cls(**told)`, every key, type and range checked; `source` is named in the error.

    Raises:
        InputError: a key is unknown or has another name now; a value has the wrong type or is out of range.
    """
    return _built(cls, with_groups(cls, mapping, source), source)


def _built(cls: type, mapping: Mapping[str, Any], source: str, at: str = "") -> Any:
    """Return the class of the values, its groups first."""
    hints, values = typing.get_type_hints(cls, include_extras=True), dict(mapping)
    for key, value in mapping.items():
        if isinstance(value, Mapping) and (group := group_in(hints[key])):
            values[key] = _built(group, value, source, f"{at}{key}.")
        elif reason := _unusable(value):
            raise InputError(f"{source}: {at}{key}: {shown(value)}{CANNOT}{reason}.")
    try:
        return cls(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = at + ".".join(str(part) for part in first["loc"])
        if isinstance(own := first.get("ctx", {}).get("error"), InputError):
            raise InputError(f"{source}: {where}{own}") from None
        raise InputError(f"{source}: {refusal(where, first)}") from None


def refusal(name: str, error: Mapping[str, Any]) -> str:
    """Return what pydantic has against a value, in one line."""
    return f"{name}: {shown(error['input'])}{CANNOT}{error['msg']}."


def _unusable(value: Any) -> str:
    """Return why no file of settings could hold a value, or no library count so far; "" where all is well."""
    if isinstance(value, (Mapping, list)):
        inside = [*value, *value.values()] if isinstance(value, Mapping) else value
        return next(filter(None, map(_unusable, inside)), "")
    if isinstance(value, (str, Path)):
        text = str(value)
        no_text = "\0" in text or text.encode(errors="replace") != text.encode(errors="ignore")
        return "A null character or half a surrogate pair is in it" * no_text
    if isinstance(value, int):
        return "It has more than 64 bits" * (abs(value) >= 1 << 63)
    return "" if value is None or isinstance(value, float) else f"{type(value).__name__} is no type of a setting"


def with_groups(cls: type, mapping: Mapping[str, Any], source: str, root: type | None = None, at: str = "") -> dict:
    """Return nested values with each plain value in a group's place as the group's name.

    Raises:
        InputError: a key is unknown, or a value is no group and cannot be the name of one.
    """
    hints, found = typing.get_type_hints(cls, include_extras=True), {}
    for key, value in mapping.items():
        if "." in str(key):
            nested = str(key).replace(".", ": {") + ": …" + "}" * str(key).count(".")
            raise InputError(f"{source}: {at}{key}: write groups as nested keys, {nested}.")
        if key not in hints:
            raise unknown_setting(root or cls, f"{at}{key}", source)
        found[key] = value
        group = group_in(hints[key])
        may_be_none = type(None) in typing.get_args(hints[key])
        if group is None or isinstance(value, group) or (value is None and may_be_none):
            continue
        if not isinstance(value, Mapping):
            names = [field.name for field in fields(group)]
            if NAME not in names and value is not None:
                raise InputError(f"{source}: {at}{key}: {shown(value)} is no group of settings ({', '.join(names)}).")
            value = {NAME: value} if NAME in names else {}
        found[key] = with_groups(group, value, source, root or cls, f"{at}{key}.")
        if NAME in value and value[NAME] is None and may_be_none:
            found[key] = None
    return found


def unknown_setting(cls: type, name: str, source: str) -> InputError:
    """Return the error for an unknown setting, with its new name or the setting that is likely meant."""
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
    likely = min(inside, key=lambda setting: setting.count("."), default=last if last in known else None)
    likely = likely or next(iter(get_close_matches(name, known, n=1)), None)
    return InputError(f"{source}: {name!r} is unknown; {f'did you mean {likely!r}?' if likely else 'see --help.'}")


def new_names(name: str) -> list[str]:
    """Return the dotted names that a setting of 0.2 may have now.

    >>> new_names("tune.training.largest_perplexity_rise")
    ['tune.training.max_perplexity_increase']
    """
    return [(name.removesuffix(old) + new) for old, new in RENAMED if name == old or name.endswith(f".{old}")]


def is_set_by_caller(cls: type, group: str, name: str) -> bool:
    """Return whether a stage's command has this field, which the loop or the ablation sets for its stages."""
    for part in filter(None, group.split(".")):
        cls = group_in(typing.get_type_hints(cls).get(part))
        if cls is None:
            return False
    fields_of_commands = {field.name for command in cls.__subclasses__() for field in fields(command)}
    return not fields_of_commands.isdisjoint((name, *new_names(name)))


def reader(name: str, kind: Any) -> Callable[[Any], Any]:
    """Return what reads a field's value: as null, text, YAML or `A,B`, whichever is of its type first."""

    def read(given: Any) -> Any:
        adapter, refused = TypeAdapter(kind, config=STRICT), []
        for value in _readings(given, kind) if isinstance(given, str) else [given]:
            try:
                adapter.validate_python(value)
            except ValidationError as error:
                refused.append(error.errors()[0])
            else:
                return value
        furthest = max(reversed(refused), key=lambda error: len(error["loc"]))
        raise ArgumentTypeError(refusal(".".join(map(str, (name, *furthest["loc"]))), furthest))

    return read


def _readings(text: str, kind: Any) -> Iterator[Any]:
    if text == "null":
        yield None
    yield text
    written = [text]
    if _is_list(kind):
        yield [part.strip() for part in text.split(",")] if text[:1] != "[" else text
        written.append(f"[{text}]")
    for each in written:
        with suppress(yaml.YAMLError, ValueError, RecursionError):  # an integer of 5000 digits is a ValueError
            yield get_loader("yaml")(each)


def _is_list(kind: Any) -> bool:
    origin = typing.get_origin(kind)
    return origin is list or (origin is not dict and any(map(_is_list, typing.get_args(kind))))


def read_yaml(file: Path) -> dict[str, Any]:
    """Return what a YAML file holds, or a shipped config.

    Raises:
        InputError: it cannot be read, is no YAML, or holds no keys; no config of that name is shipped.
    """
    settings = read_file(config_file(file), "--config", get_loader("yaml"))
    if not isinstance(settings or {}, dict):
        raise InputError(f"--config: {file} holds {type(settings).__name__}, not `field: value` lines.")
    return settings or {}
