"""The threshold plan, drawn and as a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from markupsafe import Markup

from evenhand.evaluation.report.numbers import number, percent
from evenhand.evaluation.report.panels import BOTTOM, LEFT, TOP, grid, polyline, widened
from evenhand.evaluation.report.plots import Scale, scale_for, svg_circle, svg_figure, svg_line, svg_text, tick_text
from evenhand.evaluation.report.tables import Cell, Row, Table


@dataclass(frozen=True)
class ThresholdPlan:
    """The thresholds that were weighed up before tuning, and the one that was taken.

    `table` has the columns alpha, quantile (of b), beta, share_labelled_bias, slope, predicted_fgb_left (the fraction
    of pooled FGB* predicted to remain), lower and upper (its 95 % interval) and predicted_drift.
    """

    table: pd.DataFrame
    alpha: float
    quantile: float

    def is_chosen(self, alpha: float, quantile: float) -> bool:
        """Return whether this is the threshold that was taken."""
        return math.isclose(alpha, self.alpha, abs_tol=1e-9) and math.isclose(quantile, self.quantile, abs_tol=1e-9)


def plan_panels(plan: ThresholdPlan) -> list[Markup]:
    """Return one panel for each α: the predicted share of pooled FGB* left against the quantile of b.

    All panels have one scale.
    """
    table = plan.table.sort_values(["alpha", "quantile"], kind="stable")
    y = scale_for([1.0, *table["predicted_fgb_left"], *table["upper"]], BOTTOM, TOP)
    x = Scale(*widened(table["quantile"].min(), table["quantile"].max()), LEFT + 3, 97.0)
    return [
        _plan_panel(plan, alpha, rows.to_dict("records"), x, y) for alpha, rows in table.groupby("alpha", sort=True)
    ]


def _plan_panel(plan: ThresholdPlan, alpha: float, records: Sequence[dict], x: Scale, y: Scale) -> Markup:
    drawn = [row for row in records if math.isfinite(row["predicted_fgb_left"])]
    title = f"α = {alpha:g}: predicted pooled FGB* left, percent of before, against the quantile of b"
    parts = grid(x, y, "quantile of b", lambda share: f"{tick_text(100 * share)} %", about=5)
    parts.append(polyline([(x(row["quantile"]), y(row["predicted_fgb_left"])) for row in drawn], "ink"))
    parts.append(svg_text(f"α = {alpha:g}", 0, 6, "label strong"))
    for row in drawn:
        here, share = x(row["quantile"]), row["predicted_fgb_left"]
        chosen = plan.is_chosen(alpha, row["quantile"])
        role = "after" if chosen else "ink"
        if math.isfinite(row["lower"]) and math.isfinite(row["upper"]):
            parts.append(svg_line(here, y(row["lower"]), here, y(row["upper"]), f"whisker {role}"))
        parts.append(svg_circle(here, y(share), 5 if chosen else 2.5, role))
        if chosen:
            label = f"● chosen: {tick_text(row['quantile'])}, {number(100 * share, 0)} % left"
            parts.append(svg_text(label, 100, 6, "label after end"))
            title += f"; chosen: quantile {tick_text(row['quantile'])}, {number(100 * share, 0)} % left"
    return svg_figure("panel", title, *parts)


def plan_table(plan: ThresholdPlan) -> Table:
    """Return the threshold plan, the chosen threshold pointed out."""
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
                Cell("chosen" if plan.is_chosen(row.alpha, row.quantile) else ""),
            ),
        )
        for row in plan.table.sort_values(["alpha", "quantile"], kind="stable").itertuples()
    )
    columns = ("α", "quantile of b", "β", "labelled bias", "slope", "predicted left", "predicted drift", "this run")
    return Table("Predicted pooled FGB* left after tuning, % of before, and style drift", columns, rows)


def _fraction_cell(value: float, lower: float, upper: float) -> Cell:
    if math.isnan(value):
        return Cell("undefined")
    bounds = "" if math.isnan(lower) or math.isnan(upper) else f"[{number(100 * lower, 0)}, {number(100 * upper, 0)}]"
    return Cell(percent(value), bounds)
