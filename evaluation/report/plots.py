"""Dot-and-interval plots for the rows of a table, as SVG in the colours of the page.

All coordinates are percentages, so that a plot fits any width without scaling the plot's text. All text is escaped.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from evenhand.evaluation.report.numbers import number, tick_number
from evenhand.evaluation.report.tables import Mark, Row


@dataclass(frozen=True)
class Scale:
    """A linear map from values between `low` and `high` to horizontal positions between `start` and `end` percent."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the horizontal position of a value in percent of the plot's width."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 2)


def scale_for(values: Iterable[float], start: float, end: float, ideal: float = 0.0) -> Scale:
    """Return a scale from `start` to `end` percent that includes all finite values and the ideal."""
    values = [ideal, *(value for value in values if math.isfinite(value))]
    low, high = min(values), max(values)
    margin = 0.04 * (high - low) or 1.0
    return Scale(low - margin * (low < ideal), high + margin, start, end)


def ticks(scale: Scale, n_ticks: int = 4) -> list[float]:
    """Return the positions of ticks: about `n_ticks` equidistant round numbers within the range of the scale."""
    raw = (scale.high - scale.low) / n_ticks
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def row_scale(rows: Sequence[Row], ideal: float = 0.0) -> Scale:
    """Return a scale for the plots of all rows, which includes all marks, their intervals and the ideal."""
    marks = [mark for row in rows for mark in row.marks]
    return scale_for((value for mark in marks for value in (mark.value, *(mark.interval or ()))), 2.0, 98.0, ideal)


def row_ticks(scale: Scale) -> Markup:
    """Return an SVG element with the tick labels that are above a column of plots."""
    labels = (svg_text(tick_number(tick), scale(tick), 70, "tick middle") for tick in ticks(scale))
    return svg_figure("ticks", None, *labels)


def row_plot(row: Row, scale: Scale, ideal: float = 0.0, sides: Sequence[str] = ("before", "after")) -> Markup:
    """Return the plot of a row's marks: "before" as a ring above, "after" as a dot below, "truth" as a diamond.

    `sides` are the names for "before" and "after" in the text alternative of the plot.
    """
    parts = [svg_line(scale(tick), 0, scale(tick), 100, "grid") for tick in ticks(scale) if tick != ideal]
    parts.append(svg_line(scale(ideal), 0, scale(ideal), 100, "zero"))
    has_after = any(mark.role == "after" for mark in row.marks)
    heights = {"before": 34, "after": 66} if has_after else {"before": 50}
    for mark in row.marks:
        height = heights.get(mark.role, 50)
        if mark.interval is not None:
            parts.append(
                svg_line(scale(mark.interval[0]), height, scale(mark.interval[1]), height, f"whisker {mark.role}")
            )
        if mark.role == "truth":
            parts.append(svg_text("◇", scale(mark.value), 50, "middle truth"))
        else:
            parts.append(svg_circle(scale(mark.value), height, 4, mark.role))
    names = dict(zip(("before", "after"), sides, strict=False))
    texts = [_mark_text(names.get(mark.role, mark.role), mark) for mark in row.marks]
    return svg_figure("row", f"{row.label}: {', '.join(texts) or 'no values'}", *parts)


def _mark_text(name: str, mark: Mark) -> str:
    bounds = "" if mark.interval is None else f" ({number(mark.interval[0])} to {number(mark.interval[1])})"
    return f"{name} {number(mark.value)}{bounds}"


def svg_figure(css_class: str, title: str | None, *parts: Markup) -> Markup:
    """Return an SVG element with `title` as its text alternative; without a title, it is hidden from screen readers."""
    if title is None:
        return Markup('<svg class="{}" aria-hidden="true">{}</svg>').format(css_class, Markup("").join(parts))
    return Markup('<svg class="{}" role="img" aria-label="{}"><title>{}</title>{}</svg>').format(
        css_class, title, title, Markup("").join(parts)
    )


def svg_line(x1: float, y1: float, x2: float, y2: float, css_class: str) -> Markup:
    """Return an SVG line from (x1, y1) to (x2, y2), in percent."""
    return Markup('<line x1="{}%" y1="{}%" x2="{}%" y2="{}%" class="{}"/>').format(x1, y1, x2, y2, css_class)


def svg_circle(x: float, y: float, radius: float, css_class: str) -> Markup:
    """Return an SVG circle with its centre (x, y) in percent and its radius in pixels."""
    return Markup('<circle cx="{}%" cy="{}%" r="{}" class="{}"/>').format(x, y, radius, css_class)


def svg_text(text: str, x: float, y: float, css_class: str) -> Markup:
    """Return an SVG text at the position (x, y) in percent."""
    return Markup('<text x="{}%" y="{}%" class="{}">{}</text>').format(round(x, 2), round(y, 2), css_class, text)
