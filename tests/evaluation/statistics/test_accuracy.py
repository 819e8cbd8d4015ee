"""How often a classifier is right, by hand."""

import math

import numpy as np

from evenhand.evaluation.results import find_score
from evenhand.evaluation.statistics.accuracy import accuracy_scores


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
