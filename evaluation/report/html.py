"""Rendering of a page as a self-contained HTML file that is readable without its script."""

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
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Page, Section, signature_rows
from evenhand.evaluation.report.tables import format_table


def page_html(page: Page) -> str:
    """Return the page as HTML. The script in the HTML only sorts, filters and saves tables and figures."""
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            tables=[format_table(table) for table in page.tables],
            lead=[_format_section(part) for part in page.lead if part.has_content],
            sections=[_format_section(part) for part in page.sections if part.has_content],
            sides=tuple(map(sanitize, page.sides)),
            css=style_sheet(),
            script=(script := script_text("report")),
            script_hash=script_hash(script),
            markdown_line=markdown_line(page),
            bibtex=bibtex(page),
            body_class="single" if len(page.sides) == 1 else "",
        )
    )


def style_sheet() -> Markup:
    """Return the text of the style sheet that all HTML pages include."""
    return Markup(Path(__file__).with_name("style.css").read_text(encoding="utf-8"))


def script_text(name: str) -> Markup:
    """Return the text of the script `name`.js in the folder of this module."""
    return Markup(Path(__file__).with_name(f"{name}.js").read_text(encoding="utf-8"))


def script_hash(script: str) -> str:
    """Return the hash of a script for the page's Content-Security-Policy, which forbids all other scripts."""
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"


def _format_section(part: Section) -> Section:
    """Return a copy of the section with formatted tables and without empty subsections."""
    return replace(
        part,
        tables=[format_table(table) for table in part.tables],
        parts=[_format_section(subsection) for subsection in part.parts if subsection.has_content],
    )


@cache
def environment() -> Environment:
    """Return the Jinja environment of the HTML templates, which escapes all values and rejects unknown names."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"sanitize": sanitize, "format_sentence": lambda text: _keep_units_together(sanitize(text))}
    environment.globals |= {"row_scale": plots.row_scale, "row_plot": plots.row_plot, "row_ticks": plots.row_ticks}
    environment.globals |= {"signature_rows": signature_rows, "zip": zip}
    return environment


def _keep_units_together(sentence: str) -> str:
    """Return the sentence with no-break spaces between numbers and units, and around the signs = and <."""
    return re.sub(r" (?=%|×|= |< )|(?<=[=<]) ", "\u00a0", sentence)
