"""Win rates, their test and Krippendorff's α, against values derived by hand."""

import pytest

from evenhand.evaluation.rating.metrics import (
    NO_VOTES,
    agreement,
    left_share,
    pair_win_rate,
    rating_scores,
    win_rate,
)
from evenhand.evaluation.score import find_score
from tests.evaluation.rating.rated_pairs import vote_table

# They agree on p1 (a, a), p2 (b, b) and p3 (a, a), and not on p4 (a, b); p5 has one vote, p6 is skipped by one.
VOTES = vote_table(
    {
        "anna": {"p1": "a", "p2": "b", "p3": "a", "p4": "a", "p5": "a", "p6": "-"},
        "ben": {"p1": "a", "p2": "b", "p3": "a", "p4": "b", "p6": "b"},
    }
)


def test_win_rates_and_their_tests_by_hand():
    score = win_rate(VOTES, {})  # a: p1, p1, p3, p3, p4, p5; b: p2, p2, p4, p6
    assert (score.value, score.n, score.n_left_out) == (6 / 10, 10, 1)
    # P(X ≤ 4 or X ≥ 6) of ten fair coins: all but C(10, 5) = 252 of 1024
    assert score.p_value == pytest.approx(1 - 252 / 1024)
    # Wilson: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n), z = 1.959964, n = 10, p = 0.6
    assert score.interval == pytest.approx((0.31267, 0.83182), abs=1e-5)
    score = pair_win_rate(VOTES, {})  # p1, p3, p5 for a; p2, p6 for b; p4 is split
    assert (score.value, score.n, score.n_left_out) == (3 / 5, 5, 1)
    assert score.p_value == pytest.approx(1.0)  # 3 of 5 is as near to one half as can be
    one = vote_table({"anna": {f"p{i}": "a" for i in range(6)}})
    four = vote_table({name: {f"p{i}": "a" for i in range(6)} for name in "abcd"})
    assert win_rate(four, {}).p_value < win_rate(one, {}).p_value == 2 / 2**6
    assert pair_win_rate(four, {}).p_value == pair_win_rate(one, {}).p_value == 2 / 2**6


def test_alpha_by_hand():
    score = agreement(VOTES, {})
    # p1 … p4 have two values each, n = 8: five a, three b. Observed: 1 of 4 pairs disagrees, Do = 1/4.
    # Expected: De = 2 · 5 · 3 / (8 · 7) = 15/28. α = 1 − (1/4) / (15/28) = 1 − 7/15.
    assert score.value == pytest.approx(8 / 15) and score.interval[0] < score.value < score.interval[1]
    assert (score.n, score.n_left_out, score.ideal, score.bounds) == (4, 2, 1.0, (-1.0, 1.0))
    votes = vote_table({"x": {"p1": "a", "p2": "b"}, "y": {"p1": "a", "p2": "b"}, "z": {"p1": "b", "p2": "b"}})
    # p1 has 3 · 2 ordered pairs of values, 4 of which differ, each weighs 1/(3 − 1): 2 of n = 6, Do = 1/3.
    # Two a and four b: De = 2 · 2 · 4 / (6 · 5) = 8/15. α = 1 − (1/3) / (8/15) = 1 − 5/8.
    assert agreement(votes, {}).value == pytest.approx(3 / 8)


def test_shares_of_the_left_and_scores_by_axis():
    votes = VOTES.assign(left=["after"] * 6 + ["before"] * 5)  # anna chose a five times but once, ben b three times
    assert left_share(votes[votes["rater"] == "anna"], {}).value == 4 / 5
    assert left_share(votes, {}).value == (4 + 3) / 10
    votes = VOTES.assign(axis=["age"] * 3 + ["body"] * 3 + ["age"] * 3 + ["body"] * 2)
    scores = rating_scores(votes, ["preference", "humanness"], {"seed": 0})
    assert find_score(scores, "win_rate", question="preference", axis="age").value == 4 / 6
    assert find_score(scores, "win_rate", question="preference", axis="body").value == 2 / 4
    without_votes = find_score(scores, "win_rate", question="humanness")
    assert (without_votes.n, without_votes.reason, without_votes.p_value) == (0, NO_VOTES, None)
    assert find_score(scores, "left_share", rater="ben").n == 5
    assert all(score.signature == {"seed": 0} for score in scores)
    skipped = win_rate(vote_table({"x": {"p1": "-"}}), {})
    assert (skipped.n, skipped.n_left_out, skipped.reason) == (0, 1, NO_VOTES)
