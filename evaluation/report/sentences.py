"""The sentences of a report stand in a template beside its page, `sentences.j2`: as macros, lists and strings.

{% macro verdict(score) -%} Style differs with the descriptor: {{ score.value|number }}. {%- endmacro %}
{% set limits = ["These numbers …", …] %}

say = Sentences(__file__)
say.verdict(score), say.limits
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
    """What `sentences.j2` beside a module says, by name: a macro is called and returns its text, a list is a list.

    White space is folded: a template may break lines where it likes. Nothing is escaped; the page does that.
    """

    def __init__(self, file: str) -> None:
        """Take the module's `__file__`; the template is read when a sentence is first asked for."""
        self._folder = Path(file).resolve().parent

    @cached_property
    def _module(self) -> Any:
        environment = Environment(
            loader=FileSystemLoader(self._folder), undefined=StrictUndefined, autoescape=False, trim_blocks=True
        )
        for function in (numbers.number, numbers.percent, numbers.interval, numbers.p_value, numbers.visible):
            environment.filters[function.__name__] = function
        environment.filters |= {"undefined": numbers.undefined, "finite": math.isfinite, "span": numbers.span}
        environment.globals |= {"UNIT": numbers.UNIT, "PER_UNIT": numbers.PER_UNIT}
        return environment.get_template("sentences.j2").module

    def __getattr__(self, name: str) -> Any:
        """Return the macro or value of this name."""
        found = getattr(self._module, name)
        if callable(found):
            return lambda *values, **named: _folded(found(*values, **named))
        return _folded(found)


def _folded(value: Any) -> Any:
    if isinstance(value, (str, Markup)):
        return re.sub(r"[ \n]+", " ", str(value)).strip()  # a no-break space stays
    if isinstance(value, Mapping):
        return {_folded(key): _folded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_folded(item) for item in value]
    return value
