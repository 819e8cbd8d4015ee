"""Rendering of a page as a self-contained HTML file that is readable without its script.

Tables have dot-and-interval plots for their rows, as SVG in the colours of the page. All coordinates are percentages,
so that a plot fits any width without scaling the plot's text. All text is escaped.
"""

import math
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.ticker import MaxNLocator

from evenhand.evaluation.report.numbers import decimals_for, number, sanitize, span, tick_number
from evenhand.evaluation.report.page import Mark, Page, Row, Section, format_table, signature_rows


def page_html(page: Page) -> str:
    """Return the page as HTML. The script in the HTML only sorts, filters and saves tables."""
    sections = [_format_section(section) for section in page.sections if section.has_content]
    return render("page.html.j2", "report", page=page, sections=sections)


def render(template: str, script_name: str, **values: object) -> str:
    """Return the HTML of a template with the style sheet and one script, the only one that the page's policy allows."""
    css = _read_file("style.css")
    script = _read_file(f"{script_name}.js")
    script_hash = f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"
    return _environment().get_template(template).render(css=css, script=script, script_hash=script_hash, **values)


def macro(template: str, name: str) -> Callable[..., Markup]:
    """Return a macro of a template that needs no values of a page."""
    found: Callable[..., Markup] = getattr(_environment().get_template(template).module, name)
    return found


def _read_file(name: str) -> Markup:
    """Return the content of a file of this folder, which is inserted without escaping."""
    return Markup(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _format_section(section: Section) -> Section:
    tables = [format_table(table) for table in section.tables if table.rows or table.note]
    parts = [_format_section(part) for part in section.parts if part.has_content]
    return replace(section, tables=tables, parts=parts)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["format_table"] = format_table
    environment.filters["sanitize"] = sanitize
    environment.filters["sentence"] = _sentence
    environment.globals.update(
        row_scale=row_scale, row_ticks=row_ticks, row_plot=row_plot, signature_rows=signature_rows, zip=zip
    )
    return environment


def _sentence(text: str) -> Markup:
    """Return a text as HTML whose lines break neither before a unit nor after the hyphens of a flag."""
    together = re.sub(r" (?=%|×|= |< )|(?<=[=<]) ", "\u00a0", sanitize(text))
    return Markup(re.sub(r"--\w[\w.]*\w", r'<span class="flag">\g<0></span>', str(escape(together))))


@dataclass(frozen=True)
class Scale:
    """A linear map from values between `low` and `high` to horizontal positions between 2 and 98 percent."""

    low: float
    high: float

    def __call__(self, value: float) -> float:
        """Return the horizontal position of a value in percent of the plot's width."""
        return round(2 + 96 * (value - self.low) / (self.high - self.low), 2)

    @property
    def ticks(self) -> list[float]:
        """About four equidistant round numbers within the range."""
        ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(self.low, self.high)
        return [float(tick) for tick in ticks if self.low <= tick <= self.high]


def row_scale(rows: Sequence[Row], ideal: float = 0.0) -> Scale:
    """Return a scale for the plots of all rows, which includes all finite marks, their intervals and the ideal."""
    values = [ideal]
    for row in rows:
        for mark in row.marks:
            values.append(mark.value)
            values += mark.interval or ()
    finite = [value for value in values if math.isfinite(value)]
    low = min(finite)
    high = max(finite)
    margin = 0.04 * (high - low) or 1.0
    return Scale(low - margin if low < ideal else low, high + margin)


def row_ticks(scale: Scale) -> Markup:
    """Return an SVG element with the tick labels that are above a column of plots."""
    label = Markup('<text x="{}%" y="70%" class="middle">{}</text>')
    labels = Markup("").join(label.format(scale(tick), tick_number(tick)) for tick in scale.ticks)
    return Markup('<svg class="ticks" aria-hidden="true">{}</svg>').format(labels)


def row_plot(row: Row, scale: Scale, ideal: float = 0.0, sides: Sequence[str] = ("before", "after")) -> Markup:
    """Return the plot of a row's marks: "before" as a ring, above "after" as a dot if there are both.

    `sides` are the names for "before" and "after" in the text alternative of the plot.
    """
    line = Markup('<line x1="{}%" y1="{}%" x2="{}%" y2="{}%" class="{}"/>')
    circle = Markup('<circle cx="{}%" cy="{}%" r="4" class="{}"/>')
    shapes = [line.format(scale(tick), 0, scale(tick), 100, "grid") for tick in scale.ticks if tick != ideal]
    shapes.append(line.format(scale(ideal), 0, scale(ideal), 100, "zero"))
    heights = {"before": 50}
    if any(mark.role == "after" for mark in row.marks):
        heights = {"before": 34, "after": 66}
    for mark in row.marks:
        y = heights[mark.role]
        if mark.interval is not None:
            low, high = mark.interval
            shapes.append(line.format(scale(low), y, scale(high), y, f"whisker {mark.role}"))
        shapes.append(circle.format(scale(mark.value), y, mark.role))
    names: dict[str, str] = dict(zip(("before", "after"), sides, strict=False))
    texts = [_mark_text(names.get(mark.role, mark.role), mark) for mark in row.marks]
    title = f"{row.label}: {', '.join(texts)}"
    svg = Markup('<svg class="row" role="img" aria-label="{}"><title>{}</title>{}</svg>')
    return svg.format(title, title, Markup("").join(shapes))


def _mark_text(name: str, mark: Mark) -> str:
    decimals = decimals_for((mark.value, *(mark.interval or ())))
    bounds = f" ({span(mark.interval, decimals)})" if mark.interval is not None else ""
    return f"{name} {number(mark.value, decimals)}{bounds}"
