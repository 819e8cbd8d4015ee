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
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Page, Section, signature_rows
from evenhand.evaluation.report.tables import format_table


def page_html(page: Page) -> str:
    """Return the page as HTML. The script in the HTML only sorts, filters and saves tables."""
    sections = [_format_section(part) for part in page.sections if part.has_content]
    return render("page.html.j2", "report", page=page, sections=sections)


def render(template: str, script_name: str, **values: object) -> str:
    """Return the HTML of a template with the style sheet and one script, the only one that the page's policy allows."""
    script = Markup(Path(__file__).with_name(f"{script_name}.js").read_text(encoding="utf-8"))
    script_hash = f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
    text = _environment().get_template(template)
    return text.render(css=style_sheet(), script=script, script_hash=script_hash, **values)


def style_sheet() -> Markup:
    """Return the text of the style sheet that all HTML pages include."""
    return Markup(Path(__file__).with_name("style.css").read_text(encoding="utf-8"))


def _format_section(part: Section) -> Section:
    """Return a copy of the section with formatted tables and without empty subsections."""
    tables = [format_table(table) for table in part.tables if table.rows or table.note]
    return replace(part, tables=tables, parts=[_format_section(it) for it in part.parts if it.has_content])


@cache
def _environment() -> Environment:
    """Return the Jinja environment of the HTML templates, which escapes all values and rejects unknown names."""
    options = {"autoescape": True, "undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), **options)
    environment.filters |= {"sanitize": sanitize, "sentence": _keep_units_together}
    environment.globals |= {"plots": plots, "signature_rows": signature_rows, "zip": zip}
    return environment


def _keep_units_together(sentence: str) -> str:
    """Return the sanitized sentence with no-break spaces between numbers and units, and around the signs = and <."""
    return re.sub(r" (?=%|×|= |< )|(?<=[=<]) ", "\u00a0", sanitize(sentence))
