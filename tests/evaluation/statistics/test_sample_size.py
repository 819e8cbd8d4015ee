"""Sample sizes: predicted widths and powers hold for the design that is found, and not for a smaller one."""

from dataclasses import replace

import pytest

from evenhand.evaluation.statistics.sample_size import (
    LEVERS,
    Design,
    Pilot,
    detectable_spread,
    interval_width,
    shows_reduction,
    smallest_design,
)
from evenhand.evaluation.statistics.spread import Estimate

PILOT = Pilot(Design(40, 26, 4), Estimate(2e-3, 4e-7, 2.5e-7, 8e-5, 3000.0))


@pytest.mark.parametrize("lever", LEVERS)
def test_half_of_the_interval_takes_the_smallest_such_design(lever):
    half = interval_width(PILOT.estimate) / 2
    found = smallest_design(PILOT, lever, lambda estimate: interval_width(estimate) <= half)
    n = getattr(found, lever)
    assert replace(found, **{lever: getattr(PILOT.design, lever)}) == PILOT.design
    assert interval_width(PILOT.predict(found)) <= half
    assert interval_width(PILOT.predict(replace(found, **{lever: n - 1}))) > half
    assert detectable_spread(PILOT.predict(found)) < detectable_spread(PILOT.estimate)


def test_the_predicted_estimate_of_the_same_design_is_the_estimate():
    same = PILOT.predict(PILOT.design)
    assert (same.noise, same.slope, same.freedom) == pytest.approx((2.5e-7, 8e-5, 3000.0))


def test_a_reduction_is_shown_by_a_difference_of_2_8_standard_errors():
    # The noise is negligible: Var = slope · θ · (1 + 1/2) with θ = 1, and 0.5 = (1.96 + 0.84) √(1.5 slope) at 0.0212.
    estimate = Estimate(1.0, 0.0, 1e-12, 0.021, 1e9)
    assert shows_reduction(estimate, 0.5) and not shows_reduction(replace(estimate, slope=0.0215), 0.5)
    without_bias = Pilot(PILOT.design, replace(estimate, value=0.0))
    assert smallest_design(without_bias, "templates", lambda each: shows_reduction(each, 0.5)) is None
