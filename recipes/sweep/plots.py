"""The figure of a sweep: the removed bias against each cost."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from evenhand.evaluation.report.figures import (
    AFTER,
    BEFORE,
    INK,
    MUTED,
    PAPER,
    WIDE,
    ZERO,
    add_tooltip,
    new_chart,
    set_ticks,
    styled,
    tick_percent,
)
from evenhand.evaluation.report.numbers import percent, sanitize
from evenhand.recipes.sweep.criteria import EVEN_REFERENCE, Criteria
from evenhand.recipes.sweep.summary import METHOD, cost_rows

FENCE = 3.0  # interquartile ranges beyond the quartiles at which a point is "far out" (Tukey 1977)
MARKERS = "os^Dv<"  # one for each method; a seventh method gets the first marker again
# Titles of the panels. More is worse.
TITLES = {
    "relevance_kept": "relevance lost",
    "relevance_within_template_kept": "relevance within templates lost",
    "response_perplexity_change": "perplexity of responses",
    "perplexity_change": "perplexity of ordinary dialogue",
    "style_drift": "style drift",
    "length_change": "length, up or down",
}
Limits = tuple[float, float]


@styled
def cost_chart(settings: pd.DataFrame, criteria: Criteria) -> Figure:
    """Return a chart of each setting's reduction against its costs, with a panel for each of `cost_rows`.

    Each panel has the Pareto front, the cost's criterion and the numbers of the settings. Dots of settings that meet
    all measured criteria are filled. A dot beyond the frame is on the frame, with its position next to its number.

    Args:
        settings: from `evaluate_settings`.
        criteria: the acceptance criteria.
    """
    by_cost = cost_rows(settings)
    limits = {it.column: it.value for it in criteria.limits({**settings.iloc[0], **settings[[*EVEN_REFERENCE]].mean()})}
    n_columns = min(3, len(by_cost))
    n_rows = math.ceil(len(by_cost) / n_columns)
    label = f"Pooled FGB* removed against {', '.join(TITLES[it] for it in by_cost)}; {len(settings)} settings"
    figure, panels = new_chart(label, WIDE, 60 + 280 * n_rows, nrows=n_rows, ncols=n_columns, squeeze=False)
    methods = dict.fromkeys(settings[METHOD])
    markers = {method: MARKERS[i % len(MARKERS)] for i, method in enumerate(methods)}
    y = _limits(settings["reduction"], 0, 1)
    for axes in panels.flat[len(by_cost) :]:
        axes.set_visible(False)
    for axes, (column, rows) in zip(panels.flat, by_cost.items(), strict=False):
        limit = 1 - limits[column] if column in limits and column.endswith("_kept") else limits.get(column)
        x = _limits(rows["loss"], 0, *([] if limit is None else [limit]))
        axes.set(title=TITLES[column], xlim=x, ylim=y)
        set_ticks(axes, "x", 4, tick_percent)
        set_ticks(axes, "y", 6, tick_percent)
        axes.axhline(0, color=ZERO, linewidth=1)
        axes.axvline(0, color=ZERO, linewidth=1)
        if limit is not None:
            axes.axvline(limit, color=BEFORE, linewidth=1.5, dashes=(4, 3))
        front = rows[rows["on_front"]].sort_values("loss")
        steps = [*front["loss"].clip(*x), x[1]], [*front["reduction"].clip(*y), front["reduction"].clip(*y).iloc[-1]]
        axes.plot(*steps, color=AFTER, linewidth=2, drawstyle="steps-post")
        for row in rows.to_dict("records"):
            across, up = (float(np.clip(row[name], *ends)) for name, ends in (("loss", x), ("reduction", y)))
            if row["reduction_low"] <= y[1] and row["reduction_high"] >= y[0]:  # false of NaN
                axes.plot([across] * 2, np.clip([row["reduction_low"], row["reduction_high"]], *y), color=MUTED)
            dot = axes.add_line(_marker(markers[row[METHOD]], row["met"], [across], [up], clip_on=False, zorder=3))
            removed, loss = percent(row["reduction"], 1), percent(row["loss"], 1, sign=True)
            tooltip = f"{row['number']}: {row['label']}: {removed} removed; {TITLES[column]}: {loss}"
            add_tooltip(dot, sanitize(tooltip, 400))
            beyond = [percent(row[name]) for name, place in (("loss", across), ("reduction", up)) if row[name] != place]
            axes.annotate(" ".join([str(row["number"]), *beyond]), (across, up), (4, 4), textcoords="offset points")
    handles = [_marker(marker, False, label=sanitize(str(method), 60)) for method, marker in markers.items()]
    handles += [_marker("o", True, label="filled: meets all measured criteria")]
    handles += [Line2D([], [], color=AFTER, label="Pareto front")]
    figure.legend(handles=handles, loc="outside upper left", ncols=min(len(handles), 4))
    return figure


def _marker(marker: str, is_filled: bool, x: Sequence[float] = (), y: Sequence[float] = (), **fields: object) -> Line2D:
    style = {"linestyle": "", "markersize": 8, "markeredgecolor": INK, "markeredgewidth": 1.5}
    return Line2D(x, y, marker=marker, markerfacecolor=INK if is_filled else PAPER, **style, **fields)


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
