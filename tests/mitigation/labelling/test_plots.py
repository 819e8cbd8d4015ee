"""Where the marks of the threshold plan lie, and its table."""

import math
import xml.etree.ElementTree as ElementTree

import pandas as pd

from evenhand.mitigation.labelling.plots import ThresholdPlan, plan_panels, plan_table

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
    first, second = (ElementTree.fromstring(str(panel)) for panel in plan_panels(ThresholdPlan(PLAN, 0.0, 0.9)))
    circles = list(first.iter("circle"))
    assert [it.get("class") for it in circles] == ["ink", "ink", "after"]
    heights = [float(it.get("cy")[:-1]) for it in circles]
    assert heights == sorted(heights, reverse=True)  # percent from above: the more is left, the higher
    labels = [it.text for it in first.iter("text")]
    assert "● chosen: 0.9, 86 % left" in labels and "α = 0" in labels
    assert not any("chosen" in (it.text or "") for it in second.iter("text"))


def test_a_plan_of_one_quantile_without_an_interval_is_still_drawn():
    (panel,) = plan_panels(ThresholdPlan(PLAN.tail(1).assign(lower=math.nan, upper=math.nan), 0.0, 0.9))
    assert len(list(ElementTree.fromstring(str(panel)).iter("circle"))) == 1


def test_the_table_has_the_chosen_threshold():
    rows = plan_table(ThresholdPlan(PLAN, 0.0, 0.9)).rows
    assert [cell.text for cell in rows[2].cells] == ["0.90", "0.001", "10 %", "0.80", "86 %", "4.1 %", "chosen"]
    assert rows[2].cells[4].interval == "[81, 91]" and len(rows) == 5
