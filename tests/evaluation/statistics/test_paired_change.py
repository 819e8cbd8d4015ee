"""Shares, changes, ratios and their errors: hand-derived values and what an interval must do."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.stats import binom

from evenhand.evaluation.score import find_score
from evenhand.evaluation.statistics.accuracy import (
    best_thresholds,
    calibration_error,
    classifier_scores,
    f1_scores,
    label_agreement,
)
from evenhand.evaluation.statistics.hypothesis_tests import reach_of_mean, t_test
from evenhand.evaluation.statistics.intervals import (
    bootstrap_t_interval,
    covariance_from_variances,
    mean_covariance,
    ratio_interval,
    share_interval,
    student_quantile,
)
from evenhand.evaluation.statistics.jackknife import jackknife_error
from evenhand.evaluation.statistics.scores import mean_change, share_change, share_score


def presence(*counts):
    """Return (before, after) from how many prompts have it: in both runs, before alone, after alone, in neither."""
    pairs = [(True, True), (True, False), (False, True), (False, False)]
    rows = [pair for pair, count in zip(pairs, counts, strict=True) for _ in range(count)]
    return np.array(rows, dtype=bool).reshape(-1, 2).T


def test_changes_of_shares_by_hand_and_without_change():
    # 12 lost it, 4 gained it, of 100: Tango's ends are where the score, with the likeliest q, is ± 1.96.
    change = share_change("x", *presence(10, 12, 4, 74), n_left_out=3)
    assert change.value == -0.08 and (change.n, change.n_left_out) == (100, 3)
    for delta, z in zip(change.interval, (1.959964, -1.959964), strict=True):
        found = minimize_scalar(
            lambda q, d=delta: -(12 * math.log(q) + 4 * math.log(q + d) + 84 * math.log(1 - 2 * q - d)),
            bounds=(max(0, -delta) + 1e-9, (1 - delta) / 2 - 1e-9),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert (-8 - 100 * delta) / math.sqrt(100 * (2 * found.x + delta - delta**2)) == pytest.approx(z, abs=1e-3)
    # Exact McNemar: 2 P(at most 4 of 16 heads) = 2 (1 + 16 + 120 + 560 + 1820) / 65536
    assert change.p_value == pytest.approx(2 * 2517 / 65536)
    change = share_change("x", *presence(5, 0, 0, 5))
    assert change.value == 0 and change.p_value == 1
    reach = 3.8414588 / (10 + 3.8414588)  # as Wilson's of 0 of 10
    assert change.interval == pytest.approx((-reach, reach))
    assert share_change("x", *presence(0, 3, 0, 0)).interval[0] == -1
    # Gains alone: Wilson's interval of 10 of 100, since a loss is likeliest not to occur.
    assert share_change("x", *presence(0, 0, 10, 90)).interval == pytest.approx(share_interval(10, 100))


def test_a_rise_from_0_to_1_of_100_is_in_95_of_100_intervals():
    """Of 180 pairs, none rises in 14 % of the cases, and the interval of ± 1.1 of 100 excluded the rise in each."""
    chances = binom.pmf(np.arange(181), 180, 0.011)
    covers = []
    for gains in range(20):
        low, high = share_change("x", *presence(0, 0, gains, 180 - gains)).interval
        covers.append(low <= 0.011 <= high)
    assert chances[:20][covers].sum() > 0.95


@pytest.mark.parametrize("counts", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 5, 5, 0), (0, 0, 7, 0)])
def test_the_interval_of_any_change_of_a_share_contains_it(counts):
    change = share_change("x", *presence(*counts))
    low, high = change.interval
    assert -1 <= low <= change.value <= high <= 1 and low < high


def test_means_by_hand_and_undefined_changes():
    # Differences 1, 2, 3: mean 2, standard error 1 / √3, two degrees of freedom.
    after = np.array([1.0, 2.0, 3.0])
    change = mean_change("x", np.zeros(3), after, bounds=(-9, 9), group={"cluster": "HATE"})
    assert change.value == 2 and change.group == {"cluster": "HATE"}
    assert change.interval == pytest.approx((2 - 4.30265273 / math.sqrt(3), 2 + 4.30265273 / math.sqrt(3)))
    # With two degrees of freedom, P(|t| > x) = 1 − x / √(2 + x²), and x² = 12.
    assert change.p_value == pytest.approx(1 - math.sqrt(12 / 14))
    assert mean_change("x", np.zeros(3), after / 4).interval[1] == 1  # the largest possible change
    for change in (share_change, mean_change):
        score = change("x", np.array([]), np.array([]))
        assert math.isnan(score.value) and "both runs" in score.reason
    change = mean_change("x", np.array([0.1, 0.2]), np.array([0.1, 0.2]))
    assert change.value == 0 and change.interval is None and change.p_value is None


FREEDOM = 7
T2 = float(student_quantile(FREEDOM)) ** 2


def in_fiellers_set(ratio, top, bottom, covariance):
    """Whether Student's t does not reject the ratio."""
    weights = np.array([1.0, -ratio])
    return (top - ratio * bottom) ** 2 <= T2 * (weights @ covariance @ weights)


def test_by_hand():
    # Variances 1 / t² and covariance ½ / t²: a = 4² − 1 = 15, b = 2 · 4 − ½ = 7.5, c = 2² − 1 = 3.
    covariance = np.array([[1.0, 0.5], [0.5, 1.0]]) / T2
    root = math.sqrt(7.5**2 - 15 * 3)
    assert ratio_interval(2.0, 4.0, covariance, FREEDOM) == pytest.approx(((7.5 - root) / 15, (7.5 + root) / 15))
    # Without noise in the bottom it is Student's interval of the top over the bottom: (2 ± 1) / 4.
    assert ratio_interval(2.0, 4.0, np.diag([1.0, 0.0]) / T2, FREEDOM) == pytest.approx((0.25, 0.75))
    assert ratio_interval(-2.0, 4.0, np.diag([1.0, 0.0]) / T2, FREEDOM) == pytest.approx((-0.75, -0.25))
    assert ratio_interval(2.0, -4.0, np.diag([1.0, 0.0]) / T2, FREEDOM) == pytest.approx((-0.75, -0.25))
    assert ratio_interval(0.0, 4.0, np.diag([1.0, 0.0]) / T2, FREEDOM) == pytest.approx((-0.25, 0.25))
    assert ratio_interval(0.0, 4.0, np.zeros((2, 2)), FREEDOM) == (0.0, 0.0)
    exact = np.array([[2.0, -0.5], [-0.5, 1.0]])
    assert covariance_from_variances(2.0, 1.0, 2.0 + 1.0 + 2 * 0.5) == pytest.approx(exact)
    # Estimates whose covariance would be 2 and −2, beyond √(1 · 1)
    assert covariance_from_variances(1.0, 1.0, -2.0)[0, 1] == 1
    assert covariance_from_variances(1.0, 1.0, 6.0)[0, 1] == -1


@pytest.mark.parametrize(
    ("top", "bottom", "inside", "outside"),
    [
        (2.0, 0.5, (-3.8, 1.1, 10.0), (-3.7, 0.0, 1.0)),  # a < 0, b² > ac: roots (−4 ± √52) / 3 = −3.74, 1.07
        (0.5, 0.5, (-10.0, 0.0, 1.0, 10.0), ()),  # a < 0, b² < ac: every number
        (2.0, 1.0, (0.8, 1e6), (0.7, 0.0, -1e6)),  # a = 0: from c / 2b = ¾ on
        (-2.0, 1.0, (-0.8, -1e6), (-0.7, 0.0, 1e6)),
        (0.0, 1.0, (-1e6, 0.0, 1e6), ()),  # a = b = 0: every number
    ],
)
def test_it_is_none_where_the_set_is_unbounded(top, bottom, inside, outside):
    """Variances 1 / t² without a covariance: the bottom is significant from 1 on."""
    covariance = np.eye(2) / T2 * (1 + 1e-15)  # so that rounding leaves the bottom of 1 on the side of a ≤ 0
    assert ratio_interval(top, bottom, covariance, FREEDOM) is None
    assert all(in_fiellers_set(ratio, top, bottom, covariance) for ratio in inside)
    assert not any(in_fiellers_set(ratio, top, bottom, covariance) for ratio in outside)
    assert ratio_interval(2.0, 4.0, covariance, 0) is None


def test_it_excludes_zero_where_the_top_is_significant_and_contains_the_ratio():
    rng = np.random.default_rng(0)
    bounded = 0
    for _ in range(2000):
        top, bottom = rng.normal(0, 3, 2)
        covariance = covariance_from_variances(*rng.chisquare(2, 3))
        interval = ratio_interval(top, bottom, covariance, FREEDOM)
        assert (interval is None) == (bottom**2 <= T2 * covariance[1, 1])
        if interval is None:
            continue
        bounded += 1
        low, high = interval
        assert low <= top / bottom <= high
        assert (low > 0 or high < 0) == (top**2 > T2 * covariance[0, 0])
        width = high - low
        for ratio, inside in ((low - 1e-6 * width, False), (low + 1e-6 * width, True), (high + 1e-6 * width, False)):
            assert in_fiellers_set(ratio, top, bottom, covariance) == (inside and width > 1e-9) or width <= 1e-9
    assert 300 < bounded < 1700


def test_strata_by_hand():
    values = np.array([[0.0, 1.0], [2.0, 5.0], [7.0, 7.0]])
    covariance, freedom = mean_covariance(values, np.array([4, 4, 9]))
    # Within the first stratum S = [[2, 4], [4, 8]]; the single row is given the same: (2 S + S) / 9.
    np.testing.assert_allclose(covariance, np.array([[2, 4], [4, 8]]) / 3)
    assert freedom == 1
    covariance, freedom = mean_covariance(np.array([[1.0], [2.0], [3.0]]), np.array([0, 1, 2]))
    assert covariance[0, 0] == pytest.approx(1 / 3) and freedom == 2


def test_of_a_mean_it_is_the_known_interval_and_test():
    values = np.array([0.2, 0.9, 0.4, 0.7, 0.1])
    error = jackknife_error([(values.sum() - values) / 4])
    assert error.value == pytest.approx(stats.sem(values)) and error.freedom == 4
    known = stats.ttest_1samp(values, 0.0)
    assert error.interval(values.mean(), (-1.0, 1.0)) == pytest.approx(tuple(known.confidence_interval(0.95)))
    assert error.p_value(values.mean()) == pytest.approx(known.pvalue)


def test_a_share_by_hand_and_of_nothing():
    score = share_score("x", [True, True, False], 1.0, reason="none", group={"lang": "spa"}, n_left_out=4)
    assert (score.value, score.n, score.n_left_out, score.ideal, score.bounds) == (2 / 3, 3, 4, 1.0, (0.0, 1.0))
    assert score.interval == share_interval(2, 3) and score.group == {"lang": "spa"} and score.reason is None
    nothing = share_score("x", [], 0.0, reason="nobody answered")
    assert math.isnan(nothing.value) and nothing.interval is None and nothing.reason == "nobody answered"


def test_accuracy_and_f1_by_hand():
    p = np.array([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.2, 0.8]])
    scores = classifier_scores(p, np.array([0, 0, 1, 1]), ["a", "b"])
    assert find_score(scores, "accuracy").value == 0.5
    assert find_score(scores, "recall", label="a").value == 0.5
    # Of the four pairs of an a and a b, three a's have the higher p(a): 0.9 > 0.6, 0.9 > 0.2, 0.4 > 0.2.
    assert find_score(scores, "roc_auc", label="a or b").value == 0.75
    alone = classifier_scores(p[:2], np.array([0, 0]), ["a", "b"])
    assert math.isnan(find_score(alone, "recall", label="b").value)
    assert find_score(alone, "roc_auc", label="a or b").reason
    truth = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    probabilities = np.array([[0.9, 0.1, 0.1], [0.2, 0.8, 0.1], [0.6, 0.7, 0.1], [0.1, 0.3, 0.1]])
    scores = f1_scores(probabilities, truth, ["a", "b", "c"], 0.3, 0)
    # a: 1 hit, 1 missed, 1 wrong: 2 / 4. b: 2 hits, 1 wrong (0.3 is enough): 4 / 5. c: never there, never given.
    assert find_score(scores, "f1", label="a").value == pytest.approx(0.5)
    assert find_score(scores, "f1", label="b").value == pytest.approx(0.8)
    assert math.isnan(find_score(scores, "f1", label="c").value)
    macro = find_score(scores, "macro_f1")
    assert macro.value == pytest.approx(0.65) and macro.interval[0] < 0.65 < macro.interval[1]


def test_the_best_thresholds_by_hand():
    truth = np.array([[1, 0], [1, 0], [0, 1], [0, 0]], dtype=bool)
    probabilities = np.array([[0.805, 0.1], [0.405, 0.1], [0.205, 0.305], [0.105, 0.1]])
    # a: 0.21 to 0.40 separate the labels; b: 0.11 to 0.30.
    np.testing.assert_allclose(best_thresholds(probabilities, truth), [0.305, 0.205])
    many = np.tile(probabilities, (10, 1)), np.tile(truth, (10, 1))  # so that each bootstrap sample has both labels
    scores = f1_scores(*many, ["a", "b"], np.array([0.305, 0.205]), 0)
    assert find_score(scores, "macro_f1").value == 1
    assert find_score(scores, "f1", label="b").signature["threshold"] == [0.305, 0.205]


def test_a_perfect_classifier_has_no_interval_of_width_zero():
    probabilities, truth = np.array([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]), np.array([0, 1, 1])
    is_label = np.eye(2, dtype=bool)[truth]
    scores = classifier_scores(probabilities, truth, ["a", "b"])
    scores += f1_scores(probabilities, is_label, ["a", "b"], 0.5, 0)
    scores += [calibration_error(probabilities, is_label, 0), label_agreement(np.stack([truth, truth]), 0, {})]
    for score in scores:
        assert score.interval is None or score.interval[0] < score.interval[1], score.name
        assert (score.interval is None) == (score.reason is not None)
    assert find_score(scores, "accuracy").interval[0] == pytest.approx(0.438, abs=1e-3)  # Wilson: 3 / (3 + 1.96²)


def test_equal_changes_are_not_significant_by_their_rounding():
    before = np.array([0.1, 0.2, 0.3, 0.7])
    change = mean_change("x", before, before + 0.1)  # four changes of 0.1, but for rounding
    assert (change.interval, change.p_value) == (None, None) and change.value == pytest.approx(0.1)
    assert t_test(np.array([0.3 - 0.2, 0.5 - 0.4, 0.8 - 0.7]), 0.0) is None
    assert math.isnan(reach_of_mean(np.array([0.3 - 0.2, 0.5 - 0.4, 0.8 - 0.7])))
    assert bootstrap_t_interval(np.array([0.3 - 0.2, 0.5 - 0.4, 0.8 - 0.7]), 0) is None
