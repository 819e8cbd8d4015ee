"""A share by hand, and of nothing."""

import doctest
import math

from evenhand.evaluation.statistics import shares as module
from evenhand.evaluation.statistics.intervals import share_interval
from evenhand.evaluation.statistics.shares import share_score


def test_a_share_by_hand_and_of_nothing():
    score = share_score("x", [True, True, False], 1.0, reason="none", group={"lang": "spa"}, n_left_out=4)
    assert (score.value, score.n, score.n_left_out, score.ideal, score.bounds) == (2 / 3, 3, 4, 1.0, (0.0, 1.0))
    assert score.interval == share_interval(2, 3) and score.group == {"lang": "spa"} and score.reason is None
    nothing = share_score("x", [], 0.0, reason="nobody answered")
    assert math.isnan(nothing.value) and nothing.interval is None and nothing.reason == "nobody answered"


def test_examples_of_the_docstrings():
    assert doctest.testmod(module).failed == 0
