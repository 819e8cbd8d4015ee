"""Accuracy, recall, area under the ROC curve, and F1 of a classifier, with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.statistics.intervals import normal_interval
from evenhand.evaluation.statistics.shares import share_score


def accuracy_scores(
    probabilities: np.ndarray, truth: np.ndarray, names: Sequence[str], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return a classifier's accuracy, and the recall and the area under the ROC curve of each label.

    All scores are in [0, 1], ideal 1. Intervals: Wilson's for shares, Hanley and McNeil's (1982) for areas. If there
    are only two labels, both have the same area and one score.

    Args:
        probabilities: probability of each of L labels for each of n texts, (n, L).
        truth: index of each text's true label, (n,).
        names: names of the labels, (L,).
        signature: as in BiasScore.
    """
    predicted = probabilities.argmax(axis=1)
    common = {"ideal": 1.0, "bounds": (0.0, 1.0), "signature": signature}

    of_share = {"ideal": 1.0, "reason": "no text held out has this label", "signature": signature}
    scores = [share_score("accuracy", predicted == truth, **of_share)]
    for label, name in enumerate(names):
        scores.append(share_score("recall", predicted[truth == label] == label, group={"label": name}, **of_share))
    # For two labels the areas are equal.
    for label in range(len(names) if len(names) > 2 else 1):
        one, other = (probabilities[chosen, label] for chosen in (truth == label, truth != label))
        area, interval = _area(one, other)
        reason = None if math.isfinite(area) else "no text held out has this label, or all have"
        name = names[label] if len(names) > 2 else " or ".join(names)
        group = {"label": name}
        scores.append(BiasScore("roc_auc", area, n=len(truth), interval=interval, group=group, reason=reason, **common))
    return scores


def f1_scores(
    probabilities: np.ndarray,
    truth: np.ndarray,
    names: Sequence[str],
    threshold: float | np.ndarray,
    seed: int,
    signature: Mapping[str, Any],
) -> list[BiasScore]:
    """Return macro-F1 and the F1 of each label of a multi-label classifier, in [0, 1], ideal 1.

    F1 = 2·tp / (2·tp + fp + fn), from the numbers of true positives, false positives and false negatives. Macro-F1 is
    the mean over labels. F1 is undefined for a label that no text has and that is predicted for no text; macro-F1
    excludes such labels. Intervals: percentiles of 1,000 bootstrap samples of texts.

    Args:
        probabilities: probability of each of L labels for each of n texts, (n, L).
        truth: whether each text has each label, (n, L) bool.
        names: names of the labels, (L,).
        threshold: the smallest probability at which a label is predicted, a number or an array (L,).
        seed: seed of the bootstrap samples.
        signature: as in BiasScore.
    """
    predicted = probabilities >= threshold
    hits, wrong = (predicted & truth).astype(np.float64), (predicted != truth).astype(np.float64)
    n = len(truth)
    times = np.vstack([np.ones(n), np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=1000)])
    twice = 2 * times @ hits
    with np.errstate(invalid="ignore"):
        f1 = twice / (twice + times @ wrong)  # (1 + 1000, L): all texts, then each sample
    scores, columns = [], [({}, f1[:, ~np.isnan(f1[0])], "macro_f1")]
    columns += [({"label": name}, f1[:, [label]], "f1") for label, name in enumerate(names)]
    for group, values, metric in columns:
        common = {"group": group, "signature": {**signature, "threshold": np.asarray(threshold).tolist()}}
        if not values.shape[1] or np.isnan(values[0]).all():
            common["reason"] = "no text has this label or is predicted to have it"
            scores.append(BiasScore(metric, math.nan, 1.0, (0.0, 1.0), n, **common))
            continue
        means = np.nanmean(values, axis=1) if values.shape[1] > 1 else values[:, 0]
        low, high = np.nanquantile(means[1:], [0.025, 0.975])
        scores.append(BiasScore(metric, float(means[0]), 1.0, (0.0, 1.0), n, (float(low), float(high)), **common))
    return scores


def best_thresholds(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the threshold of each label, (L,), that has the greatest F1; the mean of equally good thresholds.

    Args:
        probabilities: probability of each of L labels for each of n texts, (n, L).
        truth: whether each text has each label, (n, L) bool.
    """
    grid = np.arange(1, 100) / 100
    f1 = np.empty((len(grid), truth.shape[1]))
    for row, threshold in enumerate(grid):
        predicted = probabilities >= threshold
        f1[row] = 2 * (predicted & truth).sum(axis=0) / np.maximum(predicted.sum(axis=0) + truth.sum(axis=0), 1)
    is_best = f1 == f1.max(axis=0)
    return (grid[:, None] * is_best).sum(axis=0) / is_best.sum(axis=0)


def _area(one: np.ndarray, other: np.ndarray) -> tuple[float, tuple[float, float] | None]:
    """Return the probability that a number of `one` is above a number of `other`, and the 95 % interval.

    Ties count one half. The probability is NaN and the interval None if `one` or `other` is empty.
    """
    if not len(one) or not len(other):
        return math.nan, None
    area = float(stats.mannwhitneyu(one, other).statistic / (len(one) * len(other)))
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (len(one) - 1) * (q1 - area**2) + (len(other) - 1) * (q2 - area**2)
    return area, normal_interval(area, math.sqrt(spread / (len(one) * len(other))), (0.0, 1.0))
