"""Ranks by hand, and every way to have none."""

import math
from itertools import permutations

import numpy as np
import pytest

from evenhand.evaluation.statistics.rank_correlation import rank_correlation

X = np.array([1.0, 2.0, 3.0, 4.0, 5.0])


def test_by_hand():
    # Rank differences 1, 1, 0, 1, 1: ρ = 1 − 6 × 4 / (5 × 24) = 0.8
    score = rank_correlation("rho", X, np.array([20.0, 10.0, 30.0, 50.0, 40.0]))
    assert score.value == pytest.approx(0.8) and score.n == 5
    half = 1.959963985 * math.sqrt((1 + 0.32) / 2)
    assert score.interval == pytest.approx((math.tanh(math.atanh(0.8) - half), math.tanh(math.atanh(0.8) + half)))


def test_only_the_order_counts_and_a_reversal_turns_the_sign():
    y = np.array([20.0, 10.0, 30.0, 50.0, 40.0])
    value = rank_correlation("rho", X, y).value
    assert rank_correlation("rho", np.exp(X), y**3).value == pytest.approx(value)
    assert rank_correlation("rho", X, -y).value == pytest.approx(-value)


def test_a_perfect_order_has_no_interval():
    assert rank_correlation("rho", X, X).value == pytest.approx(1) and rank_correlation("rho", X, X).interval is None


def test_what_is_not_a_number_is_left_out_and_counted():
    score = rank_correlation("rho", np.append(X, np.nan), np.array([20.0, 10.0, 30.0, 50.0, 40.0, 0.0]))
    assert score.value == pytest.approx(0.8) and (score.n, score.n_left_out) == (5, 1)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (X[:2], X[:2], "2 descriptors are too few"),
        (X, np.zeros(5), "the share is 0 for every descriptor: there is nothing to rank"),
        (np.full(5, 0.25), X, "b is 0.25 for every descriptor"),
    ],
)
def test_undefined_with_a_reason(x, y, reason):
    score = rank_correlation("rho", x, y, names=("b", "the share"))
    assert math.isnan(score.value) and score.interval is None and reason in score.reason


@pytest.mark.parametrize(
    ("x", "y", "rho", "p"),
    [
        ([1, 2, 3], [10, 20, 90], 1.0, 2 / 6),  # of 6 orders, the same and its reverse are as extreme
        ([1, 2, 3], [90, 20, 10], -1.0, 2 / 6),
        ([1, 2, 3, 4], [1, 2, 4, 3], 0.8, 8 / 24),  # Σd² = 2: 1 − 6·2/60; 1 + 3 orders with Σd² ≤ 2, as many reversed
        ([5, 1, 9, 3, np.nan], [5, 1, 9, 3, 4], 1.0, 2 / 24),
    ],
)
def test_the_correlation_of_a_known_ranking(x, y, rho, p):
    found = rank_correlation("rho", x, y)
    assert (found.value, found.p_value) == pytest.approx((rho, p)) and found.n == sum(map(math.isfinite, x))


def test_many_points_have_the_p_of_the_t_approximation():
    found = rank_correlation("rho", range(10), [1, 0, *range(2, 10)])
    # Σd² = 2: ρ = 1 − 12/990 = 0.987879; t = ρ √(8 / (1 − ρ²)) = 18.0; p = 9.3e-8
    assert found.value == pytest.approx(0.987879, abs=1e-6) and found.p_value == pytest.approx(9.3e-8, rel=0.02)


def test_an_exact_p_is_that_of_counting_by_hand():
    x, y = [1, 2, 3, 4, 5], [2, 1, 4, 3, 5]
    seen = abs(np.corrcoef(x, y)[0, 1])
    as_extreme = [abs(np.corrcoef(x, order)[0, 1]) >= seen - 1e-9 for order in permutations(y)]
    assert rank_correlation("rho", x, y).p_value == pytest.approx(np.mean(as_extreme))
