"""Hand-derived changes of shares and means, and what an interval must do."""

import math

import numpy as np
import pytest

from evenhand.evaluation.statistics.paired_change import mean_change, share_change


def said(*counts):
    """Return (before, after) from how many prompts have it: in both runs, before alone, after alone, in neither."""
    pairs = [(True, True), (True, False), (False, True), (False, False)]
    rows = [pair for pair, count in zip(pairs, counts, strict=True) for _ in range(count)]
    return np.array(rows, dtype=bool).reshape(-1, 2).T


def test_a_change_of_shares_by_hand():
    # 12 lost it, 4 gained it, of 100. Agresti and Min: (−8 / 102) ± 1.96 √(17 − 64 / 102) / 102.
    change = share_change("x", *said(10, 12, 4, 74), n_left_out=3)
    assert change.value == -0.08 and (change.n, change.n_left_out) == (100, 3)
    half = 1.959963985 * math.sqrt(17 - 64 / 102) / 102
    assert change.interval == pytest.approx((-8 / 102 - half, -8 / 102 + half))
    # Exact McNemar: 2 P(at most 4 of 16 heads) = 2 (1 + 16 + 120 + 560 + 1820) / 65536
    assert change.p_value == pytest.approx(2 * 2517 / 65536)


def test_swapping_the_runs_turns_the_sign_and_keeps_the_rest():
    before, after = said(10, 12, 4, 74)
    there, back = share_change("x", before, after), share_change("x", after, before)
    assert there.value == -back.value and there.p_value == back.p_value
    assert there.interval == pytest.approx(tuple(-bound for bound in reversed(back.interval)))


def test_no_change_is_not_certainty():
    change = share_change("x", *said(5, 0, 0, 5))
    assert change.value == 0 and change.p_value == 1
    assert change.interval[0] < 0 < change.interval[1]


def test_an_interval_of_shares_stays_in_the_range():
    assert share_change("x", *said(0, 3, 0, 0)).interval[0] >= -1


def test_the_interval_of_a_share_holds_the_truth_about_19_times_in_20():
    rng, held = np.random.default_rng(0), 0
    for _ in range(1000):  # 8 % lose it, 3 % gain it: the change is −0.05
        outcome = rng.choice(4, size=150, p=[0.1, 0.08, 0.03, 0.79])
        low, high = share_change("x", np.isin(outcome, (0, 1)), np.isin(outcome, (0, 2))).interval
        held += low <= -0.05 <= high
    assert 930 <= held <= 980


def test_nothing_to_compare_has_a_reason():
    for change in (share_change, mean_change):
        score = change("x", np.array([]), np.array([]))
        assert math.isnan(score.value) and "both runs" in score.reason


def test_a_change_of_means_by_hand():
    # Differences 1, 2, 3: mean 2, standard error 1 / √3.
    change = mean_change("x", np.array([0.0, 0.0, 0.0]), np.array([1.0, 2.0, 3.0]), group={"cluster": "HATE"})
    assert change.value == 2 and change.group == {"cluster": "HATE"}
    assert change.interval == pytest.approx((2 - 1.959963985 / math.sqrt(3), 2 + 1.959963985 / math.sqrt(3)))
    assert change.p_value == pytest.approx(0.000532, abs=1e-6)  # z = 3.4641


def test_equal_differences_have_no_error_to_estimate():
    change = mean_change("x", np.array([0.1, 0.2]), np.array([0.1, 0.2]))
    assert change.value == 0 and change.interval is None and change.p_value is None


def test_runs_of_unequal_length_are_refused():
    with pytest.raises(ValueError):
        share_change("x", np.array([True]), np.array([True, False]))
