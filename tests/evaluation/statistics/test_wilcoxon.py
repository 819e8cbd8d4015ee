"""The signed-rank test: by hand, and held against SciPy row by row."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenhand.evaluation.statistics.wilcoxon import signed_rank


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


def test_rows_do_not_touch_each_other():
    rng = np.random.default_rng(0)
    rows = rng.integers(-5, 6, size=(200, 12)) / 2 + rng.normal(size=(200, 12)) * (rng.random((200, 1)) < 0.5)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    together = np.stack(signed_rank(rows))
    apart = np.concatenate([np.stack(signed_rank(row[None])) for row in rows], axis=1)
    np.testing.assert_array_equal(together, apart)


def test_there_may_be_no_row():
    assert signed_rank(np.empty((0, 5)))[1].shape == (0,)
