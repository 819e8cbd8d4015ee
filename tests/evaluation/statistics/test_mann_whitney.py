"""Equal to SciPy's test, pair by pair."""

import doctest
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenhand.evaluation.statistics import mann_whitney as module
from evenhand.evaluation.statistics.mann_whitney import mann_whitney


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


def test_examples_of_the_docstrings():
    assert doctest.testmod(module).failed == 0
