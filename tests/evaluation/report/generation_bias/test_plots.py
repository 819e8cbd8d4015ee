"""Where the marks of the plots lie."""

import xml.etree.ElementTree as ElementTree

import pandas as pd
import pytest

from evaluation.report import ThresholdPlan, TrainingCurve
from evaluation.report.generation_bias import plots, tables
from evaluation.report.plots import Scale, row_plot, row_scale, scale_for, ticks


def test_a_scale_maps_its_ends_to_the_ends():
    scale = Scale(-10, 30, 2, 98)
    assert (scale(-10), scale(30), scale(10)) == (2, 98, 50)


def test_a_scale_holds_zero_and_everything_finite():
    scale = scale_for([4.0, 9.0, float("nan"), float("inf")], 0, 100)
    assert scale.low == 0 and scale.high > 9
    assert scale_for([], 0, 100).high > 0
    assert scale_for([-3.0, -1.0], 0, 100).low < -3 < 0 < scale_for([-3.0, -1.0], 0, 100).high


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 5, 10]), (0, 3.9, [0, 1, 2, 3]), (-0.2, 1, [0, 0.5, 1]), (0.5, 0.97, [0.6, 0.8])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(Scale(low, high, 0, 100)) == pytest.approx(expected)


def test_a_row_draws_its_scores_in_place(tuned):
    (row,) = [row for row in tables.headline_table(tuned).rows if row.label == "pooled FGB*"]
    scale = row_scale([row])
    svg = ElementTree.fromstring(str(row_plot(row, scale)))
    circles = {it.get("class"): float(it.get("cx")[:-1]) for it in svg.iter("circle")}
    assert circles == {"before": scale(9.472), "after": scale(1.764)}
    (whisker,) = [it for it in svg.iter("line") if it.get("class") == "whisker before"]
    assert (whisker.get("x1"), whisker.get("x2")) == (f"{scale(8.974)}%", f"{scale(9.966)}%")
    assert sum(it.text == "◇" for it in svg.iter("text")) == 1


def test_raw_fgb_is_not_drawn_beside_what_is_corrected(tuned):
    row = tables.headline_table(tuned).rows[0]
    assert (row.label, row.marks) == ("FGB", ()) and "noise" in row.instead


def test_the_plan_shades_what_is_not_trusted_and_points_at_the_chosen(tuned):
    first, second = (ElementTree.fromstring(str(panel)) for panel in plots.plan_panels(tuned.threshold_plan))
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
    (panel,) = plots.plan_panels(ThresholdPlan(table, 0.0, 0.9, ""))
    svg = ElementTree.fromstring(str(panel))
    (shade,) = svg.iter("rect")
    assert float(shade.get("x")[:-1]) + float(shade.get("width")[:-1]) == 100


def test_training_panels_skip_what_was_not_measured_and_part_close_labels():
    curve = TrainingCurve([(10, 2.5), (20, 1.50)], [(10, float("nan")), (20, 1.51)])
    (panel,) = plots.training_panels(curve)
    svg = ElementTree.fromstring(str(panel))
    heights = {it.text: float(it.get("y")[:-1]) for it in svg.iter("text") if it.get("class").startswith("label")}
    assert abs(heights["train"] - heights["validation"]) >= 6.9
    assert "nan" not in str(panel)
