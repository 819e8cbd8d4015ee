"""The reference of all settings, generated from their classes: `make reference` writes it to docs/settings.md."""

import re
import types
import typing
from typing import Any

from evenhand.recipes.command_line import positional, settings_in
from evenhand.recipes.command_settings import COMMANDS

HEAD = """# Settings

Which settings does each command have?

- A setting is `--NAME VALUE`, or `NAME: VALUE` in `--config FILE.yaml`; in a group it is `--GROUP.NAME`. The most
  frequent ones have [short names](configs.md#flags).
- A finished run that a command reads is an argument without a flag: `evenhand compare BEFORE AFTER`.
- In `loop`, the settings of `measure`, `label` and `tune` are `--measure.NAME`, `--label.NAME` and `--tune.NAME`. In
  `ablate` they begin with `--loop.`, and in its sweeps they are as in `loop`. In Python they have the same names.
- Limits have the units of the reports: pooled FGB* in 10⁻³, changes in %, differences of styles in answers of 100.
- `null` is no value; a list is `A,B`.

This page is generated (`make reference`); `evenhand COMMAND --help` shows the same.
"""
COLUMNS = "| name | type | default | meaning |\n| --- | --- | --- | --- |"
TYPES = {"str": "text", "Path": "path", "float": "number", "NoneType": "null", "Any": "any", "dict": "map"}


def reference() -> str:
    """Return the page: a table for each command, and one for each class of groups, where the class occurs first."""
    titles: dict[type, str] = {}

    def add(title: str, cls: type) -> None:
        titles[cls] = title
        for setting in settings_in(cls):
            if setting.group is not None and setting.group not in titles and "." not in setting.name:
                joint = "." if "--" in title else " --"
                add(f"{title}{joint}{setting.name}", setting.group)

    for command, cls in COMMANDS.items():
        add(" ".join([command, *map(str.upper, positional(cls))]), cls)
    sections = [f"## `{title}`\n\n{_table(cls, titles)}" for cls, title in titles.items()]
    return "\n".join([HEAD, *sections])


def anchor(title: str) -> str:
    """Return the anchor that GitHub and the documentation site give to a heading."""
    return re.sub(r"[^\w\- ]", "", title).replace(" ", "-").lower()


def _table(cls: type, titles: dict[type, str]) -> str:
    rows = []
    for setting in settings_in(cls):
        if "." in setting.name:
            continue  # in the table of its group
        kind, default = _type(setting.kind), f"`{_default(setting.default)}`".removeprefix("``")
        if setting.group is not None:
            kind, default = f"[group](#{anchor(titles[setting.group])})", ""
        meaning = setting.text.replace("|", "\\|")
        if not setting.has_flag:
            meaning += " (in a file or in Python, no flag)"
        rows.append(f"| `{setting.name}` | {kind} | {default} | {meaning} |")
    return "\n".join([cls.__doc__.splitlines()[0], "", COLUMNS, *rows, ""])


def _default(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "[]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _type(kind: Any) -> str:
    """Return the type as words: "int", "text or null", or the values of a Literal."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _type(parts[0])
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in parts)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_type, parts)))
    name = getattr(origin or kind, "__name__", str(kind))
    return TYPES.get(name, name)


if __name__ == "__main__":
    print(reference())
