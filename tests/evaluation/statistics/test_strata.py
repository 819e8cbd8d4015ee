"""The covariance of means of rows in strata, by hand and by simulation."""

import numpy as np
import pytest

from evenhand.evaluation.statistics.strata import mean_covariance


def test_by_hand_with_strata_of_two_and_one():
    values = np.array([[0.0, 1.0], [2.0, 5.0], [7.0, 7.0]])
    covariance, freedom = mean_covariance(values, np.array([4, 4, 9]))
    # Within the first stratum S = [[2, 4], [4, 8]]; the single row is given the same: (2 S + S) / 9.
    np.testing.assert_allclose(covariance, np.array([[2, 4], [4, 8]]) / 3)
    assert freedom == 1


def test_strata_of_one_row_are_one_stratum_together():
    covariance, freedom = mean_covariance(np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 2]))
    assert covariance[0, 0] == pytest.approx(1 / 3) and freedom == 2


def test_it_is_unbiased_where_strata_differ_and_are_uneven():
    rng = np.random.default_rng(0)
    strata = np.repeat(np.arange(30), rng.integers(2, 6, 30))
    level, scale = rng.normal(0, 3, 30)[strata], rng.uniform(0.5, 2, 30)[strata]
    found = [level + scale * rng.normal(size=len(strata)) for _ in range(3000)]
    estimate = np.mean([mean_covariance(each[:, None], strata)[0][0, 0] for each in found])
    assert estimate == pytest.approx(np.var([each.mean() for each in found]), rel=0.1)
    assert estimate == pytest.approx((scale**2).sum() / len(strata) ** 2, rel=0.02)
