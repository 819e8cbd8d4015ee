"""The charts of a sweep: removed bias against costs, and remaining bias against the threshold plan's predictions."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from evenhand.evaluation.report.figures import (
    AFTER,
    BEFORE,
    INK,
    MUTED,
    PAPER,
    SMALL,
    WIDE,
    ZERO,
    add_tooltip,
    label_points,
    new_chart,
    set_ticks,
    styled,
    tick_percent,
)
from evenhand.evaluation.report.numbers import number, percent, sanitize
from evenhand.recipes.sweep.criteria import EVEN_REFERENCE, Criteria
from evenhand.recipes.sweep.summary import MAX_FACTOR, METHOD, cost_rows, setting_fields
from evenhand.recipes.sweep.tables import text

FEW_SETTINGS = 8  # up to so many settings are named in the legend; of more, the numbers point to the table
FENCE = 3.0  # interquartile ranges beyond the quartiles at which a point is "far out" (Tukey 1977)
MARKERS = "os^Dv<"  # one for each method; a seventh method gets the first marker again
BY_PILOT, PILOT = "filled: predicted by its method’s pilot", "hollow: a pilot, at the prediction before tuning"
MEETS, MISSES = "filled: meets all measured criteria", "hollow: misses a criterion, or is inconclusive"

Limits = tuple[float, float]


@dataclass(frozen=True)
class Dot:
    """A setting in a chart: its position in data units, its vertical interval, its marker and texts."""

    label: str
    tooltip: str
    x: float
    y: float
    y_low: float
    y_high: float
    marker: str
    is_filled: bool


@styled
def cost_chart(settings: pd.DataFrame, swept: Sequence[str], criteria: Criteria) -> Figure:
    """Return a chart of each setting's reduction against its costs, with a panel for each of `cost_rows`.

    Each panel has the Pareto front and the cost's criterion. If the settings of a method differ in one number only, a
    dotted line joins them.

    Args:
        settings: from `evaluate_settings`.
        swept: names of the columns that vary.
        criteria: the acceptance criteria.
    """
    by_cost = cost_rows(settings)
    limits = {it.column: it.value for it in criteria.limits({**settings.iloc[0], **settings[[*EVEN_REFERENCE]].mean()})}
    n_columns = min(3 if len(settings) <= FEW_SETTINGS else 2, len(by_cost))
    n_rows = math.ceil(len(by_cost) / n_columns)
    label = f"Pooled FGB* removed against {', '.join(text.costs[it] for it in by_cost)}; {len(settings)} settings"
    grid = {"nrows": n_rows, "ncols": n_columns, "sharey": True, "squeeze": False}
    figure, panels = new_chart(label, WIDE, 60 + 280 * n_rows, **grid)
    figure.get_layout_engine().set(h_pad=6 / 72)
    for axes in panels.flat[len(by_cost) :]:
        axes.set_visible(False)
    _add_legend(figure, settings, (MEETS, MISSES), {"Pareto front": "-"})
    y = _limits(settings["reduction"], 0, 1)
    for axes, (column, rows) in zip(panels.flat, by_cost.items(), strict=False):
        name, limit = text.costs[column], limits.get(column)
        if column.endswith("_kept") and limit is not None:
            limit = 1 - limit

        def tooltip(row: Mapping[str, Any], name: str = name) -> str:
            return f"{percent(row['reduction'], 1)} removed; {name}: {percent(row['loss'], 1, sign=True)}"

        x = _limits(rows["loss"], 0, *([] if limit is None else [limit]))
        axes.set_title(name)
        _set_axes(axes, x, y, 4)
        if limit is not None:
            axes.axvline(limit, color=BEFORE, linewidth=1.5, dashes=(4, 3))
        for curve in _curves(rows, swept):
            axes.plot(curve["loss"], curve["reduction"], color=INK, linewidth=1, linestyle=":", zorder=2)
        lines = _plot_front(axes, rows[rows["on_front"]].sort_values("loss"), x, y)
        _draw(axes, _dots(rows, settings, {"x": "loss", "y": "reduction"}, tooltip, "met"), x, y, lines)
    return figure


def _plot_front(axes: Axes, front: pd.DataFrame, x: Limits, y: Limits) -> list[tuple[float, float, float, float]]:
    """Plot a Pareto front as steps, and return its lines; the last step also holds for all higher costs."""
    corners = [(_inside(row["loss"], x), _inside(row["reduction"], y)) for row in front.to_dict("records")]
    corners.append((x[1], corners[-1][1]))
    axes.plot(*zip(*corners, strict=True), color=AFTER, linewidth=2, drawstyle="steps-post")
    steps = [((*one, other[0], one[1]), (other[0], one[1], *other)) for one, other in pairwise(corners)]
    return [line for pair in steps for line in pair]


def _curves(rows: pd.DataFrame, swept: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield the settings of each method that differ in one number only, sorted by this number."""
    for _, of_method in rows.groupby(METHOD, sort=False):
        varying = [name for name in setting_fields(swept) if of_method[name].nunique(dropna=False) > 1]
        if len(varying) == 1 and pd.api.types.is_numeric_dtype(of_method[varying[0]].infer_objects()):
            yield of_method.sort_values(varying[0])


@styled
def plan_chart(rows: pd.DataFrame, settings: pd.DataFrame) -> Figure:
    """Return a chart of the measured against the predicted share of pooled FGB* left, with lines at factors ½, 1 and 2.

    Filled dots have predictions that their method's pilot calibrated. Hollow dots are the pilots, at the prediction
    before tuning.

    Args:
        rows: from `predicted_settings`.
        settings: all settings of the sweep.
    """
    rows = rows.assign(
        is_calibrated=rows["calibrated_left"].notna(), x=rows["calibrated_left"].fillna(rows["predicted_left"])
    )

    def tooltip(row: Mapping[str, Any]) -> str:
        return f"predicted {percent(row['x'], 1)} left, measured {percent(row['left'], 1)}"

    dots = _dots(rows, settings, {"x": "x", "y": "left"}, tooltip, "is_calibrated")
    label = f"Measured against predicted share of pooled FGB* left, {len(dots)} settings; the diagonal is agreement"
    figure, axes = new_chart(label, 720, 520)
    x = y = _limits([share for dot in dots for share in (dot.x, dot.y)], 0, 0.2)
    axes.set_xlabel("predicted to be left →", loc="right")
    axes.set_ylabel("left →", loc="top")
    _set_axes(axes, x, y, 8)
    lines = {"as predicted": (1.0, "-"), "twice and half of it": (MAX_FACTOR, ":")}
    for slope, style in (*lines.values(), (1 / MAX_FACTOR, ":")):
        axes.axline((0, 0), slope=slope, color=AFTER, linewidth=1.5, linestyle=style)
    _add_legend(figure, settings, (BY_PILOT, PILOT), {name: style for name, (_, style) in lines.items()})
    _draw(axes, dots, x, y)
    return figure


@styled
def effect_chart(effects: pd.DataFrame) -> Figure:
    """Return a grid of panels, a row for each outcome and a column for each swept field, from `setting_effects`."""
    outcomes, fields = (list(dict.fromkeys(effects[name])) for name in ("outcome", "field"))
    label = f"Mean outcomes for each value of {', '.join(sanitize(name, 80) for name in fields)}"
    grid = {"nrows": len(outcomes), "ncols": len(fields), "sharex": "col", "sharey": "row", "squeeze": False}
    figure, panels = new_chart(label, WIDE, 40 + 170 * len(outcomes), **grid)
    for (outcome, name), rows in effects.groupby(["outcome", "field"], sort=False):
        row, column = outcomes.index(outcome), fields.index(name)
        axes, places = panels[row, column], range(len(rows))
        axes.vlines(places, rows["low"], rows["high"], color=MUTED, linewidth=1.25)
        for place, (value, mean) in enumerate(zip(rows["value"], rows["mean"], strict=True)):
            mark = axes.add_line(_marker("o", is_filled=True, x=[place], y=[mean], zorder=3))
            add_tooltip(mark, f"{sanitize(value, 80)}: {percent(mean, 1)}")
        axes.set_xticks(places, [sanitize(value, 80)[:16] for value in rows["value"]])
        axes.margins(x=0.5 / len(rows))
        set_ticks(axes, "y", 4, tick_percent)
        if row == len(outcomes) - 1:
            axes.set_xlabel(sanitize(name, 40))
        if column == 0:
            axes.set_title(text.outcomes[outcome])
    return figure


def _dots(
    rows: pd.DataFrame,
    settings: pd.DataFrame,
    columns: Mapping[str, str],
    tooltip: Callable[[Mapping[str, Any]], str],
    filled: str,
) -> list[Dot]:
    """Return a dot for each row.

    Args:
        settings: all settings of the sweep, so that a method has the same marker in all charts.
        columns: the columns of x and y; the columns `<y>_low` and `<y>_high` contain the interval of y.
        filled: the column that contains whether a dot is filled.
    """
    markers, dots = _markers(settings), []
    for row in rows.to_dict("records"):
        dots.append(
            Dot(
                str(row["number"]),
                f"{row['number']}: {row['label']}: {tooltip(row)}",
                row[columns["x"]],
                *(row[f"{columns['y']}{end}"] for end in ("", "_low", "_high")),
                marker=markers[row[METHOD]],
                is_filled=bool(row[filled]),
            )
        )
    return dots


def _markers(settings: pd.DataFrame) -> dict[str, str]:
    """Return {method: marker} for the methods in `settings`."""
    return {method: MARKERS[i % len(MARKERS)] for i, method in enumerate(dict.fromkeys(settings[METHOD]))}


def _add_legend(figure: Figure, settings: pd.DataFrame, fills: tuple[str, str], lines: Mapping[str, str]) -> None:
    """Add a legend: the settings, or their methods if there are many; filled and hollow dots; the styles of lines."""
    markers = _markers(settings)
    names = {method: method for method in markers} if len(markers) > 1 else {}
    if len(settings) <= FEW_SETTINGS:
        names = {f"{row['number']} {row['label']}": row[METHOD] for row in settings.to_dict("records")}
    handles = [_marker(markers[method], is_filled=False, label=sanitize(name, 60)) for name, method in names.items()]
    handles += [_marker("o", is_filled, label=name) for name, is_filled in zip(fills, (True, False), strict=True)]
    handles += [Line2D([], [], color=AFTER, linestyle=style, label=name) for name, style in lines.items()]
    widest = 35 + 0.55 * SMALL * max(len(handle.get_label()) for handle in handles)
    columns = max(1, int(figure.get_figwidth() * 72 // widest))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, handlelength=1.5, columnspacing=1.5)


def _marker(marker: str, is_filled: bool, **fields: Any) -> Line2D:
    face = INK if is_filled else PAPER
    size = 9 if marker in "^v<" else 8
    style = {"markersize": size, "markerfacecolor": face, "markeredgecolor": INK, "markeredgewidth": 1.5}
    return Line2D(fields.pop("x", []), fields.pop("y", []), linestyle="", marker=marker, **style, **fields)


def _limits(values: Iterable[float], *needed: float) -> Limits:
    """Return axis limits that include the numbers `needed` and all values except outliers."""
    finite = np.array([value for value in values if math.isfinite(value)])
    if len(finite):
        lower, upper = np.percentile(finite, [25, 75])
        reach = FENCE * max(upper - lower, 0.05 * abs(upper), max(map(abs, needed)) / 4)
        finite = finite[(finite >= lower - reach) & (finite <= upper + reach)]
    low, high = float(min(*needed, *finite)), float(max(*needed, *finite))
    margin = 0.05 * (high - low) or 0.01
    return low - margin, high + margin


def _inside(value: float, limits: Limits) -> float:
    return min(max(value, limits[0]), limits[1])


def _set_axes(axes: Axes, x: Limits, y: Limits, n_ticks: int) -> None:
    axes.set(xlim=x, ylim=y)
    set_ticks(axes, "x", n_ticks, tick_percent)
    set_ticks(axes, "y", 6, tick_percent)
    axes.axhline(0, color=ZERO, linewidth=1)
    axes.axvline(0, color=ZERO, linewidth=1)


def _draw(
    axes: Axes, dots: Sequence[Dot], x: Limits, y: Limits, lines: Sequence[tuple[float, float, float, float]] = ()
) -> None:
    """Draw intervals, dots and labels. Labels avoid intervals and `lines`; dots beyond the axes are on the frame."""
    points = [(_inside(dot.x, x), _inside(dot.y, y)) for dot in dots]
    intervals = [
        (across, _inside(dot.y_low, y), across, _inside(dot.y_high, y))
        for dot, (across, _) in zip(dots, points, strict=True)
        if dot.y_low <= y[1] and dot.y_high >= y[0]  # false of NaN
    ]
    for x1, y1, x2, y2 in intervals:
        axes.plot([x1, x2], [y1, y2], color=MUTED, linewidth=1.25, alpha=0.6)
    for dot, (across, up) in zip(dots, points, strict=True):
        mark = axes.add_line(_marker(dot.marker, dot.is_filled, x=[across], y=[up], clip_on=False, zorder=3))
        add_tooltip(mark, sanitize(dot.tooltip, 400))
    label_points(axes, points, [_label(dot, x, y) for dot in dots], [*intervals, *lines])


def _label(dot: Dot, x: Limits, y: Limits) -> str:
    """Return a dot's label; for a dot beyond the frame, the label includes the coordinates beyond the frame."""
    beyond = [
        f"{arrow} {number(100 * value, 0)} %"
        for value, limits, arrow in ((dot.x, x, "→" if dot.x > x[1] else "←"), (dot.y, y, "↑" if dot.y > y[1] else "↓"))
        if not limits[0] <= value <= limits[1]
    ]
    return " ".join([dot.label, *beyond])
