"""Corrected p-values by hand, against the stepwise procedures that they stand for."""

import doctest

import numpy as np
import pytest

from evenhand.evaluation.statistics import multiple_testing as module
from evenhand.evaluation.statistics.multiple_testing import benjamini_hochberg, discoveries, holm


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),  # 3 × 0.01, 2 × 0.03, and 0.04 no less than that
        ([0.01, 0.02, 0.03, 0.04], [0.04, 0.06, 0.06, 0.06]),
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.2], [0.2]),
        ([], []),
    ],
)
def test_holm_by_hand(p_values, adjusted):
    assert holm(p_values) == pytest.approx(adjusted)


def test_holm_lies_between_none_and_bonferroni_and_rejects_what_the_stepwise_procedure_does():
    p = np.random.default_rng(0).beta(0.3, 3, size=30)
    adjusted = holm(p)
    assert (p <= adjusted).all() and (adjusted <= np.minimum(30 * p, 1)).all()
    rejected, order = set(), np.argsort(p)
    for step, index in enumerate(order):  # Holm (1979): the smallest at α/n, the next at α/(n − 1), until one stays
        if p[index] > 0.05 / (30 - step):
            break
        rejected.add(index)
    assert set(np.flatnonzero(adjusted <= 0.05)) == rejected and 0 < len(rejected) < 30


def test_discoveries_are_the_adjusted_p_values_below_the_level():
    rng = np.random.default_rng(1)
    for n in (0, 1, 7, 40):
        p = np.sort(rng.beta(0.3, 3, size=n))
        assert discoveries(p, 0.05) == (benjamini_hochberg(p) < 0.05).sum()


def test_examples_of_the_docstrings():
    assert doctest.testmod(module).failed == 0
