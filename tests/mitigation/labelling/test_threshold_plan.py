"""The plan's predictions where the answer is known, its charts and its table."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.evaluation.report.figures import AFTER, INK, svg
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.runs.tables import write_table
from evenhand.mitigation.labelling.page import plan_charts, plan_section, plan_table
from evenhand.mitigation.labelling.threshold_plan import (
    RESERVE,
    _slopes,
    fit_strength,
    fraction_left,
    predict_left,
    threshold_plan,
)
from tests.evaluation.report.test_page import PAGE


def sampled(seed, tilt, biased=20, fair=20, templates=8, per_cell=6, styles=5):
    """`biased` descriptors lean to one style each by `tilt`, the fair ones to none."""
    rng = np.random.default_rng(seed)
    p = np.full((biased + fair, styles), 1 / styles)
    for d in range(biased):
        p[d] = (1 - tilt) * p[d] + tilt * np.eye(styles)[d % styles]
    cell = np.repeat(np.arange(len(p) * templates), per_cell)
    descriptor, template = cell // templates, cell % templates
    style = (p[descriptor].cumsum(axis=1) > rng.random(len(cell))[:, None]).argmax(axis=1)
    soft = 0.9 * np.eye(styles)[style] + 0.1 * rng.dirichlet(np.ones(styles), len(cell))
    return soft.astype(np.float32), template, descriptor


BASE = np.array([[0.8, 0.2], [0.2, 0.8], [0.5, 0.5]])
ONCE = np.ones((1, 3))


def test_slopes_by_hand():
    assert _slopes(BASE, BASE, ONCE) == pytest.approx([1])  # the kept responses are as all of them
    assert _slopes(1 - BASE, BASE, ONCE) == pytest.approx([-1])  # their means are reversed
    assert _slopes(np.full((3, 2), 0.5), BASE, ONCE) == pytest.approx([0])  # they know nothing of the bias
    assert _slopes(BASE + np.array([0.1, -0.1]), BASE, ONCE) == pytest.approx([1])  # all drift alike: nobody's bias
    after = np.array([[0.6, 0.4], [0.5, 0.5], [0.1, 0.9]])
    times = np.array([[2.0, 1.0, 0.0]])
    assert _slopes(after, BASE, times) == pytest.approx(_slopes(after[[0, 0, 1]], BASE[[0, 0, 1]], ONCE))


def test_what_is_left_and_pilots_that_cannot_tell():
    assert fraction_left(1.0) == pytest.approx(1) and fraction_left(1.0, 9.0) == pytest.approx(1)
    # half-way through the reserve: k(1 − s) = h, where the denominator is 2
    assert fraction_left(1 - RESERVE / 4, 4) == pytest.approx((1 + math.exp(-RESERVE)) / 2)
    assert fraction_left(-1.0) < 0.01 and fraction_left(-5.0) < 1e-6  # reversed means are no bias
    assert math.isnan(fit_strength(0.99, 0.9)) and math.isnan(fit_strength(math.nan, 0.5))
    assert math.isnan(fit_strength(0.5, math.nan))
    assert fit_strength(0.5, -0.1) == fit_strength(0.5, 0.0) > fit_strength(0.5, 0.1)  # all of it, and then some
    assert fit_strength(0.5, 1.2) == pytest.approx(0)  # it does not follow


@given(st.lists(st.floats(-3, 1), min_size=2, max_size=2, unique=True), st.floats(0.1, 20))
def test_more_slope_leaves_more(slopes, strength):
    low, high = (fraction_left(slope, strength) for slope in sorted(slopes))
    assert 0 <= low <= high <= 1 + 1e-12


@given(st.floats(-1, 0.9), st.floats(0.03, 0.99))
def test_a_pilot_predicts_itself(slope, left):
    assert fraction_left(slope, fit_strength(slope, left)) == pytest.approx(left)


@pytest.fixture(scope="module")
def plan():
    return threshold_plan(*sampled(0, 0.3), quantiles=(0.3, 0.5, 0.7, 0.8, 0.9, 0.99))


def test_thresholds_above_everything_and_stronger_methods(plan):
    barely = plan[plan["quantile"] == 0.99]
    assert (barely["slope"] > 0.85).all() and (barely["slope"] <= 1.01).all()
    assert (barely["predicted_fgb_left"] > 0.9).all() and (barely["predicted_drift"] < 0.02).all()
    stronger = predict_left(plan, strength=9.0)
    assert (stronger["predicted_fgb_left"] < plan["predicted_fgb_left"]).all()
    assert stronger.columns.tolist() == plan.columns.tolist() and stronger["slope"].equals(plan["slope"])


def test_a_lower_threshold_leaves_less_even_where_the_kept_responses_lean_the_other_way(plan):
    """What the plan before this one got wrong: ‖after‖² / ‖base‖² grows again beyond zero."""
    for _, of_alpha in plan.groupby("alpha"):
        assert of_alpha["slope"].is_monotonic_increasing and of_alpha["predicted_fgb_left"].is_monotonic_increasing
        boldest = of_alpha.iloc[0]
        assert boldest["slope"] < -0.3 and boldest["predicted_fgb_left"] < 0.1


def test_what_is_filtered_from_everybody_is_drift():
    """Half of the descriptors get style 0 half of the time, the others style 1, and all of them style 2 else. Labelled
    biased is every 0 and 1: 2 is left, for everyone."""
    descriptor = np.repeat(np.arange(8), 200)
    style = np.where(np.arange(1600) % 2, 2, descriptor % 2)
    (row,) = threshold_plan(
        np.eye(3)[style], np.zeros(1600, dtype=int), descriptor, alphas=(0,), quantiles=(0.5,)
    ).to_dict("records")
    # base (¼, ¼, ½), after (0, 0, 1): ½ (¼ + ¼ + ½); the mixtures hold a little of everybody's
    assert row["predicted_drift"] == pytest.approx(0.5, abs=0.01) and row["slope"] == pytest.approx(0, abs=0.02)


PLAN = pd.DataFrame(
    [
        {"alpha": alpha, "quantile": quantile, "beta": 0.001, "share_labelled_bias": 1 - quantile}
        | {"slope": slope, "slope_lower": slope - 0.1, "slope_upper": slope + 0.1, "predicted_drift": 0.041}
        | {"predicted_fgb_left": left, "lower": left - 0.05, "upper": left + 0.05}
        | {"chosen": (alpha, quantile) == (0.0, 0.9)}
        for alpha, quantile, slope, left in (
            (0.0, 0.5, -0.2, 0.07),
            (0.0, 0.8, 0.6, 0.74),
            (0.0, 0.9, 0.8, 0.86),
            (2.0, 0.5, 0.0, 0.14),
            (2.0, 0.9, 0.6, 0.74),
        )
    ]
)


def test_plans_are_drawn_and_tabulated():
    first, second = (chart.axes[0] for chart in plan_charts(PLAN))
    dots = [line for line in first.lines if line.get_marker() == "o"]
    assert [it.get_color() for it in dots] == [INK, INK, AFTER]
    assert [it.get_ydata()[0] for it in dots] == [0.07, 0.74, 0.86]
    assert (first.get_title("left"), first.get_title("right")) == ("α = 0", "● chosen: 0.9, 86 % left")
    assert second.get_title("right") == "" and first.get_ylim() == second.get_ylim()
    (chart,) = plan_charts(PLAN.tail(1).assign(lower=math.nan, upper=math.nan))
    assert sum(line.get_marker() == "o" for line in chart.axes[0].lines) == 1 and "nan" not in svg(chart)
    rows = plan_table(PLAN).rows
    assert [cell.text for cell in rows[2].cells] == ["0.90", "0.001", "10 %", "0.80", "86 %", "4.1 %", "chosen"]
    assert rows[2].cells[4].interval == "[81, 91]" and len(rows) == 5


@pytest.fixture
def folder(tmp_path):
    write_table(tmp_path / "threshold_plan.parquet", PLAN)
    (tmp_path / "threshold.json").write_text(json.dumps({"alpha": 0, "quantile": 0.8, "beta": 0.001}))
    return tmp_path


def test_the_plan_is_drawn_for_each_alpha_and_the_taken_threshold_pointed_out(folder):
    section = plan_section(folder)
    assert len(section.figures) == 2 and sum("chosen" in figure.svg for figure in section.figures) == 1
    (table,) = section.parts[0].tables
    assert [row.cells[-1].text for row in table.rows] == ["", "chosen", "", "", ""]
    assert table.rows[1].cells[4].text == "74 %"


def test_a_tuned_model_calibrates_the_plan(folder):
    section = plan_section(folder, left=0.4)
    (table,) = section.parts[0].tables
    bolder = fraction_left(-0.2, fit_strength(0.6, 0.4))  # the slopes of the quantiles 0.5 and 0.8
    assert [row.cells[4].text for row in table.rows[:2]] == [f"{100 * bolder:.0f} %", "40 %"]
    assert "40 %" in section.sentences[1]


def test_nothing_keeps_people_from_using_it(folder, browser):
    assert browser.faults(page_html(replace(PAGE, sections=[plan_section(folder)]))) == []
