"""Access to the sentences of reports: macros, lists and strings in the template `sentences.j2` of a folder.

An example of a template, and of its use in a module of the same folder:

{% macro verdict(score) -%} Style differs with the descriptor: {{ score.value|number }}. {%- endmacro %}
{% set limits = ["These numbers …", …] %}

text = Sentences(__file__)
text.verdict(score), text.limits
"""

import math
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from evenhand.evaluation.report import numbers


class Sentences:
    """The macros, strings, lists and mappings of `sentences.j2` as attributes. A macro is a function that returns text.

    Each run of spaces and line breaks becomes one space, so that a template may break lines anywhere. The page that
    contains the sentences escapes them.
    """

    def __init__(self, file: str) -> None:
        """Store the folder of `file`, the `__file__` of a module; the folder's template is loaded on first use."""
        self._folder = Path(file).resolve().parent

    @cached_property
    def _module(self) -> Any:
        environment = Environment(
            loader=FileSystemLoader(self._folder), undefined=StrictUndefined, autoescape=False, trim_blocks=True
        )
        for function in (numbers.number, numbers.percent, numbers.interval, numbers.p_value, numbers.sanitize):
            environment.filters[function.__name__] = function
        environment.filters |= {"undefined": numbers.undefined, "finite": math.isfinite, "span": numbers.span}
        environment.globals |= {"UNIT": numbers.UNIT, "PER_UNIT": numbers.PER_UNIT}
        return environment.get_template("sentences.j2").module

    def __getattr__(self, name: str) -> Any:
        """Return the template's macro or value with a name."""
        value = getattr(self._module, name)
        if callable(value):
            return lambda *values, **named: _collapse_spaces(value(*values, **named))
        return _collapse_spaces(value)


def _collapse_spaces(value: Any) -> Any:
    if isinstance(value, (str, Markup)):
        return re.sub(r"[ \n]+", " ", str(value)).strip()  # no-break spaces remain
    if isinstance(value, Mapping):
        return {_collapse_spaces(key): _collapse_spaces(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_collapse_spaces(item) for item in value]
    return value
