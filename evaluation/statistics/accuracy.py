"""Accuracy, recall, area under the ROC curve, and F1 of a classifier, with intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import krippendorff
import numpy as np
import scipy

from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.intervals import Interval, normal_interval, percentile_interval, varies
from evenhand.evaluation.statistics.scores import share_score

KRIPPENDORFF_ALPHA = "krippendorff_alpha"
N_BINS = 10  # of the expected calibration error
N_SAMPLES = 1000  # of a bootstrap
N_ALPHA_SAMPLES = 200  # of the bootstrap of α
NO_LABEL = "no text held out has this label"
SAME_IN_SAMPLES = "it is the same in all bootstrap samples, which say nothing about its error"
SEPARATED = "the label’s texts and the other texts do not overlap in probability, so the error of the area is unknown"


def classifier_scores(probabilities: np.ndarray, truth: np.ndarray, names: Sequence[str]) -> list[BiasScore]:
    """Return a classifier's accuracy, and the recall and the area under the ROC curve of each label.

    All scores are in [0, 1], ideal 1. Intervals: Wilson's for shares, Hanley and McNeil's (1982) for areas, which have
    none at 0 and 1, where its width is 0. If there are only two labels, both have the same area and one score.

    Args:
        probabilities: probability of each of L labels for each of n texts, (n, L).
        truth: index of each text's true label, (n,).
        names: names of the labels, (L,).
    """
    predicted = probabilities.argmax(axis=1)
    scores = [share_score("accuracy", predicted == truth, 1.0, reason=NO_LABEL, n_of="texts")]
    for label, name in enumerate(names):
        is_right = predicted[truth == label] == label
        share = share_score("recall", is_right, 1.0, reason=NO_LABEL, n_of="texts")
        scores.append(replace(share, group={"label": name}))
    areas = {name: label for label, name in enumerate(names)}
    if len(names) <= 2:
        areas = {" or ".join(names): 0}
    for name, label in areas.items():
        has_label = truth == label
        area, interval = _area(probabilities[has_label, label], probabilities[~has_label, label])
        reason = None if interval else SEPARATED
        if math.isnan(area):
            reason = f"{NO_LABEL}, or all have"
        score = BiasScore(
            metric="roc_auc",
            value=area,
            ideal=1.0,
            bounds=(0.0, 1.0),
            n=len(truth),
            interval=interval,
            group={"label": name},
            reason=reason,
            n_of="texts",
        )
        scores.append(score)
    return scores


def f1_scores(
    probabilities: np.ndarray,
    truth: np.ndarray,
    names: Sequence[str],
    threshold: float | np.ndarray,
    seed: int,
) -> list[BiasScore]:
    """Return macro-F1 and the F1 of each label of a multi-label classifier, in [0, 1], ideal 1.

    F1 = 2·tp / (2·tp + fp + fn), from the numbers of true positives, false positives and false negatives. Macro-F1 is
    the mean over labels. F1 is undefined for a label that no text has and that is predicted for no text; macro-F1
    excludes such labels. Intervals: percentiles of 1,000 bootstrap samples of texts; none if all samples are equal.

    Args:
        probabilities: probability of each of L labels for each of n texts, (n, L).
        truth: whether each text has each label, (n, L) bool.
        names: names of the labels, (L,).
        threshold: the smallest probability at which a label is predicted, a number or an array (L,).
        seed: seed of the bootstrap samples.
    """
    predicted = probabilities >= threshold
    hits = (predicted & truth).astype(np.float64)
    errors = (predicted != truth).astype(np.float64)
    counts = _bootstrap_counts(len(truth), seed)
    twice_hits = 2 * counts @ hits
    with np.errstate(invalid="ignore"):
        f1 = twice_hits / (twice_hits + counts @ errors)  # (1 + N_SAMPLES, L): all texts, then each sample

    def score(metric: str, of_labels: np.ndarray, group: Mapping[str, str]) -> BiasScore:
        is_defined = bool(np.isfinite(of_labels[0]).any())
        means = of_labels[:, 0] if of_labels.shape[1] == 1 else np.full(len(of_labels), np.nan)
        if is_defined and of_labels.shape[1] > 1:
            means = np.nanmean(of_labels, axis=1)
        interval = _percentiles(means[1:]) if is_defined else None
        reason = None if interval else SAME_IN_SAMPLES
        if not is_defined:
            reason = "no text has this label or is predicted to have it"
        return BiasScore(
            metric=metric,
            value=float(means[0]),
            ideal=1.0,
            bounds=(0.0, 1.0),
            n=len(truth),
            interval=interval,
            group=group,
            reason=reason,
            signature={"threshold": np.asarray(threshold).tolist()},
            n_of="texts",
        )

    scores = [score("macro_f1", f1[:, ~np.isnan(f1[0])], {})]
    for label, name in enumerate(names):
        scores.append(score("f1", f1[:, [label]], {"label": name}))
    return scores


def calibration_error(probabilities: np.ndarray, truth: np.ndarray, seed: int) -> BiasScore:
    """Return the expected calibration error of a classifier's most probable label, in [0, 1], ideal 0.

    Source: Guo et al. (2017), equation 3: the mean over texts, in 10 bins of equal width, of the absolute difference
    between the mean probability and the accuracy in the bin. With few texts it is biased upward. Interval: percentiles
    of 1,000 bootstrap samples of texts.

    Args:
        probabilities: probability of each of L labels for each of n texts, (n, L).
        truth: whether each text has each label, (n, L) bool; a text with several labels counts as right for each.
        seed: seed of the bootstrap samples.
    """
    n = len(truth)
    rows = np.arange(n)
    confidence = probabilities.max(axis=1)
    is_right = truth[rows, probabilities.argmax(axis=1)]
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    gaps = np.zeros((n, N_BINS))
    gaps[rows, bins] = is_right - confidence
    errors = np.abs(_bootstrap_counts(n, seed) @ gaps).sum(axis=1) / n
    interval = _percentiles(errors[1:])
    return BiasScore(
        metric="calibration_error",
        value=float(errors[0]),
        ideal=0.0,
        bounds=(0.0, 1.0),
        n=n,
        interval=interval,
        reason=None if interval else SAME_IN_SAMPLES,
        n_of="texts",
    )


def label_agreement(labels: np.ndarray, seed: int, group: Mapping[str, str]) -> BiasScore:
    """Return Krippendorff's α of m coders' labels, (m, n) numbers, or NaN where a coder gave none.

    1 is perfect agreement, 0 agreement by chance. Source: Krippendorff (2004), Content Analysis, chapter 11, for
    nominal data. Interval: percentiles of 200 bootstrap samples of the n units; none if all samples are equal, as where
    nobody disagrees. α is undefined if all labels are equal.
    """
    n = labels.shape[1]
    value = _alpha(labels)
    interval = None
    reason = None
    if math.isfinite(value):
        rng = np.random.default_rng(seed)
        samples = [_alpha(labels[:, rng.integers(n, size=n)]) for _ in range(N_ALPHA_SAMPLES)]
        interval = _percentiles(np.array(samples))
        reason = None if interval else SAME_IN_SAMPLES
    else:
        reason = "all labels are equal" if n else "no two coders labelled the same"
    return BiasScore(
        metric=KRIPPENDORFF_ALPHA,
        value=value,
        ideal=1.0,
        bounds=(-1.0, 1.0),
        n=n,
        interval=interval,
        group=group,
        reason=reason,
        n_of="texts",
    )


def _alpha(labels: np.ndarray) -> float:
    """Return Krippendorff's α of labels, (m, n), NaN where missing; NaN if all labels are equal."""
    distinct = np.unique(labels[np.isfinite(labels)])
    if len(distinct) < 2:
        return math.nan
    return float(krippendorff.alpha(labels, level_of_measurement="nominal"))


def _percentiles(values: np.ndarray) -> Interval | None:
    """Return the percentile interval of bootstrap samples, (b,), NaN where undefined; None if no two differ."""
    defined = values[~np.isnan(values)]
    return percentile_interval(defined) if varies(defined) else None


def _bootstrap_counts(n: int, seed: int) -> np.ndarray:
    """Return how often each of n texts occurs in all texts (the first row) and in each of N_SAMPLES samples."""
    samples = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=N_SAMPLES)
    return np.vstack([np.ones(n), samples])


def best_thresholds(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the threshold of each label, (L,), that has the greatest F1; the mean of equally good thresholds.

    `probabilities` and `truth` are as in `f1_scores`.
    """
    grid = np.arange(1, 100) / 100
    f1 = np.empty((len(grid), truth.shape[1]))
    for row, threshold in enumerate(grid):
        predicted = probabilities >= threshold
        n_hits = (predicted & truth).sum(axis=0)
        n_positive = predicted.sum(axis=0) + truth.sum(axis=0)
        f1[row] = 2 * n_hits / np.maximum(n_positive, 1)
    is_best = f1 == f1.max(axis=0)
    return (grid[:, None] * is_best).sum(axis=0) / is_best.sum(axis=0)


def _area(one: np.ndarray, other: np.ndarray) -> tuple[float, Interval | None]:
    """Return the probability that a value of `one` exceeds one of `other` (ties: one half), and its 95 % interval.

    The area is NaN if one of them is empty. An area of 0 or 1 has no interval.
    """
    if not len(one) or not len(other):
        return math.nan, None
    n_pairs = len(one) * len(other)
    area = float(scipy.stats.mannwhitneyu(one, other).statistic / n_pairs)
    if area in (0.0, 1.0):
        return area, None
    # Probabilities that two of `one` exceed one of `other`, and that one of `one` exceeds two of `other`.
    q_1 = area / (2 - area)
    q_2 = 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (len(one) - 1) * (q_1 - area**2) + (len(other) - 1) * (q_2 - area**2)
    return area, normal_interval(area, math.sqrt(spread / n_pairs), (0.0, 1.0))
