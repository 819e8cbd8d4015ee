"""Report section of the threshold plan."""

import json
import math
from pathlib import Path

import pandas as pd

from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.runs.tables import read_table
from evenhand.mitigation.labelling.plots import ThresholdPlan, plan_charts, plan_table
from evenhand.mitigation.labelling.threshold_plan import PILOT_SLOPE, STRENGTH, fit_strength, predict_left

text = Sentences(__file__)

PLAN, THRESHOLD = "threshold_plan", "threshold.json"


def plan_section(folder: Path, left: float = math.nan) -> Section:
    """Return the threshold plan of a labelling run, drawn and as a table, with the threshold that was taken.

    Where a model tuned on these labels is measured, the share of pooled FGB* that it left calibrates the plan.
    """
    used = json.loads((folder / THRESHOLD).read_text(encoding="utf-8"))
    table = read_table(folder / f"{PLAN}.parquet")
    slope = plan_row(table, used["alpha"], used["quantile"])["slope"]
    strength = fit_strength(slope, left)
    if math.isfinite(strength):
        table = predict_left(table, strength)
    plan = ThresholdPlan(table, used["alpha"], used["quantile"])
    return Section(
        "The threshold plan",
        [text.plan, text.calibrated(left, strength, STRENGTH, PILOT_SLOPE)],
        figures=[Figure("", svg(chart), wide=False) for chart in plan_charts(plan)],
        parts=[Section("The plan as a table", tables=[plan_table(plan)], folded=True)],
    )


def plan_row(table: pd.DataFrame, alpha: float, quantile: float) -> pd.Series:
    """Return the row of the plan for a threshold."""
    return table[(table["alpha"] == alpha) & ((table["quantile"] - quantile).abs() < 1e-9)].iloc[0]
