"""Dot-and-interval plots for the rows of a table, as SVG in the colours of the page.

All coordinates are percentages, so that a plot fits any width without scaling the plot's text. All text is escaped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from evenhand.evaluation.report.numbers import number, tick_number
from evenhand.evaluation.report.page import Mark, Row


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
    marks = [value for row in rows for mark in row.marks for value in (mark.value, *(mark.interval or ()))]
    values = [ideal, *filter(math.isfinite, marks)]
    low, high = min(values), max(values)
    margin = 0.04 * (high - low) or 1.0
    return Scale(low - margin * (low < ideal), high + margin)


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
    parts = [line.format(scale(x), 0, scale(x), 100, "grid") for x in scale.ticks if x != ideal]
    parts.append(line.format(scale(ideal), 0, scale(ideal), 100, "zero"))
    heights = {"before": 34, "after": 66} if any(mark.role == "after" for mark in row.marks) else {"before": 50}
    for mark in row.marks:
        y = heights[mark.role]
        if mark.interval is not None:
            low, high = map(scale, mark.interval)
            parts.append(line.format(low, y, high, y, f"whisker {mark.role}"))
        circle = Markup('<circle cx="{}%" cy="{}%" r="4" class="{}"/>')
        parts.append(circle.format(scale(mark.value), y, mark.role))
    names = dict(zip(("before", "after"), sides, strict=False))
    texts = ", ".join(_mark_text(names.get(mark.role, mark.role), mark) for mark in row.marks)
    title = f"{row.label}: {texts}"
    return Markup('<svg class="row" role="img" aria-label="{}"><title>{}</title>{}</svg>').format(
        title, title, Markup("").join(parts)
    )


def _mark_text(name: str, mark: Mark) -> str:
    bounds = "" if mark.interval is None else f" ({number(mark.interval[0])} to {number(mark.interval[1])})"
    return f"{name} {number(mark.value)}{bounds}"
