"""Looks before the end: boundaries against published tables, the order of prompts, and decisions."""

import math

import numpy as np
import pytest
import scipy

from evenhand.evaluation.statistics.cell_table import Design, SetOfTests
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.intervals import TAILS, spread_interval
from evenhand.evaluation.statistics.level import Level
from evenhand.evaluation.statistics.person_effects import joint_effects
from evenhand.evaluation.statistics.sequential import (
    LookPlan,
    boundaries,
    decided_range,
    interval_after_stopping,
    plan_looks,
    rounds_of,
    spent_error,
)
from evenhand.evaluation.statistics.simultaneous_tests import LEVEL

ONE_SIDE = 0.025
QUARTERS = np.array([0.25, 0.5, 0.75, 1.0])


def like_o_brien_and_fleming(t: np.ndarray) -> np.ndarray:
    """Lan and DeMets (1983), α₁*: 2 − 2 Φ(z_{α/2} / √t) for a one-sided α."""
    return 2 * scipy.stats.norm.sf(scipy.stats.norm.isf(ONE_SIDE / 2) / np.sqrt(t))


def like_pocock(t: np.ndarray) -> np.ndarray:
    """Lan and DeMets (1983), α₂*: α log(1 + (e − 1) t)."""
    return ONE_SIDE * np.log1p((math.e - 1) * t)


@pytest.mark.parametrize(
    ("information", "spent", "published"),
    [
        # Two-sided 5 %, four equal looks: Jennison and Turnbull (2000), §7.2; R's gsDesign, sfLDOF and sfLDPocock.
        (QUARTERS, like_o_brien_and_fleming(QUARTERS), [4.333, 2.963, 2.359, 2.014]),
        (QUARTERS, like_pocock(QUARTERS), [2.368, 2.368, 2.358, 2.350]),
        # The default design of gsDesign: three looks, Hwang, Shih and DeCani with γ = −4.
        (np.arange(1, 4), ONE_SIDE * spent_error(np.arange(1, 4) / 3), [3.011, 2.547, 1.999]),
    ],
)
def test_boundaries_are_those_of_published_designs(information, spent, published):
    np.testing.assert_allclose(boundaries(information, spent), published, atol=6e-4)


def test_constant_boundaries_of_pocock_spend_five_percent():
    # Jennison and Turnbull (2000), table 2.1: C_P(2, 0.05) = 2.178, two-sided. What the first look spends fixes the
    # second boundary: it is the same if the total is 5 %. Crossing on both sides is rarer than 10⁻⁵.
    quantiles = boundaries(np.array([0.5, 1.0]), np.array([scipy.stats.norm.sf(2.178), ONE_SIDE]))
    np.testing.assert_allclose(quantiles, 2.178, atol=1e-3)


def test_boundaries_spend_the_error_of_the_joint_normal_distribution():
    looks = plan_looks(104)
    information = looks.fraction**2
    correlation = np.sqrt(np.minimum.outer(information, information) / np.maximum.outer(information, information))
    normal = scipy.stats.multivariate_normal(cov=correlation, seed=0)
    none_crossed = normal.cdf(scipy.stats.norm.ppf(looks.tail))
    assert 1 - none_crossed == pytest.approx(ONE_SIDE, abs=1e-4)


def test_a_single_look_has_ordinary_intervals():
    looks = plan_looks(4)
    assert looks.rounds == (4,)
    assert looks.share == pytest.approx([1.0])
    assert looks.tail == pytest.approx([TAILS[1]])
    assert looks.one_sided_tail == pytest.approx([0.95])


def test_looks_that_are_more_correlated_err_less():
    # Boundaries of the information t², used for means with the information t, spend less than planned (Slepian 1962).
    looks = plan_looks(104)
    quantiles = scipy.stats.norm.ppf(looks.tail)
    for_means = boundaries(looks.fraction, ONE_SIDE * spent_error(looks.fraction))
    assert (quantiles[1:] > for_means[1:]).all()
    assert quantiles[0] == pytest.approx(for_means[0])


def test_looks_are_at_eighths_with_six_templates():
    assert plan_looks(104).rounds == (13, 26, 39, 52, 65, 78, 91, 104)
    assert plan_looks(10).rounds == (7, 8, 9, 10)  # 10/8 to 50/8 are fewer than six
    looks = plan_looks(52)
    assert looks.share.sum() == pytest.approx(1)
    assert (np.diff(looks.share) > 0).all()
    assert (np.diff(looks.tail) < 0).all()
    assert looks.tail[-1] > TAILS[1]


def test_everybody_has_the_same_templates_after_each_round():
    rng = np.random.default_rng(0)
    template, person = np.indices((5, 4)).reshape(2, -1).repeat(3, axis=1)
    shuffled = rng.permutation(len(template))
    template = template[shuffled]
    person = person[shuffled]
    rounds = rounds_of(template, person, rng)
    assert set(rounds) == set(range(15))
    for number in range(15):
        assert sorted(person[rounds == number]) == [0, 1, 2, 3]
        assert len(set(template[rounds == number])) == 1
    assert len(set(template[rounds < 5])) == 5  # all templates once before any twice


def test_the_order_of_templates_depends_on_the_generator_alone():
    template = np.arange(26)
    orders = [rounds_of(template, np.zeros(26, dtype=int), np.random.default_rng(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert (orders[0] != orders[2]).any()


def test_missing_prompts_leave_gaps():
    # Person 1 has no prompt of template 1; the other rounds are as before.
    rounds = rounds_of(np.array([0, 1, 0]), np.array([0, 0, 1]), np.random.default_rng(0))
    assert rounds[0] == rounds[2] != rounds[1]


def test_more_prompts_of_a_person_are_in_the_same_rounds():
    # Two people have two prompts of each template; the third, of two axes, has four: two in each round.
    person = np.array([0] * 4 + [1] * 4 + [2] * 8)
    template = np.concatenate([np.tile([0, 1], 2), np.tile([0, 1], 2), np.tile([0, 1], 4)])
    rounds = rounds_of(template, person, np.random.default_rng(0))
    for number in range(4):
        assert np.bincount(person[rounds == number]).tolist() == [1, 1, 2]


def test_a_range_is_decided_if_no_limit_is_in_the_interval():
    assert decided_range((-1.0, 0.1), (0.1,)) == 0  # "at most 0.1" holds
    assert decided_range((0.1, 0.2), (0.1,)) is None  # "above 0.1" is not shown
    assert decided_range((0.11, 0.2), (0.1,)) == 1
    assert decided_range((0.0, 0.11), (0.1,)) is None


def test_the_interval_at_a_look_is_wider():
    estimate = Estimate(1.0, 1.0, noise=0.25, slope=0.75, freedom=math.inf)
    at_look = Estimate(1.0, 1.0, noise=0.25, slope=0.75, freedom=math.inf, level=Level(tail=0.999))
    assert at_look.interval == spread_interval(1.0, 0.25, 0.75, math.inf, tail=0.999)
    assert at_look.interval[0] < estimate.interval[0] < estimate.interval[1] < at_look.interval[1]
    # A difference is normal: value ± Φ⁻¹(0.999) standard errors.
    difference = Estimate(1.0, 4.0, noise=4.0, level=Level(tail=0.999))
    np.testing.assert_allclose(difference.interval, (1 - 2 * 3.0902, 1 + 2 * 3.0902), atol=1e-3)


def test_an_estimate_at_fractions_of_the_answers_errs_as_planned():
    # Without bias, the sum over i ≠ j of products of independent vectors is a martingale with information t².
    rng = np.random.default_rng(0)
    looks = LookPlan((8, 16, 24, 32))
    vectors = rng.normal(size=(4000, 32, 12))
    sums = vectors.cumsum(axis=1)
    squares = (vectors**2).sum(axis=2).cumsum(axis=1)
    n = np.arange(1, 33)
    z = ((sums**2).sum(axis=2) - squares) / np.sqrt(2 * 12 * n * np.maximum(n - 1, 1))
    at_looks = z[:, np.array(looks.rounds) - 1]
    normal = scipy.stats.norm.ppf(looks.tail)
    low = (at_looks < -normal).any(axis=1).mean()
    correlation = np.corrcoef(at_looks.T)
    np.testing.assert_allclose(correlation[0], [1.0, 0.5, 1 / 3, 0.25], atol=0.06)  # √(I_1 / I_k) = t_1 / t_k
    assert low <= ONE_SIDE + 0.005


def test_the_interval_after_a_single_look_is_the_ordinary_one():
    estimate = Estimate(1.0, 1.0, noise=0.25, slope=0.75, freedom=50.0)
    assert interval_after_stopping(estimate, plan_looks(4), 0, [2.0]) == pytest.approx(estimate.interval)


def test_far_from_all_limits_the_interval_after_the_first_look_is_the_ordinary_one():
    # A value that is 50 standard errors above the limit always stops at the first look, so the looks cost nothing.
    for slope in (None, 0.02):
        estimate = Estimate(51.0, 1.0, noise=0.9, slope=slope, freedom=200.0)
        found = interval_after_stopping(estimate, plan_looks(104), 0, [1.0])
        np.testing.assert_allclose(found, estimate.interval, atol=0.12)


def test_the_interval_after_stopping_is_between_the_ordinary_one_and_that_of_the_look():
    looks = plan_looks(104)
    estimate = Estimate(4.2, 1.0, noise=0.5, freedom=math.inf)  # above 1 from 3.3 on, at look 2 of 0 to 7
    at_look = Estimate(4.2, 1.0, noise=0.5, freedom=math.inf, level=looks.level(2)).interval
    low, high = interval_after_stopping(estimate, looks, 2, [1.0])
    assert decided_range(at_look, [1.0]) == decided_range((low, high), [1.0]) == 1
    assert at_look[0] < low < estimate.interval[0]
    assert high < at_look[1]


def test_intervals_after_stopping_cover_and_decisions_are_right():
    # A difference of mean 1 and variance 1 at the end, between the limits −2.5 and 2.5; increments are independent.
    rng = np.random.default_rng(0)
    looks = plan_looks(104)
    truth = 1.0
    limits = [-2.5, 2.5]
    held = []
    wrong = []
    for _ in range(200):
        steps = rng.normal(size=8).cumsum() / np.sqrt(8)
        for look, fraction in enumerate(looks.fraction):
            # Information t: value of the partial mean and its variance 1 / t.
            value = truth + steps[look] / fraction
            estimate = Estimate(value, 1 / fraction, noise=1e-9, level=looks.level(look))
            decided = decided_range(estimate.interval, limits)
            if decided is not None or look == len(looks.rounds) - 1:
                break
        low, high = interval_after_stopping(estimate, looks, look, limits, paths=1000)
        held.append(low <= truth <= high)
        wrong.append(decided not in (None, 1))
    assert 0.92 <= np.mean(held) <= 0.98  # standard error 0.015
    assert np.mean(wrong) <= 0.05


def test_a_comparison_with_a_run_that_stopped_early_errs_in_5_percent_only_at_its_look():
    # Both runs have the same true value, 2 standard errors above the limit of the first one, which stops when it is
    # shown to be above. Chance made it large then, so that the second run seems to be smaller.
    rng = np.random.default_rng(0)
    plan = plan_looks(104)
    quantile = scipy.stats.norm.ppf(plan.tail)
    information = plan.fraction**2
    steps = np.sqrt(np.diff(information, prepend=0.0))
    first, second = (rng.normal(size=(2, 20_000, 8)) * steps).cumsum(axis=2) / np.sqrt(information)
    is_decided = np.abs(2 * plan.fraction + first) > quantile
    is_decided[:, -1] = True
    look = is_decided.argmax(axis=1)
    difference = ((second - first) / math.sqrt(2))[np.arange(len(look)), look]
    wrong = np.abs(difference) > scipy.stats.norm.ppf(TAILS[1])
    wrong_at_look = np.abs(difference) > quantile[look]
    assert wrong.mean() > 0.055  # standard error 0.0016
    assert wrong[look < 7].mean() > 0.10
    assert wrong_at_look.mean() <= 0.05


def test_a_look_divides_p_values_by_its_share_and_widens_intervals():
    rng = np.random.default_rng(0)
    template, person = np.indices((12, 8)).reshape(2, -1).repeat(2, axis=1)
    values = rng.normal(size=(len(person), 1)) + np.where(person == 0, 1.5, 0.0)[:, None]
    design = Design(template, person, np.zeros((0, 8)))
    family = SetOfTests("length", values, are_shares=False)
    whole = joint_effects(design, [family], 199, np.random.default_rng(1))[0]
    level = Level(share=0.25, tail=0.99, one_sided_tail=0.98)
    at_look = joint_effects(design, [family], 199, np.random.default_rng(1), level)[0]
    np.testing.assert_allclose(at_look.p_joint, np.minimum(whole.p_joint / 0.25, 1))
    np.testing.assert_allclose(at_look.p_set, np.minimum(whole.p_set / 0.25, 1))
    np.testing.assert_allclose(at_look.shift_joint, np.minimum(whole.shift_joint / 0.25, 1))
    assert at_look.overall_joint == pytest.approx(min(whole.overall_joint / 0.25, 1))
    assert whole.p_joint[0, 0] <= 0.25 * LEVEL  # shown by both
    assert at_look.low[0, 0] < whole.low[0, 0]
    assert at_look.high[0, 0] > whole.high[0, 0]
    assert (at_look.at_most > whole.at_most).all()
    assert (at_look.detectable > whole.detectable).all()
