"""Sample sizes: predicted widths and powers hold for the design that is found, also in simulations."""

import math
from dataclasses import replace

import numpy as np
import pytest

from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.person_pairs import pooled_spread
from evenhand.evaluation.statistics.sample_size import (
    LEVERS,
    Pilot,
    StudySize,
    interval_width,
    rescale,
    shows_difference,
    smallest_design,
    smallest_detectable_spread,
)

PILOT = Pilot(StudySize(40, 26, 4), Estimate(2e-3, 4e-7, 2.5e-7, 8e-5, 3000.0))


@pytest.mark.parametrize("lever", LEVERS)
def test_half_of_the_interval_takes_the_smallest_such_design(lever):
    half = interval_width(PILOT.estimate) / 2
    found = smallest_design(PILOT, lever, lambda estimate: interval_width(estimate) <= half)
    n = getattr(found, lever)
    assert replace(found, **{lever: getattr(PILOT.design, lever)}) == PILOT.design
    assert interval_width(PILOT.predict(found)) <= half
    assert interval_width(PILOT.predict(replace(found, **{lever: n - 1}))) > half
    assert smallest_detectable_spread(PILOT.predict(found)) < smallest_detectable_spread(PILOT.estimate)


@pytest.mark.parametrize(("lever", "number"), [("responses", 5), ("templates", 27), ("descriptors", 41)])
def test_what_a_run_did_not_decide_takes_a_larger_one(lever, number):
    """One answer is enough, and the run has four: of such runs most decide, but this one did not."""
    assert getattr(smallest_design(PILOT, lever, lambda estimate: True, is_larger=True), lever) == number


def test_a_reduction_is_shown_by_a_difference_of_2_8_standard_errors():
    # The noise is negligible: Var = slope · θ · (1 + 1/2) with θ = 1, and 0.5 = (1.96 + 0.84) √(1.5 slope) at 0.0212.
    estimate = Estimate(1.0, 0.0, 1e-12, 0.021, 1e9)
    assert shows_difference(estimate, 0.5) and not shows_difference(replace(estimate, slope=0.0215), 0.5)
    without_bias = Pilot(PILOT.design, replace(estimate, value=0.0))
    assert smallest_design(without_bias, "templates", lambda each: shows_difference(each, 0.0)) is None


STYLES = np.array([0.5, 0.3, 0.15, 0.05])


def estimate(design, shift, rng):
    """Pooled FGB* of one-hot responses; half of the descriptors get `shift` more of the first style, half less."""
    p = np.tile(STYLES, (design.descriptors, 1))
    sign = np.where(np.arange(design.descriptors) % 2, 1.0, -1.0)
    p[:, 0] += shift * sign
    p[:, 1] -= shift * sign
    descriptor, template = (
        np.indices((design.descriptors, design.templates)).reshape(2, -1).repeat(int(design.responses), axis=1)
    )
    below = p[descriptor].cumsum(axis=1) < rng.random(len(descriptor))[:, None]
    cells = arrange_cells(np.eye(4)[np.minimum(below.sum(axis=1), 3)], template, descriptor)
    return pooled_spread(cells)


@pytest.mark.parametrize("design", [StudySize(20, 6, 2), StudySize(12, 4, 6)], ids=str)
def test_the_smallest_detectable_spread_is_shown_in_80_percent_of_measurements(design):
    rng = np.random.default_rng(0)
    covariance = np.diag(STYLES) - np.outer(STYLES, STYLES)
    direction = np.array([1, -1, 0, 0]) / math.sqrt(2)
    noise = design.noise_factor * (covariance**2).sum()
    slope = design.slope_factor * direction @ covariance @ direction
    null = np.array([estimate(design, 0.0, rng).value for _ in range(250)])
    assert null.var() == pytest.approx(noise, rel=0.25)
    estimates = [estimate(design, 0.0, rng) for _ in range(50)]
    assert np.mean([each.noise for each in estimates]) == pytest.approx(noise, rel=0.15)
    spread = smallest_detectable_spread(replace(estimates[0], noise=noise, slope=slope))
    shift = math.sqrt(spread * (design.descriptors - 1) / design.descriptors / 2)  # Σ over the two styles, ddof = 1
    shown = np.mean([estimate(design, shift, rng).interval[0] > 0 for _ in range(250)])
    assert 0.72 < shown < 0.88


def test_four_times_the_responses_detect_about_a_quarter_of_the_spread():
    old, new = StudySize(40, 26, 2), StudySize(40, 26, 8)
    before, after = (1e-6, 1e-3), rescale(1e-6, 1e-3, old, new)
    found = [smallest_detectable_spread(Estimate(0.0, 0.0, *each)) for each in (before, after)]
    ratio = found[1] / found[0]
    assert ratio == pytest.approx(0.25, rel=0.03)
    assert rescale(*after, new, old) == pytest.approx(before)


def test_a_detectable_spread_is_positive_where_hardly_any_noise_is_known():
    # A skewness of slope / √noise = 5 and more: in χ² distributions it is √8 at most.
    for noise in (1e-2, 1e-6, 1e-13):
        estimate = Estimate(0.0, noise, noise=noise, slope=5 * noise**0.25, freedom=4.0)
        assert math.sqrt(noise) < smallest_detectable_spread(estimate) < 100 * noise**0.25
