"""The charts of the threshold plan, and its table."""

import math

import pandas as pd

from evenhand.evaluation.report.figures import AFTER, INK, svg
from evenhand.mitigation.labelling.page import ThresholdPlan, plan_charts, plan_table

PLAN = pd.DataFrame(
    [
        {"alpha": alpha, "quantile": quantile, "beta": 0.001, "share_labelled_bias": 1 - quantile}
        | {"slope": slope, "slope_lower": slope - 0.1, "slope_upper": slope + 0.1, "predicted_drift": 0.041}
        | {"predicted_fgb_left": left, "lower": left - 0.05, "upper": left + 0.05}
        for alpha, quantile, slope, left in (
            (0.0, 0.5, -0.2, 0.07),
            (0.0, 0.8, 0.6, 0.74),
            (0.0, 0.9, 0.8, 0.86),
            (2.0, 0.5, 0.0, 0.14),
            (2.0, 0.9, 0.6, 0.74),
        )
    ]
)


def test_the_chosen_threshold_is_pointed_out():
    first, second = (chart.axes[0] for chart in plan_charts(ThresholdPlan(PLAN, 0.0, 0.9)))
    dots = [line for line in first.lines if line.get_marker() == "o"]
    assert [it.get_color() for it in dots] == [INK, INK, AFTER]
    assert [it.get_ydata()[0] for it in dots] == [0.07, 0.74, 0.86]
    assert (first.get_title("left"), first.get_title("right")) == ("α = 0", "● chosen: 0.9, 86 % left")
    assert second.get_title("right") == "" and first.get_ylim() == second.get_ylim()


def test_a_plan_of_one_quantile_without_an_interval_is_still_drawn():
    (chart,) = plan_charts(ThresholdPlan(PLAN.tail(1).assign(lower=math.nan, upper=math.nan), 0.0, 0.9))
    assert sum(line.get_marker() == "o" for line in chart.axes[0].lines) == 1 and "nan" not in svg(chart)


def test_the_table_has_the_chosen_threshold():
    rows = plan_table(ThresholdPlan(PLAN, 0.0, 0.9)).rows
    assert [cell.text for cell in rows[2].cells] == ["0.90", "0.001", "10 %", "0.80", "86 %", "4.1 %", "chosen"]
    assert rows[2].cells[4].interval == "[81, 91]" and len(rows) == 5
