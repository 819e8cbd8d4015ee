"""How a setting is given at the two doors: as a flag of the command line, and as an argument of a Python function.

Errors and sentences name a setting by `spelled`, so that they say what their reader can write.
"""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import yaml

# The settings that are given most often also have a short name, the last part of the full name. The list is written
# out, so that a new setting never changes what a short name means.
SHORT_NAMES = (
    "model",
    "model.server",
    "model.dtype",
    "model.device",
    "metrics",
    "capabilities",
    "prompts.descriptors",
    "prompts.answers_per_cell",
    "prompts.cues",
    "prompts.language",
    "generation_bias.style_classifier",
    "generation_bias.second_style_classifier",
    "generation_bias.style_clusters",
    "generation_bias.outcomes",
    "generation_bias.accepted",
    "generation_bias.until",
    "generation_bias.max_difference",
    "generation_bias.max_rise",
    "generation_bias.against",
)
MAX_NEW_TOKENS = "decoding.arguments.max_new_tokens"  # has a flag, and is no setting but a key of one

_in_python: ContextVar[bool] = ContextVar("in_python", default=False)
_group: ContextVar[str] = ContextVar("group", default="")


@contextmanager
def python_door(group: str = "") -> Iterator[None]:
    """Let `spelled` name arguments of a Python function in this block, or in the function that this decorates.

    Args:
        group: the group whose settings are arguments of the function; other groups are none. "": each group is an
            argument, a dictionary.
    """
    tokens = _in_python.set(True), _group.set(group)
    try:
        yield
    finally:
        _in_python.reset(tokens[0])
        _group.reset(tokens[1])


def spelled(name: str, value: str = "") -> str:
    """Return how a setting is given with a value, or without one how it is called; "" if the function has no such one.

    Args:
        name: the dotted name of the setting in `measure`.
        value: the value as on the command line, without quotation marks.

    >>> (
    ...     spelled("model.dtype", "bfloat16"),
    ...     spelled("prompts.filters", "{axis: [age]}"),
    ...     spelled("generation_bias.until"),
    ... )
    ('--dtype bfloat16', "--prompts.filters '{axis: [age]}'", '--until')
    >>> with python_door():
    ...     spelled("generation_bias.permutations", "99"), spelled("output_dir")
    ('generation_bias={"permutations": 99}', 'output_dir')
    >>> with python_door("generation_bias"):
    ...     spelled("generation_bias.permutations", "99"), spelled("model.dtype", "bfloat16")
    ('permutations=99', '')
    """
    if not _in_python.get():
        flag = f"--{name.rpartition('.')[2] if name in (*SHORT_NAMES, MAX_NEW_TOKENS) else name}"
        return f"{flag} {value if value.isupper() else shlex.quote(value)}" if value else flag
    group = _group.get()
    if group and "." in name and not name.startswith(f"{group}."):
        return ""
    if group:
        name = name.removeprefix(f"{group}.")
    if not value:
        return name
    argument, *keys = name.split(".")
    text = _literal(yaml.safe_load(value))
    for key in reversed(keys):
        text = f"{{{json.dumps(key)}: {text}}}"
    if argument == "model" and keys:
        text = text.replace("{", '{"name": …, ', 1)
    return f"{argument}={text}"


def _literal(value: object) -> str:
    """Return a value of YAML as Python code."""
    if isinstance(value, dict):
        items = [f"{json.dumps(str(key))}: {_literal(item)}" for key, item in value.items()]
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
