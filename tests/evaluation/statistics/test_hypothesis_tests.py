"""Tests by hand, by all permutations and against SciPy; corrections for multiple testing."""

import itertools
import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenhand.evaluation.statistics.hypothesis_tests import (
    mann_whitney,
    signed_rank,
)
from evenhand.evaluation.statistics.scores import rank_correlation


def test_all_signs_of_four_ranks_by_hand():
    signs = np.array(list(itertools.product((1, -1), repeat=4)))
    w, p = signed_rank(signs * np.array([1.0, 2.0, 3.0, 4.0]))
    by_hand = (signs > 0) @ np.array([1, 2, 3, 4])
    assert w.tolist() == by_hand.tolist()
    for value, found in zip(by_hand, p, strict=True):
        below, above = (by_hand <= value).mean(), (by_hand >= value).mean()
        assert found == pytest.approx(min(1, 2 * min(below, above)))


# Quarters, so that many are tied or 0; a row is at most 60 long: both sides of the exact distribution's end.
@settings(deadline=None)
@given(st.lists(st.one_of(st.integers(-9, 9), st.just(np.nan)), min_size=1, max_size=60), st.booleans())
def test_p_is_scipys(values, apart):
    row = np.array(values, dtype=np.float64) / 4
    row = row + np.sqrt(2) * np.arange(len(row)) * apart  # without ties, mostly
    w, p = signed_rank(row[None])
    left = row[np.isfinite(row) & (row != 0)]
    if not len(left):
        assert np.isnan(p[0]) if np.isnan(row).all() else p[0] == 1
        return
    tied = len(np.unique(np.abs(left))) < len(left)
    ranks = stats.rankdata(np.abs(left))
    assert w[0] == ranks[left > 0].sum()
    if tied and len(left) <= 13:
        sums = np.array(list(itertools.product((0, 1), repeat=len(left)))) @ ranks
        assert p[0] == pytest.approx(min(1, 2 * min((sums <= w[0]).mean(), (sums >= w[0]).mean())))
    else:
        method = "exact" if len(left) <= 50 and not tied else "approx"
        assert p[0] == pytest.approx(stats.wilcoxon(left, method=method, correction=False).pvalue, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=12), min_size=2, max_size=4))
def test_any_two_samples_agree_with_scipy(lists):
    counts = np.stack([np.bincount(values, minlength=7) for values in lists])
    pairs = np.array(list(combinations(range(len(lists)), 2)))
    u, p = mann_whitney(counts, *pairs.T)
    for (a, b), statistic, p_value in zip(pairs, u, p, strict=True):
        expected = stats.mannwhitneyu(lists[a], lists[b])
        assert statistic == expected.statistic
        assert p_value == pytest.approx(expected.pvalue, rel=1e-12, abs=0)


X = np.array([1.0, 2.0, 3.0, 4.0, 5.0])


def test_ranks_by_hand():
    # Rank differences 1, 1, 0, 1, 1: ρ = 1 − 6 × 4 / (5 × 24) = 0.8
    score = rank_correlation("rho", X, np.array([20.0, 10.0, 30.0, 50.0, 40.0]))
    assert score.value == pytest.approx(0.8) and score.n == 5
    half = 1.959963985 * math.sqrt((1 + 0.32) / 2)
    assert score.interval == pytest.approx((math.tanh(math.atanh(0.8) - half), math.tanh(math.atanh(0.8) + half)))
    y = np.array([20.0, 10.0, 30.0, 50.0, 40.0])
    value = rank_correlation("rho", X, y).value
    assert rank_correlation("rho", np.exp(X), y**3).value == pytest.approx(value)
    assert rank_correlation("rho", X, -y).value == pytest.approx(-value)
    assert rank_correlation("rho", X, X).value == pytest.approx(1) and rank_correlation("rho", X, X).interval is None
    score = rank_correlation("rho", np.append(X, np.nan), np.array([20.0, 10.0, 30.0, 50.0, 40.0, 0.0]))
    assert score.value == pytest.approx(0.8) and (score.n, score.n_left_out) == (5, 1)


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
