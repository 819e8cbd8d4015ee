"""The plots of a sweep as SVG: what is removed against what it costs, and the plan's predictions against the outcome.

As in evaluation/report/plots.py, places are percentages, so that a plot fits any width, and text is never scaled. Each
setting is a small drawing of its own at such a place, in which sizes are pixels; the numbers beside the dots are placed
so that they do not collide at the size that the style sheet gives a plot on a wide page.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from evenhand.evaluation.report.numbers import number, percent, visible
from evenhand.evaluation.report.plots import Scale, svg_figure, svg_line, svg_text, tick_text, ticks
from evenhand.recipes.sweep.bar import Bar
from evenhand.recipes.sweep.summary import FACTOR, METHOD

COST_SIZE, PLAN_SIZE = (912, 400), (736, 480)  # width and height in pixels on a wide page; style.css
FEW_SETTINGS = 8  # of so few, each is named in the plot; of more, the numbers point to the table
LEFT, RIGHT, TOP, BOTTOM = 6.5, 98.5, 4.0, 86.0  # where the panel's own area begins and ends, percent
LABEL_HEIGHT, LETTER = 12.0, 7.4  # pixels; of the style sheet's bold .75rem a letter is rarely wider
FENCE = 3.0  # interquartile ranges beyond the quartiles at which a point is "far out" (Tukey 1977)

# The marks of methods, in pixels around the point; None is a circle. A seventh method begins again.
SHAPES: tuple[tuple[tuple[float, float], ...] | None, ...] = (
    None,
    ((-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)),
    ((0, -5.6), (5.2, 3.8), (-5.2, 3.8)),
    ((0, -6), (6, 0), (0, 6), (-6, 0)),
    ((0, 5.6), (5.2, -3.8), (-5.2, -3.8)),
    ((-6.3, 0), (-3.1, -5.4), (3.1, -5.4), (6.3, 0), (3.1, 5.4), (-3.1, 5.4)),
)

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Dot:
    """A setting in a plot: its place in data units, its vertical interval, and how it is shown."""

    label: str
    title: str
    x: float
    y: float
    y_low: float = math.nan
    y_high: float = math.nan
    shape: int = 0
    filled: bool = False


def cost_panel(settings: pd.DataFrame, bar: Bar, cost: str) -> Markup:
    """Return what each setting removes against its cost, with the Pareto front and the bar's limit for that cost.

    Args:
        settings: of `judged`.
        cost: "perplexity" or "distinct_2"; less perplexity is better, so is more distinct-2.
    """
    column, limit = f"{cost}_change", bar.perplexity_rise if cost == "perplexity" else -bar.distinct_2_fall
    drawn = settings[settings[column].notna() & settings["reduction"].notna()]
    places = {"x": column, "y": "reduction", "y_low": "reduction_low", "y_high": "reduction_high"}
    dots = _settings_as_dots(
        drawn,
        settings,
        places,
        told=lambda row: f"{percent(row['reduction'], 1)} removed, {percent(row[column], 1, sign=True)}",
        filled="met",
    )
    x, y = _framed([dot.x for dot in dots], limit, LEFT, RIGHT), _framed([dot.y for dot in dots], 1.0, BOTTOM, TOP)
    name = f"change of {cost.replace('_', '-')}"
    front = drawn[drawn[f"front_{cost}"]].sort_values(column, ascending=cost == "perplexity")
    parts = _grid(x, y, name, "removed")
    parts += [svg_line(x(limit), TOP, x(limit), BOTTOM, "limit"), _limit_text(x(limit), cost)]
    corners = [(x(x.border(r[column])), y(y.border(r["reduction"]))) for r in front.to_dict("records")]
    steps = _front(corners, cost)
    parts += [svg_line(*step, "front") for step in steps]
    listed = ", ".join(str(it) for it in front["number"])
    title = f"Pooled FGB* removed against the {name}, {len(dots)} settings; on the Pareto front: {listed or 'none'}"
    return svg_figure("panel tall", title, *parts, *_dots(dots, x, y, COST_SIZE, steps))


def plan_panel(rows: pd.DataFrame, settings: pd.DataFrame) -> Markup:
    """Return what is left of pooled FGB* against what was predicted, with the diagonal and a factor of two each way.

    Predicted by the method's pilot; the pilots themselves stand, hollow, where the plan had them.

    Args:
        rows: of `planned`. settings: all of them.
    """
    rows = rows.assign(piloted=rows["piloted_left"].notna(), x=rows["piloted_left"].fillna(rows["predicted_left"]))
    places = {"x": "x", "y": "left", "y_low": "left_low", "y_high": "left_high"}
    dots = _settings_as_dots(
        rows,
        settings,
        places,
        told=lambda row: f"predicted {percent(row['x'], 1)} left, measured {percent(row['left'], 1)}",
        filled="piloted",
    )
    shares = [share for dot in dots for share in (dot.x, dot.y)]
    x, y = _framed(shares, 0.2, LEFT, RIGHT), _framed(shares, 0.2, BOTTOM, TOP)
    parts = _grid(x, y, "predicted to be left", "left")
    parts += [_ray(1.0, x, y, "diagonal"), _ray(FACTOR, x, y, "ray"), _ray(1 / FACTOR, x, y, "ray")]
    title = f"Measured against predicted share of pooled FGB* left, {len(dots)} settings; the diagonal is agreement"
    return svg_figure("panel square", title, *parts, *_dots(dots, x, y, PLAN_SIZE))


def _settings_as_dots(
    drawn: pd.DataFrame,
    settings: pd.DataFrame,
    places: Mapping[str, str],
    told: Callable[[Mapping[str, Any]], str],
    filled: str,
) -> list[Dot]:
    """Return a dot for each setting that is drawn.

    Args:
        settings: all of them.
        places: where its coordinates stand, by the fields of `Dot`; filled: the column that says whether it is.
        told: what is said of a setting to those who point at its dot.
    """
    shapes = method_shapes(settings)
    dots = []
    for row in drawn.to_dict("records"):
        name = visible(f"{row['number']} {row['label']}", 40) if len(settings) <= FEW_SETTINGS else str(row["number"])
        title = f"{row['number']}: {row['label']}: {told(row)}"
        coordinates = {field: row[column] for field, column in places.items()}
        dots.append(Dot(name, title, **coordinates, shape=shapes[row[METHOD]], filled=bool(row[filled])))
    return dots


def method_shapes(settings: pd.DataFrame) -> dict[str, int]:
    """Return the number of each method's mark."""
    return {method: place % len(SHAPES) for place, method in enumerate(dict.fromkeys(settings[METHOD]))}


def legend(
    settings: pd.DataFrame, drawn: pd.DataFrame, filled: str, hollow: str, line: str
) -> list[tuple[Markup, str]]:
    """Return marks with what they mean: the methods that are drawn, if there are several, and the rest as told."""
    shapes = method_shapes(settings)
    names = [name for name in shapes if name in set(drawn[METHOD])] if len(shapes) > 1 else []
    methods = [(_key(_mark(shapes[name], filled=False)), visible(name, 60)) for name in names]
    ruled = _key(Markup('<line x1="-8" x2="8" class="front"/>'))
    return [*methods, (_key(_mark(0, filled=True)), filled), (_key(_mark(0, filled=False)), hollow), (ruled, line)]


def _key(mark: Markup) -> Markup:
    return Markup('<svg class="key" aria-hidden="true" viewBox="-8 -8 16 16">{}</svg>').format(mark)


def place_labels(
    dots: Sequence[tuple[float, float]], widths: Sequence[float], size: tuple[float, float], lines: Sequence[Box] = ()
) -> list[tuple[float, float]]:
    """Return for each of n dots where the middle of its label lies, in pixels from the dot.

    One after the other takes, of places around it at growing distance, that which covers least of dots, lines and the
    labels before it; nearer is better.

    Args:
        dots: their places, in pixels. widths: of the labels. size: width and height of the plot.
        lines: left, top, right and bottom of what had better not be covered either.
    """
    taken = [_box(x, y, 10, 10) for x, y in dots]
    chosen = []
    for (x, y), width in zip(dots, widths, strict=True):
        options = []
        for far in (11.0, 16.0, 22.0, 30.0, 40.0, 52.0):
            beside, aslant = far + width / 2 - 4, 0.6 * (far - 6) + width / 2
            around = [(aslant, -far), (-aslant, -far), (aslant, far), (-aslant, far)]
            for dx, dy in (*around, (beside, 0.0), (-beside, 0.0), (0.0, -far), (0.0, far)):
                box = _box(x + dx, y + dy, width, LABEL_HEIGHT)
                cover = sum(_overlap(box, it) for it in taken) + 0.5 * sum(_overlap(box, it) for it in lines)
                options.append((cover + 0.4 * far + 1000 * _outside(box, size), len(options), dx, dy, box))
        *_, dx, dy, box = min(options)
        taken.append(box)
        chosen.append((round(dx, 1), round(dy, 1)))
    return chosen


def _box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _overlap(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0


def _outside(box: Box, size: tuple[float, float]) -> bool:
    left, top, right, bottom = LEFT / 100 * size[0], 0.0, size[0], BOTTOM / 100 * size[1]
    return box[0] < left or box[1] < top or box[2] > right or box[3] > bottom


def _framed(values: Iterable[float], must: float, start: float, end: float) -> Scale:
    """Return a scale that holds 0, `must` and all values but those far out, which would squeeze the others."""
    finite = np.array([value for value in values if math.isfinite(value)])
    if len(finite):
        lower, upper = np.percentile(finite, [25, 75])
        reach = FENCE * max(upper - lower, 0.05 * abs(upper), abs(must) / 4)
        finite = finite[(finite >= lower - reach) & (finite <= upper + reach)]
    low, high = float(min(0.0, must, *finite)), float(max(0.0, must, *finite))
    margin = 0.05 * (high - low) or 0.01
    return Scale(low - margin, high + margin, start, end)


def _grid(x: Scale, y: Scale, x_name: str, y_name: str) -> list[Markup]:
    """Return the lines of both axes, in percent, with their numbers at the left and below, and their names."""
    parts = []
    for tick in ticks(x, 8):
        parts.append(svg_line(x(tick), TOP, x(tick), BOTTOM, "zero" if tick == 0 else "grid"))
        parts.append(svg_text(f"{tick_text(round(100 * tick, 6))} %", x(tick), BOTTOM + 5, "tick middle"))
    for tick in ticks(y, 6):
        parts.append(svg_line(LEFT, y(tick), RIGHT, y(tick), "zero" if tick == 0 else "grid"))
        parts.append(svg_text(f"{tick_text(round(100 * tick, 6))} %", LEFT - 0.8, y(tick) + 1, "tick end"))
    parts.append(svg_text(f"{x_name} →", RIGHT, BOTTOM + 11, "tick end"))
    parts.append(svg_text(f"↑ {y_name}", 0, BOTTOM + 11, "tick"))
    return parts


def _limit_text(place: float, cost: str) -> Markup:
    """Return the name of the bar's line, on the side that is still allowed."""
    side = ("end", -0.6) if cost == "perplexity" else ("", 0.6)
    return svg_text("the bar", place + side[1], TOP + 2, f"label {side[0]}".strip())


def _front(places: Sequence[tuple[float, float]], cost: str) -> list[Box]:
    """Return the front's steps, what can be had for at most this cost, as x1, y1, x2, y2 in percent.

    `places` begin with the cheapest.
    """
    if not places:
        return []
    places = [*places, ((RIGHT if cost == "perplexity" else LEFT), places[-1][1])]
    return [step for (x1, y1), (x2, y2) in pairwise(places) for step in ((x1, y1, x2, y1), (x2, y1, x2, y2))]


def _ray(slope: float, x: Scale, y: Scale, css_class: str) -> Markup:
    """Return the line measured = slope · predicted as far as the frame reaches."""
    end = min(x.high, y.high / slope)
    return svg_line(x(0), y(0), x(end), y(end * slope), css_class)


def _dots(
    dots: Sequence[Dot], x: Scale, y: Scale, size: tuple[float, float], steps: Sequence[Box] = ()
) -> list[Markup]:
    """Return the whiskers of all dots, then the dots with their labels, which keep off whiskers and `steps`."""
    places = [(x(x.border(dot.x)), y(y.border(dot.y))) for dot in dots]
    labels = [_label(dot, x, y) for dot in dots]
    whiskers = []
    for dot, (left, _) in zip(dots, places, strict=True):
        if upright := _span(dot.y_low, dot.y_high, y):
            whiskers.append((left, upright[0], left, upright[1]))
    offsets = place_labels(
        [(left * size[0] / 100, top * size[1] / 100) for left, top in places],
        [_width(label) for label in labels],
        size,
        [_line_box(line, size) for line in (*whiskers, *steps)],
    )
    marks = (_dot(*parts) for parts in zip(dots, places, labels, offsets, strict=True))
    return [*(svg_line(*line, "span") for line in whiskers), *marks]


def _line_box(line: Box, size: tuple[float, float]) -> Box:
    """Return the pixels that a horizontal or vertical line, given in percent, covers."""
    (x1, x2), (y1, y2) = sorted((line[0], line[2])), sorted((line[1], line[3]))
    return x1 * size[0] / 100 - 1, y1 * size[1] / 100 - 1, x2 * size[0] / 100 + 1, y2 * size[1] / 100 + 1


def _width(label: str) -> float:
    return LETTER * len(label) + 3


def _span(low: float, high: float, scale: Scale) -> tuple[float, float] | None:
    """Return where an interval lies, cut at the frame; nothing if there is none, or none of it inside."""
    if math.isnan(low) or math.isnan(high) or high < scale.low or low > scale.high:
        return None
    return scale(scale.border(low)), scale(scale.border(high))


def _label(dot: Dot, x: Scale, y: Scale) -> str:
    """Return a dot's number; for one beyond the frame with where it really lies."""
    beyond = [
        f"{arrow} {number(100 * value, 0)} %"
        for value, scale, arrow in (
            (dot.x, x, "→" if dot.x > x.high else "←"),
            (dot.y, y, "↑" if dot.y > y.high else "↓"),
        )
        if not scale.holds(value)
    ]
    return " ".join([dot.label, *beyond])


def _dot(dot: Dot, place: tuple[float, float], label: str, offset: tuple[float, float]) -> Markup:
    dx, dy = offset
    # The end of the label that is nearest to the dot; if it is far from it, a line joins them.
    end_x = math.copysign(max(abs(dx) - _width(label) / 2, 0), dx)
    end_y = math.copysign(max(abs(dy) - LABEL_HEIGHT / 2, 0), dy)
    leader = Markup("")
    if math.hypot(end_x, end_y) > 12:
        leader = Markup('<line x1="0" y1="0" x2="{}" y2="{}" class="leader"/>').format(round(end_x, 1), round(end_y, 1))
    text = Markup('<text x="{}" y="{}" class="label middle">{}</text>').format(dx, round(dy + 4, 1), label)
    return Markup('<svg x="{}%" y="{}%" class="at"><title>{}</title>{}{}{}</svg>').format(
        *place, dot.title, leader, _mark(dot.shape, dot.filled), text
    )


def _mark(shape: int, filled: bool) -> Markup:
    css_class = "mark filled" if filled else "mark"
    corners = SHAPES[shape]
    if corners is None:
        return Markup('<circle r="4.5" class="{}"/>').format(css_class)
    return Markup('<polygon points="{}" class="{}"/>').format(" ".join(f"{x:g},{y:g}" for x, y in corners), css_class)
