"""Accuracy, recall, area under the ROC curve, and F1 of a classifier, with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import krippendorff
import numpy as np
import scipy

from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.intervals import Interval, normal_interval, percentile_interval
from evenhand.evaluation.statistics.scores import share_score

ALPHA, N_BINS = "krippendorff_alpha", 10


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
    for label in range(len(names) if len(names) > 2 else 1):
        one, other = (probabilities[chosen, label] for chosen in (truth == label, truth != label))
        area, interval = _area(one, other)
        reason = None if math.isfinite(area) else "no text held out has this label, or all have"
        group = {"label": names[label] if len(names) > 2 else " or ".join(names)}
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
    n, times = len(truth), _bootstrap_counts(len(truth), seed)
    twice = 2 * times @ hits
    with np.errstate(invalid="ignore"):
        f1 = twice / (twice + times @ wrong)  # (1 + 1000, L): all texts, then each sample
    columns = [("macro_f1", {}, f1[:, ~np.isnan(f1[0])])]
    columns += [("f1", {"label": name}, f1[:, [label]]) for label, name in enumerate(names)]
    scores, signature = [], {**signature, "threshold": np.asarray(threshold).tolist()}
    for metric, group, values in columns:
        value, interval, reason = math.nan, None, "no text has this label or is predicted to have it"
        if np.isfinite(values[0]).any():
            means = np.nanmean(values, axis=1) if values.shape[1] > 1 else values[:, 0]
            value, interval, reason = float(means[0]), _percentiles(means[1:]), None
        common = {"group": group, "reason": reason, "signature": signature}
        scores.append(BiasScore(metric, value, 1.0, (0.0, 1.0), n, interval, **common))
    return scores


def calibration_error(
    probabilities: np.ndarray, truth: np.ndarray, seed: int, signature: Mapping[str, Any]
) -> BiasScore:
    """Return the expected calibration error of a classifier's most probable label, in [0, 1], ideal 0.

    Source: Guo et al. (2017), equation 3: the mean over texts, in 10 bins of equal width, of the absolute difference
    between the mean probability and the accuracy in the bin. With few texts it is biased upward. Interval: percentiles
    of 1,000 bootstrap samples of texts.

    Args:
        probabilities: probability of each of L labels for each of n texts, (n, L).
        truth: whether each text has each label, (n, L) bool; a text with several labels counts as right for each.
        seed: seed of the bootstrap samples.
        signature: as in BiasScore.
    """
    rows, confidence = np.arange(len(truth)), probabilities.max(axis=1)
    gaps = np.zeros((len(truth), N_BINS))
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    gaps[rows, bins] = truth[rows, probabilities.argmax(axis=1)] - confidence
    errors = np.abs(_bootstrap_counts(len(truth), seed) @ gaps).sum(axis=1) / len(truth)
    value, interval = float(errors[0]), _percentiles(errors[1:])
    return BiasScore("calibration_error", value, 0.0, (0.0, 1.0), len(truth), interval, signature=signature)


def label_agreement(labels: np.ndarray, seed: int, group: Mapping[str, str], signature: Mapping[str, Any]) -> BiasScore:
    """Return Krippendorff's α of m coders' labels, (m, n) numbers, or NaN where a coder gave none.

    1 is perfect agreement, 0 agreement by chance. Source: Krippendorff (2004), Content Analysis, chapter 11, for
    nominal data. Interval: percentiles of 200 bootstrap samples of the n units. α is undefined if all labels are equal.
    """
    n = labels.shape[1]
    rng = np.random.default_rng(seed)
    samples = [labels, *(labels[:, rng.integers(n, size=n)] for _ in range(200 if n else 0))]
    values = np.full(len(samples), np.nan)
    for place, sample in enumerate(samples):
        if len(np.unique(sample[np.isfinite(sample)])) > 1:
            values[place] = krippendorff.alpha(sample, level_of_measurement="nominal")
    interval = reason = None
    if np.isnan(values[0]):
        reason = "all labels are equal" if n else "no two coders labelled the same"
    else:
        interval = _percentiles(values[1:])
    common = {"group": group, "reason": reason, "signature": signature}
    return BiasScore(ALPHA, float(values[0]), 1.0, (-1.0, 1.0), n, interval, **common)


def _percentiles(values: np.ndarray) -> Interval:
    return percentile_interval(values[~np.isnan(values)])


def _bootstrap_counts(n: int, seed: int) -> np.ndarray:
    """Return how often each of n texts occurs in all texts, in the first row, and in each of 1,000 samples."""
    return np.vstack([np.ones(n), np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=1000)])


def best_thresholds(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the threshold of each label, (L,), that has the greatest F1; the mean of equally good thresholds.

    `probabilities` and `truth` are as in `f1_scores`.
    """
    grid = np.arange(1, 100) / 100
    f1 = np.empty((len(grid), truth.shape[1]))
    for row, threshold in enumerate(grid):
        predicted = probabilities >= threshold
        f1[row] = 2 * (predicted & truth).sum(axis=0) / np.maximum(predicted.sum(axis=0) + truth.sum(axis=0), 1)
    is_best = f1 == f1.max(axis=0)
    return (grid[:, None] * is_best).sum(axis=0) / is_best.sum(axis=0)


def _area(one: np.ndarray, other: np.ndarray) -> tuple[float, tuple[float, float] | None]:
    """Return the probability that a value of `one` exceeds one of `other` (ties: one half), and its 95 % interval."""
    if not len(one) or not len(other):
        return math.nan, None
    area = float(scipy.stats.mannwhitneyu(one, other).statistic / (len(one) * len(other)))
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (len(one) - 1) * (q1 - area**2) + (len(other) - 1) * (q2 - area**2)
    return area, normal_interval(area, math.sqrt(spread / (len(one) * len(other))), (0.0, 1.0))
