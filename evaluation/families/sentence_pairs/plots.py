"""How the differences of sentence pairs are spread around the decision boundary: paper 001, Figure 2, laid on its side.

Each row has the outline of the density, a box from the lower to the upper quartile with the median in it, whiskers to
the last pair within 1.5 times the box's length, and the mean as an open dot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from scipy.stats import gaussian_kde

from evenhand.evaluation.report.numbers import number, percent, visible
from evenhand.evaluation.report.plots import Scale, svg_circle, svg_line, svg_text, tick_text, ticks

HEAD, LABEL, SPREAD = 2.9, 1.5, 2.3  # rem: the axis above all rows; a row's label; the drawing of one model
FRAME = (0.005, 0.995)  # the quantiles between which the frame reaches: a few far pairs would flatten all others
FEW = 8  # fewer pairs, or pairs that are all equal, have no density to draw; they are drawn as dots
GRID = 121  # points of an outline


@dataclass(frozen=True)
class Spread:
    """One row: the differences of its pairs by role, "before" and, where there are two models, "after"."""

    label: str
    differences: Mapping[str, np.ndarray]


def spread_plot(
    title: str, rows: Sequence[Spread], ends: tuple[str, str], towards: int, decimals: int
) -> tuple[Markup, int]:
    """Return the drawing, and how many pairs lie outside its frame.

    `ends` says what the left and the right of the boundary at 0 mean; `towards` is −1 where its left is the
    stereotype's side, else 1.
    """
    everything = np.concatenate([values for row in rows for values in row.differences.values()])
    x = _frame(everything)
    sides = max(len(row.differences) for row in rows)
    each = LABEL + SPREAD * sides
    height = HEAD + each * len(rows)

    def up(rem: float) -> float:
        return round(100 * rem / height, 3)

    parts = [svg_text(tick_text(tick), x(tick), up(HEAD - 0.4), "tick middle") for tick in ticks(x, about=6)]
    parts += [svg_line(x(tick), up(HEAD), x(tick), 100, "zero" if tick == 0 else "grid") for tick in ticks(x, about=6)]
    parts += [svg_text(f"← {ends[0]}", 0, up(1.0), "tick"), svg_text(f"{ends[1]} →", 100, up(1.0), "tick end")]
    told = []
    for place, row in enumerate(rows):
        top = HEAD + each * place
        label, beyond = visible(row.label, 60), _shares(row, towards)
        parts.append(svg_line(0, up(top), 100, up(top), "grid"))
        parts.append(svg_text(label, 0, up(top + 1.1), "label strong"))
        parts.append(svg_text(beyond, 100, up(top + 1.1), "label end"))
        for side, (role, values) in enumerate(row.differences.items()):
            start = top + LABEL + SPREAD * side
            parts += _spread(values, x, (up(start), up(start + SPREAD)), role)
        told.append(f"{label}: mean {' and '.join(_mean(values, decimals) for values in row.differences.values())}")
    told = f"{title}. {'; '.join(told)}"
    drawing = Markup('<svg height="{}rem" class="spread" role="img" aria-label="{}"><title>{}</title>{}</svg>')
    return drawing.format(round(height, 2), told, told, Markup("").join(parts)), int(
        sum(not x.holds(value) for values in rows[0].differences.values() for value in values)
    )


def _frame(values: np.ndarray) -> Scale:
    """Return a scale with 0 in it that leaves out the farthest pairs."""
    low, high = np.quantile(values, FRAME) if len(values) else (0.0, 0.0)
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    margin = 0.03 * (high - low) or 1.0
    return Scale(low - margin, high + margin, 0.0, 100.0)


def _spread(values: np.ndarray, x: Scale, rows: tuple[float, float], role: str) -> list[Markup]:
    """Return one model's density, box, whiskers and mean between two heights; nothing if there are no pairs."""
    if not len(values):
        return []
    top, bottom = rows
    middle = round((top + bottom) / 2, 3)
    if len(values) < FEW or np.ptp(values) == 0:
        return [svg_circle(x(float(value)), middle, 2.5, f"dot {role}") for value in values if x.holds(value)]
    lower, median, upper = np.quantile(values, [0.25, 0.5, 0.75])
    reach = 1.5 * (upper - lower)
    ends = values[(values >= lower - reach) & (values <= upper + reach)]
    places = {
        name: x(x.border(float(value))) for name, value in (("lower", lower), ("median", median), ("upper", upper))
    }
    first, last, mean = (x(x.border(float(value))) for value in (ends.min(), ends.max(), values.mean()))
    thick = (bottom - top) * 0.1
    return [
        _density(values, x, (top, bottom), role),
        svg_line(first, middle, last, middle, f"whisker {role}"),
        svg_line(places["lower"], middle, places["upper"], middle, f"box {role}"),
        svg_line(places["median"], middle - thick, places["median"], middle + thick, "median"),
        svg_circle(mean, middle, 4, f"mean {role}"),
    ]


def _density(values: np.ndarray, x: Scale, rows: tuple[float, float], role: str) -> Markup:
    """Return the outline of the density, mirrored, as high as the row at its highest."""
    grid = np.linspace(x.low, x.high, GRID)
    density = gaussian_kde(values)(grid)
    density = 0.9 * density / density.max()
    across = [x(float(value)) for value in grid]
    outline = [*zip(across, -density, strict=True), *zip(across[::-1], density[::-1], strict=True)]
    path = " ".join(f"{place},{half:.3f}" for place, half in outline)
    return Markup(
        '<svg y="{}%" height="{}%" viewBox="0 -1 100 2" preserveAspectRatio="none">'
        '<polyline points="{}" class="density {}"/></svg>'
    ).format(rows[0], round(rows[1] - rows[0], 3), path, role)


def _shares(row: Spread, towards: int) -> str:
    """Return how many pairs there are, and what share of them lies on the stereotype's side of 0."""
    signs = {"before": "○ ", "after": "● "} if len(row.differences) > 1 else {"before": ""}
    shares = [
        f"{signs[role]}{percent(float((values * towards > 0).mean()))}"
        for role, values in row.differences.items()
        if len(values)
    ]
    side = "left" if towards < 0 else "right"
    n = max(map(len, row.differences.values()))
    return f"{n:,} {'pair' if n == 1 else 'pairs'}, {' and '.join(shares)} {side} of 0"


def _mean(values: np.ndarray, decimals: int) -> str:
    return number(float(values.mean()), decimals) if len(values) else "undefined"
