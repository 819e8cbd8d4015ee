"""Placeholders, default values and completions of flags in help texts."""

import typing
from pathlib import Path
from typing import Any, Literal

METAVARS = {str: "TEXT", Path: "PATH", int: "INT", float: "NUM", bool: "BOOL", list: "A,B", dict: "{K: V}"}


def flag_metavar(kind: Any) -> str:
    """Return the placeholder in `--help` for a value of the type `kind`."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return "{" + ",".join(map(str, parts)) + "}"
    if origin is list and typing.get_origin(parts[0]) is dict:
        return "[{K: V}]"
    return METAVARS.get(origin) or METAVARS.get(kind) or flag_metavar(parts[0])


def flag_completion(kind: Any) -> dict[str, Any]:
    """Return the argument `choices` of `add_argument`, the values that a shell completes; {} for other types."""
    choices = (True, False) if kind is bool else typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    return {"choices": choices} if choices else {}


def flag_default(value: Any) -> str:
    """Return " (default: …)" for a help text; "" for null and empty defaults, which the help text explains."""
    if value is None or value in ("", [], {}):
        return ""
    text = ",".join(value) if isinstance(value, list) and isinstance(value[0], str) else str(value)
    return f" (default: {text.lower() if isinstance(value, bool) else text})"
