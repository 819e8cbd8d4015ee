"""Where the marks of the threshold plan lie, and its table."""

import xml.etree.ElementTree as ElementTree

import pandas as pd

from evenhand.mitigation.labelling.plots import ThresholdPlan, plan_panels, plan_table

PLAN = pd.DataFrame(
    [
        {"alpha": alpha, "quantile": quantile, "beta": 0.001, "share_labelled_bias": 1 - quantile}
        | {"predicted_fgb_left": left, "lower": left - 0.05, "upper": left + 0.05, "trusted": quantile > 0.6}
        for alpha, quantile, left in (
            (0.0, 0.5, 3.2),
            (0.0, 0.8, 0.74),
            (0.0, 0.9, 0.36),
            (2.0, 0.5, 2.0),
            (2.0, 0.9, 0.74),
        )
    ]
)


def test_the_plan_shades_what_is_not_trusted_and_points_at_the_chosen():
    first, second = (ElementTree.fromstring(str(panel)) for panel in plan_panels(ThresholdPlan(PLAN, 0.0, 0.9)))
    (shade,) = first.iter("rect")
    circles = {it.get("class"): it for it in first.iter("circle")}
    left, width = float(shade.get("x")[:-1]), float(shade.get("width")[:-1])
    assert left < float(circles["ink"].get("cx")[:-1])
    assert left + width < float(circles["after"].get("cx")[:-1])
    # 3.2 is far above the trusted range: its point is left out, the curve is cut
    assert len(list(first.iter("circle"))) == 2
    labels = [it.text for it in first.iter("text")]
    assert "● chosen: 0.9, 36 % left" in labels and "α = 0" in labels
    assert not any("chosen" in (it.text or "") for it in second.iter("text"))


def test_a_plan_that_is_trusted_nowhere_or_has_one_quantile_is_still_drawn():
    table = pd.DataFrame(
        [{"alpha": 1.0, "quantile": 0.9, "beta": 0.1, "share_labelled_bias": 0.1, "predicted_fgb_left": 0.4}]
    ).assign(lower=float("nan"), upper=float("nan"), trusted=False)
    (panel,) = plan_panels(ThresholdPlan(table, 0.0, 0.9))
    svg = ElementTree.fromstring(str(panel))
    (shade,) = svg.iter("rect")
    assert float(shade.get("x")[:-1]) + float(shade.get("width")[:-1]) == 100


def test_the_table_has_the_chosen_threshold():
    rows = plan_table(ThresholdPlan(PLAN, 0.0, 0.9)).rows
    assert [cell.text for cell in rows[2].cells] == ["0.90", "0.001", "10 %", "36 %", "yes, chosen"]
    assert rows[2].cells[3].interval == "[31, 41]" and len(rows) == 5
