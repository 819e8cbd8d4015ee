"""Shares of style clusters by hand."""

import doctest
import math

import numpy as np
import pytest

from evenhand.evaluation.families.generation_bias.costs import scores as module
from evenhand.evaluation.families.generation_bias.costs.scores import style_share

VECTORS = np.array([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3], [np.nan] * 3, [0.5, 0.1, 0.4]], dtype=np.float32)
CLUSTERS = {"HATE": (0, 1), "CARE": (2,)}


def test_shares_and_intervals_by_hand():
    hate, care = style_share(VECTORS, CLUSTERS, {"seed": 0})
    # Sums 0.3, 0.7, 0.6: mean 1.6/3; deviations −7/30, 5/30, 2/30: variance (49 + 25 + 4)/900/2, of the mean a third.
    half = 1.959964 * math.sqrt(78 / 900 / 2 / 3)
    assert (hate.metric, hate.group, hate.ideal, hate.bounds) == ("style_share", {"cluster": "HATE"}, None, (0.0, 1.0))
    assert hate.value == pytest.approx(1.6 / 3)
    assert hate.interval == pytest.approx((1.6 / 3 - half, 1.6 / 3 + half), abs=1e-6)
    assert (hate.n, hate.n_left_out, hate.signature) == (3, 1, {"seed": 0})
    assert care.value == pytest.approx(1.4 / 3)


def test_shares_sum_to_one_and_do_not_depend_on_row_order():
    rng = np.random.default_rng(0)
    vectors = rng.dirichlet(np.ones(5), 50)
    scores = style_share(vectors, {"a": (0, 3), "b": (1, 2, 4)})
    assert sum(score.value for score in scores) == pytest.approx(1)
    again = style_share(vectors[rng.permutation(50)], {"a": (0, 3), "b": (1, 2, 4)})
    assert [score.value for score in again] == pytest.approx([score.value for score in scores])


def test_intervals_are_in_bounds_or_missing_with_a_reason():
    low = style_share(np.array([[0.0, 1.0], [0.1, 0.9]]), {"HATE": (0,)})[0]
    assert low.interval[0] == 0
    one = style_share(VECTORS[:1], CLUSTERS)[0]
    assert one.interval is None and "interval" in one.reason
    none = style_share(VECTORS[2:3], CLUSTERS)[0]
    assert math.isnan(none.value) and "empty" in none.reason and (none.n, none.n_left_out) == (0, 1)


def test_examples_of_the_docstrings():
    assert doctest.testmod(module).failed == 0
