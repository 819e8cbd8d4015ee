"""The plan's predictions where the answer is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.mitigation.labelling.threshold_plan import (
    RESERVE,
    _slopes,
    fit_strength,
    fraction_left,
    predict_left,
    threshold_plan,
)


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


# --- the slope

BASE = np.array([[0.8, 0.2], [0.2, 0.8], [0.5, 0.5]])
ONCE = np.ones((1, 3))


def test_slopes_by_hand():
    assert _slopes(BASE, BASE, ONCE) == pytest.approx([1])  # the kept responses are as all of them
    assert _slopes(1 - BASE, BASE, ONCE) == pytest.approx([-1])  # their means are reversed
    assert _slopes(np.full((3, 2), 0.5), BASE, ONCE) == pytest.approx([0])  # they know nothing of the bias
    assert _slopes(BASE + np.array([0.1, -0.1]), BASE, ONCE) == pytest.approx([1])  # all drift alike: nobody's bias


def test_a_resample_is_a_sample():
    after = np.array([[0.6, 0.4], [0.5, 0.5], [0.1, 0.9]])
    times = np.array([[2.0, 1.0, 0.0]])
    assert _slopes(after, BASE, times) == pytest.approx(_slopes(after[[0, 0, 1]], BASE[[0, 0, 1]], ONCE))


# --- the link


def test_what_is_left_by_hand():
    assert fraction_left(1.0) == pytest.approx(1) and fraction_left(1.0, 9.0) == pytest.approx(1)
    # half-way through the reserve: k(1 − s) = h, where the denominator is 2
    assert fraction_left(1 - RESERVE / 4, 4) == pytest.approx((1 + math.exp(-RESERVE)) / 2)
    assert fraction_left(-1.0) < 0.01 and fraction_left(-5.0) < 1e-6  # reversed means are no bias


@given(st.lists(st.floats(-3, 1), min_size=2, max_size=2, unique=True), st.floats(0.1, 20))
def test_more_slope_leaves_more(slopes, strength):
    low, high = (fraction_left(slope, strength) for slope in sorted(slopes))
    assert 0 <= low <= high <= 1 + 1e-12


@given(st.floats(-1, 0.9), st.floats(0.03, 0.99))
def test_a_pilot_predicts_itself(slope, left):
    assert fraction_left(slope, fit_strength(slope, left)) == pytest.approx(left)


def test_a_pilot_that_cannot_tell_has_no_strength():
    assert math.isnan(fit_strength(0.99, 0.9)) and math.isnan(fit_strength(math.nan, 0.5))
    assert math.isnan(fit_strength(0.5, math.nan))
    assert fit_strength(0.5, -0.1) == fit_strength(0.5, 0.0) > fit_strength(0.5, 0.1)  # all of it, and then some
    assert fit_strength(0.5, 1.2) == pytest.approx(0)  # it does not follow


# --- the plan


@pytest.fixture(scope="module")
def plan():
    return threshold_plan(*sampled(0, 0.3), quantiles=(0.3, 0.5, 0.7, 0.8, 0.9, 0.99))


def test_a_threshold_above_everything_changes_nothing(plan):
    barely = plan[plan["quantile"] == 0.99]
    assert (barely["slope"] > 0.85).all() and (barely["slope"] <= 1.01).all()
    assert (barely["predicted_fgb_left"] > 0.9).all() and (barely["predicted_drift"] < 0.02).all()


def test_a_lower_threshold_leaves_less_even_where_the_kept_responses_lean_the_other_way(plan):
    """What the plan before this one got wrong: ‖after‖² / ‖base‖² grows again beyond zero."""
    for _, of_alpha in plan.groupby("alpha"):
        assert of_alpha["slope"].is_monotonic_increasing and of_alpha["predicted_fgb_left"].is_monotonic_increasing
        boldest = of_alpha.iloc[0]
        assert boldest["slope"] < -0.3 and boldest["predicted_fgb_left"] < 0.1


def test_the_table_says_what_was_labelled(plan):
    assert plan["share_labelled_bias"].to_numpy() == pytest.approx(1 - plan["quantile"].to_numpy(), abs=0.01)
    for low, value, high in (("slope_lower", "slope", "slope_upper"), ("lower", "predicted_fgb_left", "upper")):
        assert (plan[low] <= plan[value]).all() and (plan[value] <= plan[high]).all()


def test_a_stronger_method_leaves_less_of_the_same_plan(plan):
    stronger = predict_left(plan, strength=9.0)
    assert (stronger["predicted_fgb_left"] < plan["predicted_fgb_left"]).all()
    assert stronger.columns.tolist() == plan.columns.tolist() and stronger["slope"].equals(plan["slope"])


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


def test_it_is_reproducible():
    case = sampled(2, 0.3, biased=5, fair=5)
    assert threshold_plan(*case, seed=3).equals(threshold_plan(*case, seed=3))
