"""How often a classifier is right, by hand."""

import math

import numpy as np
import pytest

from evenhand.evaluation.results import find_score
from evenhand.evaluation.statistics.accuracy import accuracy_scores, f1_scores


def test_accuracy_recall_and_area_by_hand():
    p = np.array([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.2, 0.8]])
    scores = accuracy_scores(p, np.array([0, 0, 1, 1]), ["a", "b"], {})
    assert find_score(scores, "accuracy").value == 0.5
    assert find_score(scores, "recall", label="a").value == 0.5
    # Of the four pairs of an a and a b, three a's have the higher p(a): 0.9 > 0.6, 0.9 > 0.2, 0.4 > 0.2.
    assert find_score(scores, "roc_auc", label="a or b").value == 0.75
    alone = accuracy_scores(p[:2], np.array([0, 0]), ["a", "b"], {})
    assert math.isnan(find_score(alone, "recall", label="b").value)
    assert find_score(alone, "roc_auc", label="a or b").reason


def test_f1_of_several_labels_by_hand():
    truth = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    probabilities = np.array([[0.9, 0.1, 0.1], [0.2, 0.8, 0.1], [0.6, 0.7, 0.1], [0.1, 0.3, 0.1]])
    scores = f1_scores(probabilities, truth, ["a", "b", "c"], 0.3, 0, {})
    # a: 1 hit, 1 missed, 1 wrong: 2 / 4. b: 2 hits, 1 wrong (0.3 is enough): 4 / 5. c: never there, never given.
    assert find_score(scores, "f1", label="a").value == pytest.approx(0.5)
    assert find_score(scores, "f1", label="b").value == pytest.approx(0.8)
    assert math.isnan(find_score(scores, "f1", label="c").value)
    macro = find_score(scores, "macro_f1")
    assert macro.value == pytest.approx(0.65) and macro.interval[0] < 0.65 < macro.interval[1]


def test_f1_interval_covers_and_shrinks():
    rng = np.random.default_rng(0)
    truth = rng.random((3000, 2)) < 0.5
    found = np.where(rng.random((3000, 2)) < 0.8, truth, ~truth).astype(float)  # 8 of 10 right: F1 is 0.8
    widths = []
    for n in (300, 3000):
        low, high = find_score(f1_scores(found[:n], truth[:n], ["a", "b"], 0.5, 0, {}), "macro_f1").interval
        widths.append(high - low)
        assert low < 0.8 < high
    assert widths[1] < widths[0] / 2
