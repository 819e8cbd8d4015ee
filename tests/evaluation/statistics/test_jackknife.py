"""The jackknife of a mean is its standard error."""

import doctest
import math

import numpy as np
import pytest
from scipy import stats

from evenhand.evaluation.statistics import jackknife as module
from evenhand.evaluation.statistics.jackknife import jackknife_error


def test_of_a_mean_it_is_the_known_interval_and_test():
    values = np.array([0.2, 0.9, 0.4, 0.7, 0.1])
    error = jackknife_error([(values.sum() - values) / 4])
    assert error.value == pytest.approx(stats.sem(values)) and error.freedom == 4
    known = stats.ttest_1samp(values, 0.0)
    assert error.interval(values.mean(), (-1.0, 1.0)) == pytest.approx(tuple(known.confidence_interval(0.95)))
    assert error.p_value(values.mean()) == pytest.approx(known.pvalue)


def test_strata_add_up_and_what_is_undefined_is_left_out():
    one, other = np.array([0.0, 1.0, 0.5]), np.array([0.3, 0.1])
    both = jackknife_error([one, np.append(other, np.nan)])
    parts = [jackknife_error([part]) for part in (one, other)]
    assert both.value == pytest.approx(math.hypot(*(part.value for part in parts))) and both.freedom == 3
    assert jackknife_error([np.full(4, 0.1)]).value == 0


def test_examples_of_the_docstrings():
    assert doctest.testmod(module).failed == 0
