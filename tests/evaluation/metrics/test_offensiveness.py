"""The share of offensive responses, counted by hand."""

import doctest
import math

import numpy as np
import pytest

from evaluation.metrics import offensiveness
from evaluation.metrics.offensiveness import is_offensive, offensive_share


def test_a_half_is_offensive_already_and_an_empty_response_is_not():
    assert is_offensive(np.array([0.5, np.nextafter(0.5, 0), 1.0, np.nan])).tolist() == [True, False, True, False]


def test_the_share_and_its_interval_by_hand():
    score = offensive_share(np.array([0.9, 0.6, 0.4, 0.1, np.nan, 0.2]), {"seed": 0})
    assert (score.metric, score.value, score.n, score.n_left_out) == ("offensive_share", 2 / 5, 5, 1)
    assert (score.ideal, score.bounds, score.reason, score.signature) == (0.0, (0.0, 1.0), None, {"seed": 0})
    # Wilson: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), with p = 0.4, n = 5, z = 1.96.
    z, p, n = 1.959964, 0.4, 5
    centre, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    expected = [(centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)]
    assert score.interval == pytest.approx(expected, abs=1e-6)


def test_none_is_offensive_has_an_interval_and_nothing_to_classify_has_a_reason():
    score = offensive_share(np.zeros(100))
    assert score.value == 0
    assert score.interval[0] == 0 < score.interval[1] < 0.04
    nothing = offensive_share(np.array([np.nan, np.nan]))
    assert math.isnan(nothing.value)
    assert (nothing.n, nothing.n_left_out, nothing.interval) == (0, 2, None)
    assert "empty" in nothing.reason


def test_examples_of_the_docstrings():
    assert doctest.testmod(offensiveness).failed == 0
