"""A page as one HTML file that needs no network and no other file, and is whole without its script."""

import re
from base64 import b64encode
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from evenhand.evaluation.report import plots
from evenhand.evaluation.report.citation import bibtex, markdown_line
from evenhand.evaluation.report.numbers import visible
from evenhand.evaluation.report.page import Page, Section, signature_rows
from evenhand.evaluation.report.tables import shown


def page_html(page: Page) -> str:
    """Return the page as HTML that needs no network and no other file; its script only sorts, filters and saves."""
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            tables=[shown(table) for table in page.tables],
            sections=[_ready(part) for part in page.sections if part.shown],
            sides=tuple(map(visible, page.sides)),
            css=style_sheet(),
            script=(script := script_text("report")),
            script_hash=script_hash(script),
            markdown_line=markdown_line(page),
            bibtex=bibtex(page),
            body_class="single" if len(page.sides) == 1 else "",
        )
    )


def style_sheet() -> Markup:
    """Return the style sheet of all pages."""
    return Markup(Path(__file__).with_name("style.css").read_text(encoding="utf-8"))


def script_text(name: str) -> Markup:
    """Return a script of this folder, as it stands in a page."""
    return Markup(Path(__file__).with_name(f"{name}.js").read_text(encoding="utf-8"))


def script_hash(script: str) -> str:
    """Return what a page's policy names the script by, so that no other one runs there."""
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"


def _ready(part: Section) -> Section:
    """Return the section with its tables ready to be shown, and without the parts that are empty."""
    return replace(
        part,
        tables=[shown(table) for table in part.tables],
        parts=[_ready(below) for below in part.parts if below.shown],
    )


@cache
def environment() -> Environment:
    """Return what templates are filled in with: everything escaped, a name that is not there an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"visible": visible, "shown": lambda text: _unbroken(visible(text))}
    environment.globals |= {"row_scale": plots.row_scale, "row_plot": plots.row_plot, "row_ticks": plots.row_ticks}
    environment.globals |= {"signature_rows": signature_rows, "zip": zip}
    return environment


def _unbroken(sentence: str) -> str:
    """Return a sentence that does not begin a line with the unit of a number."""
    return re.sub(r" (?=%|×|= |< )|(?<=[=<]) ", "\u00a0", sentence)
