"""How often a classifier is right, with intervals."""

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
    """Return accuracy, recall of each label, and for each label the area under the ROC curve, in [0, 1], ideal 1.

    Intervals: Wilson's for shares; that of Hanley and McNeil (1982) for areas.

    Args:
        probabilities: of each label, (n, L). truth: the index of each text's label, (n,). names: of the labels, (L,).
    """
    found = probabilities.argmax(axis=1)
    common = {"ideal": 1.0, "bounds": (0.0, 1.0), "signature": signature}

    of_share = {"ideal": 1.0, "reason": "no text held out has this label", "signature": signature}
    scores = [share_score("accuracy", found == truth, **of_share)]
    for label, name in enumerate(names):
        scores.append(share_score("recall", found[truth == label] == label, group={"label": name}, **of_share))
    # Of two labels one area says all.
    for label in range(len(names) if len(names) > 2 else 1):
        one, other = (probabilities[chosen, label] for chosen in (truth == label, truth != label))
        area, interval = _area(one, other)
        reason = None if math.isfinite(area) else "no text held out has this label, or all have"
        name = names[label] if len(names) > 2 else " or ".join(names)
        group = {"label": name}
        scores.append(BiasScore("roc_auc", area, n=len(truth), interval=interval, group=group, reason=reason, **common))
    return scores


def _area(one: np.ndarray, other: np.ndarray) -> tuple[float, tuple[float, float] | None]:
    """Return P(a number of `one` is above one of `other`), ties counting half, and its 95 % interval."""
    if not len(one) or not len(other):
        return math.nan, None
    area = float(stats.mannwhitneyu(one, other).statistic / (len(one) * len(other)))
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (len(one) - 1) * (q1 - area**2) + (len(other) - 1) * (q2 - area**2)
    return area, normal_interval(area, math.sqrt(spread / (len(one) * len(other))), (0.0, 1.0))
