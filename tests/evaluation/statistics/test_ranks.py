"""Intervals of ranks: clear orders are found, ties are left open, and the intervals hold together."""

import numpy as np
import pytest

from evenhand.evaluation.statistics.ranks import mean_intervals, rank_intervals


def test_a_clear_order_and_a_tie():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.1, size=(4, 26))
    low, high = rank_intervals(np.array([[5.0], [1.0], [1.0], [-3.0]]) + noise)
    assert low.tolist() == [1, 2, 2, 4] and high.tolist() == [1, 3, 3, 4]


def test_what_all_templates_have_in_common_does_not_blur_the_ranks():
    """Differences are paired by template: a template that is large for everybody changes nothing."""
    rng = np.random.default_rng(0)
    values = np.array([[0.3], [0.0], [-0.3]]) + rng.normal(0, 0.1, size=(3, 20))
    shifted = values + rng.normal(0, 50, size=20)
    for plain, blurred in zip(rank_intervals(values), rank_intervals(shifted), strict=True):
        np.testing.assert_array_equal(plain, blurred)


def test_rounding_orders_nobody():
    """0.1 + 0.2 is not 0.3 in binary, in every template alike."""
    low, high = rank_intervals(np.array([[0.1 + 0.2] * 8, [0.3] * 8, [0.4] * 8]))
    assert low.tolist() == [2, 2, 1] and high.tolist() == [3, 3, 1]


def test_people_with_equal_values_have_all_ranks():
    low, high = rank_intervals(np.ones((3, 5)))
    assert low.tolist() == [1, 1, 1] and high.tolist() == [3, 3, 3]


@pytest.mark.parametrize("n_templates", [2, 3, 4, 5, 6])
def test_few_templates_order_nobody_by_chance(n_templates):
    """40 people who do not differ: 780 pairs, and at most 5 of 100 screens may order anybody."""
    n_wrong = 0
    n_missed = 0
    for seed in range(60):
        values = np.random.default_rng(seed).normal(size=(40, n_templates))
        low, _ = rank_intervals(values, draws=199, seed=seed)
        n_wrong += bool((low > 1).any())
        bounds = mean_intervals(values, draws=199, seed=seed)
        n_missed += bool(((bounds[:, 0] > 0) | (bounds[:, 1] < 0)).any())
    assert n_wrong <= 8 and n_missed <= 8  # 5 % and three standard errors


@pytest.mark.parametrize("skewed", [False, True])
def test_the_intervals_hold_together_in_about_95_of_100(skewed):
    rng = np.random.default_rng(1)
    means = np.array([0.3, 0.2, 0.1, 0.0, 0.0])
    true_low = np.array([1, 2, 3, 4, 4])
    true_high = np.array([1, 2, 3, 5, 5])
    n_covered = 0
    for seed in range(200):
        noise = rng.exponential(0.3, size=(5, 26)) - 0.3 if skewed else rng.normal(0, 0.3, size=(5, 26))
        low, high = rank_intervals(means[:, None] + noise, draws=199, seed=seed)
        n_covered += bool((low <= true_low).all() and (high >= true_high).all())
    assert n_covered >= 182  # 95 % less three standard errors
