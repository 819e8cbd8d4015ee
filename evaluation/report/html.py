"""What HTML files that need no network, no script and no other file are made with."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from evaluation.report import plots
from evaluation.report.numbers import visible


def page_environment() -> Environment:
    """Return what templates are filled in with: everything escaped, a name that is not there an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"visible": visible, "unbroken": unbroken, "shown": lambda text: unbroken(visible(text))}
    environment.globals |= {"row_scale": plots.row_scale, "row_plot": plots.row_plot, "row_ticks": plots.row_ticks}
    environment.globals |= {"signature_rows": signature_rows, "zip": zip}
    return environment


def unbroken(sentence: str) -> str:
    """Return a sentence that does not begin a line with the unit of a number."""
    return re.sub(r" (?=%|×|= |< )|(?<=[=<]) ", "\u00a0", sentence)


def signature_rows(signature: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return a nested signature as (dotted name, value) rows, in the order given."""
    rows = []
    for name, value in signature.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            rows += signature_rows(value, f"{dotted}.")
        else:
            rows.append((visible(dotted), visible(str(value))))
    return rows
