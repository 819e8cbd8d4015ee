"""Settings as strict pydantic models: their base, their check, and which of them are part of a run's identity.

This module imports no slow libraries, because `--help` imports it.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from evenhand.evaluation.errors import InputError, format_value

AUTO = "auto"
# Whether a field is part of a run's identity: `json_schema_extra` of the field. Without any, its value is.
IDENTITY = "identity"
NOT_COMPARED: dict[str, JsonValue] = {IDENTITY: False}  # it changes no result
BY_CONTENT: dict[str, JsonValue] = {IDENTITY: "content"}  # a fingerprint of what the path or name leads to counts
WITHOUT_FLAG: dict[str, JsonValue] = {"flag": False}  # it stands in a file or in Python, never on the command line
NAME = "name"  # the field of a group that a plain value in place of the group sets
Fraction = Annotated[float, Field(gt=0, lt=1)]
MAX_COUNT = 2**31 - 1  # largest 32-bit integer
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # range of numpy.random.seed, which transformers calls
SURROGATE = re.compile(r"[\ud800-\udfff]")  # Python's text for a byte of an argument that is not UTF-8
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
NonBlank = Annotated[str, Field(strict=True, pattern=r"\S")]


class Access(StrEnum):
    """What a model gives to those who measure it."""

    ANSWERS = "answers"
    LIKELIHOODS = "log-likelihoods of texts"
    PREDICTIONS = "predictions of tokens"
    WEIGHTS = "weights"


class StrictSettings(BaseModel):
    """The base of all settings: an unknown name is an error, and so is a value of a wrong type or out of range.

    A field is `name: type = Field(default, description="…")`, with the text for `--help` and the documentation.
    Every field is part of the identity of a run, unless its `json_schema_extra` is one of the constants above.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    def replaced(self, **changes: object) -> Self:
        """Return a copy with other values of some fields; all values are checked again."""
        return type(self)(**{**vars(self), **changes})


class NamedSettings(StrictSettings):
    """A group of settings with a field `name`. A string is short for {name: string}."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, values: object) -> object:
        if isinstance(values, (str, Path)):
            values = {NAME: values}
        return cls._with_parts({} if values is None else values)

    @classmethod
    def _with_parts(cls, values: object) -> object:
        """Return the values of a group, where a part of the name may be the value of another field."""
        return values


def as_settings(settings: object) -> Any:
    """Return settings as plain YAML values, without the fields that are None by default and are None."""
    if isinstance(settings, BaseModel):
        return {name: as_settings(value) for name, value, _ in _values(settings)}
    if isinstance(settings, dict):
        return {key: as_settings(value) for key, value in settings.items()}
    if isinstance(settings, (list, tuple)):
        return [as_settings(item) for item in settings]
    return str(settings) if isinstance(settings, Path) else settings


def checked(cls: type, values: object, source: str) -> Any:
    """Return an instance of a settings class from nested plain values, after a check of every key, type and range.

    In Python, paths may be given as `Path`.

    Raises:
        InputError: a key is unknown; a value has the wrong type or is out of range. The one-line message begins with
            `source` and has the dotted name of each wrong setting.
    """
    values = _with_texts_for_paths(values)
    if faults := list(_unusable("", values)):
        raise InputError(source, f"{'; '.join(faults)}")
    try:
        settings = TypeAdapter(cls).validate_python(values)
    except ValidationError as error:
        raise InputError(source, f"{'; '.join(_describe(each, cls) for each in error.errors())}") from None
    if faults := list(_booleans_for_numbers("", values, settings)):
        raise InputError(source, f"{'; '.join(faults)}")
    return settings


def _with_texts_for_paths(values: Any) -> Any:
    """Return nested values with a text in place of each `Path`."""
    if isinstance(values, Path):
        return str(values)
    if isinstance(values, Mapping):
        return {key: _with_texts_for_paths(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_with_texts_for_paths(value) for value in values]
    return values


def _items(values: object) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of a mapping, or the numbers and items of a list; nothing of other values."""
    if isinstance(values, Mapping):
        yield from ((str(key), value) for key, value in values.items())
    elif isinstance(values, list | tuple):
        yield from ((str(number), value) for number, value in enumerate(values))


def _unusable(name: str, value: object) -> Iterator[str]:
    """Yield a fault for each value that no file name can have, no library can read, or no record of a run can hold."""
    if isinstance(value, str) and "\0" in value:
        yield f"{name}: {format_value(value)} has a null character; leave it out."
    elif isinstance(value, str) and SURROGATE.search(value):
        yield f"{name}: {format_value(value)} is not UTF-8, in which runs record their settings; give another."
    elif isinstance(value, int) and abs(value) >= 2**63:
        yield f"{name}: the integer has {len(format(abs(value), 'x'))} hexadecimal digits; give a smaller one."
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{name}: {value} is not finite; give a finite number."
    elif isinstance(value, date | bytes | set | frozenset):  # of the tags !!timestamp, !!binary and !!set in YAML
        yield f"{name}: {format_value(value)} is no text, number, list or mapping; write it as a text."
    for key, item in _items(value):
        yield from _unusable(f"{name}.{key}" if name else key, item)


def _booleans_for_numbers(name: str, given: object, settings: object) -> Iterator[str]:
    """Yield a fault for each boolean that became a number; pydantic takes true for 1."""
    if isinstance(given, bool) and not isinstance(settings, bool) and isinstance(settings, int | float):
        yield f"{name}: {given} cannot be used: it is not a number."
    for key, item in _items(given):
        if isinstance(given, Mapping):
            value = settings.get(key) if isinstance(settings, Mapping) else getattr(settings, key, None)
        else:
            value = settings[int(key)] if isinstance(settings, list | tuple) and int(key) < len(settings) else None
        yield from _booleans_for_numbers(f"{name}.{key}" if name else key, item, value)


TYPE = re.compile(r".+\[.*\]|constrained-\w+|str|int|float|bool")  # pydantic's words for the types of a setting


def group_of(annotation: Any) -> type[BaseModel] | None:
    """Return the class of a group of settings by the type of its field, which may be optional; None for a value."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _describe(error: Mapping[str, Any], cls: Any) -> str:
    """Return one of pydantic's errors with the dotted name of the setting, of settings of the class `cls`.

    Where a setting has several types, pydantic adds the type to the name.
    """
    location = [name for name in map(str, error["loc"]) if not TYPE.fullmatch(name)]
    dotted = ".".join(location)
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # it names a field of the group
        return ".".join([*location, str(cause)])
    if error["type"] == "extra_forbidden":
        return f"{dotted}: {_unknown_setting(location, cls)}"
    if error["type"] == "missing":
        return f"{dotted}: it is missing; give a value."
    return f"{dotted}: {format_value(error['input'])} cannot be used: {error['msg']}."


def _unknown_setting(location: Sequence[str], cls: Any) -> str:
    """Return what is wrong with the name of a setting that does not exist, and the name that may have been meant."""
    *groups, name = location
    for group in groups:
        field = cls.model_fields.get(group) if cls is not None else None
        cls = None if field is None else group_of(field.annotation)
    close = get_close_matches(name, cls.model_fields, n=1) if cls is not None else []
    if close:
        return f"there is no such setting; did you mean {close[0]!r}?"
    return "there is no such setting; leave it out."


def identity_of(settings: object, *, with_paths: bool = False) -> dict[str, object]:
    """Return the settings that are part of a run's identity, as plain YAML values by dotted name.

    `with_paths` includes the fields with the identity "content": paths and names whose content counts.
    """
    return dict(_identity("", settings, (True, "content") if with_paths else (True,)))


def _identity(name: str, value: object, kinds: tuple[bool | str, ...]) -> Iterator[tuple[str, object]]:
    if isinstance(value, BaseModel):
        items = [(field, item) for field, item, extra in _values(value) if extra.get(IDENTITY, True) in kinds]
    elif isinstance(value, Mapping):
        items = list(value.items())
    else:
        yield name, as_settings(value)
        return
    for key, item in items:
        yield from _identity(f"{name}.{key}" if name else str(key), item, kinds)


def _values(settings: BaseModel) -> Iterator[tuple[str, object, Mapping[str, object]]]:
    """Yield name, value and declaration of each field, except the fields that are None by default and are None.

    So a setting that is added later, with null as its default, changes the identity of no run without it.
    """
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        declared = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if value is not None or field.default is not None:
            yield name, value, declared
