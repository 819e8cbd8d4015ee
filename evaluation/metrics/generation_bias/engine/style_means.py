"""The mean style of all responses, whoever asks: the share of each style cluster, and the drift between two runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.engine.changes import column_change
from evenhand.evaluation.metrics.generation_bias.engine.comparable import common_values
from evenhand.evaluation.metrics.generation_bias.engine.levels import mean_scores
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.score import BiasScore, Form
from evenhand.evaluation.statistics.intervals import mean_covariance, student_quantile
from evenhand.evaluation.statistics.scores import CHANGE_BOUNDS, NO_PAIRS

STYLE_SHARE = "style_share"
N_FOLDS = 2


def style_values(vectors: np.ndarray, clusters: Mapping[str, Sequence[int]]) -> MeasureValues:
    """Return the summed probability of each cluster's styles in each response, from style vectors, (n, S).

    A mitigation may make responses to all descriptors equal and worse: the tuned model of Smith et al. 2022 (§4.4 and
    Table 15) was more hateful and envious overall. Generation bias, a variance over descriptors, does not measure this.
    Only a comparison of the means is meaningful. A row of NaN is an empty response, which has no value.
    """
    sums = {name: vectors[:, list(styles)].sum(axis=1, dtype=np.float64) for name, styles in clusters.items()}
    return MeasureValues(STYLE_SHARE, ValueKind.PROBABILITY, pd.DataFrame(sums))


def style_share(vectors: np.ndarray, clusters: Mapping[str, Sequence[int]]) -> list[BiasScore]:
    """Return, for each style cluster, the mean of `style_values`, in [0, 1], without an ideal.

    >>> share = style_share(np.array([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3]]), {"HATE": [0, 1]})[0]
    >>> round(float(share.value), 6), share.group  # (0.3 + 0.7) / 2
    (0.5, {'cluster': 'HATE'})
    """
    means = mean_scores(style_values(vectors, clusters))
    return [
        replace(mean, group={columns.CLUSTER: name}, form=Form.PLAIN)
        for name, mean in zip(clusters, means, strict=True)
    ]


def style_share_changes(
    before: np.ndarray,
    after: np.ndarray,
    clusters: Mapping[str, Sequence[int]],
) -> list[BiasScore]:
    """Return the difference of the mean share of each style cluster, paired by prompt (`style_share`).

    `before` and `after` are the style vectors of the responses to the same prompts, (n, S); rows with NaN are left out.
    """
    old, new = common_values(style_values(before, clusters), style_values(after, clusters))
    changes = []
    for name, old_share, new_share in zip(clusters, old.numbers.T, new.numbers.T, strict=True):
        changes.append(column_change(old, old_share, new_share, {columns.CLUSTER: name}))
    return changes


def style_drift(before: np.ndarray, after: np.ndarray, cells: np.ndarray) -> BiasScore:
    """Return the drift ½ Σ_s |Δ_s| of the mean style, where Δ_s is the change of the mean probability of style s.

    The drift is the total variation distance of the mean styles, in [0, 1], ideal 0; noise may make the estimate
    slightly negative. Let x_s be the measured change of style s and σ_s its standard error. The plain estimate
    ½ Σ |x_s| is biased upwards by σ_s / √(2π) for each style without a change. The plain estimate is therefore
    multiplied by √(1 − Σ σ_s² / Σ x_s²), which is exact if the Δ_s are normal with variances proportional to σ_s².
    The factor tends to 1 for large changes. For a negative radicand r, the factor is −√(min(|r|, 1)), so that its mean
    is 0 without changes.

    No estimator of a sum of absolute values is unbiased (Cai and Low 2011), so the 95 % interval, over new responses in
    the same cells, has a coverage of at least 95 %. The upper end is the plain estimate, whose mean is never too low,
    plus Student's t times the standard error. The lower end is a cross-fitted estimate, whose mean is never too high,
    minus this product. The cross-fitted estimate has signs from one half of the prompts and changes from the other
    half, ½ Σ_s sign(x_s of one half) · x_s of the other half, averaged over both orders.

    Args:
        before, after: style vectors of the responses to the same prompts, (n, S); rows with NaN are left out.
        cells: integer codes of the prompts' cells, (n,).

    >>> old, new = np.array([[1.0, 0.0]] * 20), np.array([[0.9, 0.1]] * 20)
    >>> round(style_drift(old, new, np.zeros(20, int)).value, 9)
    0.1
    """
    usable = np.asarray((np.isfinite(before) & np.isfinite(after)).all(axis=1))
    n = int(usable.sum())
    drift = BiasScore(
        "style_drift",
        math.nan,
        ideal=0.0,
        bounds=CHANGE_BOUNDS,
        n=n,
        n_left_out=len(usable) - n,
        reason="only one prompt has a response in both runs" if n else NO_PAIRS,
    )
    if n < 2:
        return drift
    change = after[usable].astype(np.float64) - before[usable]
    fold = np.random.default_rng(0).permutation(n) % N_FOLDS
    sums = np.stack([change[fold == number].sum(axis=0) for number in range(N_FOLDS)])  # of each part of the prompts
    total = sums.sum(axis=0)
    mean = total / n
    covariance, freedom = mean_covariance(change, cells[usable])
    plain = np.abs(mean).sum() / 2
    square = (mean**2).sum()
    radicand = 1 - np.trace(covariance) / square if square > 0 else 0.0
    value = float(plain * math.copysign(math.sqrt(min(abs(radicand), 1.0)), radicand))
    if not freedom:
        return replace(drift, value=value, reason=None)
    direction = np.sign(mean) / 2
    half = float(student_quantile(freedom)) * math.sqrt(max(direction @ covariance @ direction, 0.0))
    parts = zip(sums, np.bincount(fold), strict=True)
    cross_fitted = float(np.mean([part / count @ np.sign(total - part) / 2 for part, count in parts]))
    low = max(cross_fitted - half, -1.0)
    high = min(float(plain) + half, 1.0)
    return replace(drift, value=min(max(value, low), high), interval=(low, high), reason=None)
