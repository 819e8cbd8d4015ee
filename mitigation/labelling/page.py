"""Report section of the threshold plan: charts and a table."""

import json
import math
from pathlib import Path

import matplotlib.figure
import numpy as np
import pandas as pd

from evenhand.evaluation.report.figures import (
    AFTER,
    INK,
    PANEL,
    add_margin,
    new_chart,
    set_ticks,
    styled,
    svg,
    tick_percent,
)
from evenhand.evaluation.report.numbers import number, percent, tick_number
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table
from evenhand.evaluation.runs.tables import read_table
from evenhand.mitigation.labelling.threshold_plan import PILOT_SLOPE, STRENGTH, fit_strength, predict_left

text = Sentences(__file__)

PLAN, THRESHOLD = "threshold_plan", "threshold.json"


def plan_section(folder: Path, left: float = math.nan) -> Section:
    """Return the report section of a labelling run's threshold plan: charts and a table with the threshold used.

    `left` is the measured share of pooled FGB* that a model tuned on these labels retains; a finite share calibrates
    the plan.
    """
    used = json.loads((folder / THRESHOLD).read_text(encoding="utf-8"))
    table = read_table(folder / f"{PLAN}.parquet")
    slope = plan_row(table, used["alpha"], used["quantile"])["slope"]
    strength = fit_strength(slope, left)
    if math.isfinite(strength):
        table = predict_left(table, strength)
    plan = table.assign(chosen=_has_threshold(table, used["alpha"], used["quantile"]))
    return Section(
        "The threshold plan",
        [text.plan, text.calibrated(left, strength, STRENGTH, PILOT_SLOPE)],
        figures=[Figure("", svg(chart), wide=False) for chart in plan_charts(plan)],
        parts=[Section("The plan as a table", tables=[plan_table(plan)], folded=True)],
    )


def plan_row(table: pd.DataFrame, alpha: float, quantile: float) -> pd.Series:
    """Return the row of a threshold plan with this α and this quantile."""
    return table[_has_threshold(table, alpha, quantile)].iloc[0]


def _has_threshold(table: pd.DataFrame, alpha: float, quantile: float) -> pd.Series:
    return (table["alpha"] == alpha) & ((table["quantile"] - quantile).abs() < 1e-9)


@styled
def plan_charts(plan: pd.DataFrame) -> list[matplotlib.figure.Figure]:
    """Return one chart for each α: the predicted share of pooled FGB* left against the quantile of b.

    All charts have the same axes. The column `chosen` of `plan` marks the threshold of the labels.
    """
    table = plan.sort_values(["alpha", "quantile"], kind="stable")
    shares = np.array([0.0, 1.0, *table["predicted_fgb_left"], *table["upper"], *table["lower"]])
    shares = shares[np.isfinite(shares)]
    limits = shares.min() - 0.04, shares.max() + 0.04
    charts = [_plan_chart(alpha, rows) for alpha, rows in table.groupby("alpha", sort=True)]
    for chart in charts:
        chart.axes[0].set(xlim=add_margin(table["quantile"].min(), table["quantile"].max()), ylim=limits)
    return charts


def _plan_chart(alpha: float, rows: pd.DataFrame) -> matplotlib.figure.Figure:
    rows = rows[np.isfinite(rows["predicted_fgb_left"])]
    label = f"α = {alpha:g}: predicted pooled FGB* left, percent of before, against the quantile of b"
    figure, axes = new_chart(label, *PANEL)
    axes.set(title=f"α = {alpha:g}", xlabel="quantile of b")
    axes.plot(rows["quantile"], rows["predicted_fgb_left"], color=INK)
    for row in rows.itertuples():
        color, share = AFTER if row.chosen else INK, row.predicted_fgb_left
        axes.vlines(row.quantile, row.lower, row.upper, color=color, linewidth=2)
        axes.plot(row.quantile, share, "o", color=color, markersize=9 if row.chosen else 5, clip_on=False)
        if row.chosen:
            chosen = f"chosen: {tick_number(row.quantile)}, {number(100 * share, 0)} % left"
            axes.set_title(f"● {chosen}", loc="right", color=AFTER)
            figure.set_label(f"{label}; {chosen}")
    set_ticks(axes, "x", 5, tick_number)
    set_ticks(axes, "y", 4, tick_percent)
    return figure


def plan_table(plan: pd.DataFrame) -> Table:
    """Return the threshold plan as a report table, with the chosen threshold marked."""
    rows = tuple(
        Row(
            f"α {row.alpha:g}",
            (
                Cell(number(row.quantile)),
                Cell(f"{row.beta:.3g}".replace("-", "−")),
                Cell(percent(row.share_labelled_bias)),
                Cell(number(row.slope)),
                _fraction_cell(row.predicted_fgb_left, row.lower, row.upper),
                Cell(percent(row.predicted_drift, 1)),
                Cell("chosen" if row.chosen else ""),
            ),
        )
        for row in plan.sort_values(["alpha", "quantile"], kind="stable").itertuples()
    )
    columns = ("α", "quantile of b", "β", "labelled bias", "slope", "predicted left", "predicted drift", "this run")
    return Table("Predicted pooled FGB* left after tuning, % of before, and style drift", columns, rows)


def _fraction_cell(value: float, lower: float, upper: float) -> Cell:
    if math.isnan(value):
        return Cell("undefined")
    bounds = "" if math.isnan(lower) or math.isnan(upper) else f"[{number(100 * lower, 0)}, {number(100 * upper, 0)}]"
    return Cell(percent(value), bounds)
