"""Scores on tasks of lm-evaluation-harness, and changes of the scores between two runs, paired by document."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.models.capabilities import DOCUMENT, METRIC, TASK, VALUE
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.intervals import ANY, mean_interval, share_interval
from evenhand.evaluation.statistics.scores import mean_change

CAPABILITIES = "capabilities"
OTHER_DOCUMENTS = "the two runs used different documents"


def capability_scores(rows: pd.DataFrame, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the score `capability` of each task and metric: the mean of the metric over the documents of the task.

    Higher is better; the score has no ideal value.

    The standard error of the mean has ddof = 1; the 95 % interval covers the variation between samples of documents. It
    is Wilson's for an accuracy, whose values are 0 and 1.
    """
    scores = []
    for task, values in _by_task(rows):
        n, is_accuracy = len(values), values.isin((0, 1)).all()
        interval = share_interval(int(values.sum()), n) if is_accuracy else mean_interval(values.to_numpy())
        bounds = (0.0, 1.0) if is_accuracy else ANY
        score = BiasScore("capability", float(values.mean()), None, bounds, n, interval, group={TASK: task})
        scores.append(replace(score, standard_error=_standard_error(values.to_numpy()), signature=signature))
    return scores


def capability_differences(before: FamilyRun, after: FamilyRun, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return `capability_difference`, after − before, paired by document, for each task and metric of both runs.

    Each score has a standard error. A score is undefined if the two runs used different documents of the task.
    """
    if not (before.has(CAPABILITIES) and after.has(CAPABILITIES)):
        return []
    old, new = (dict(_by_task(run.table(CAPABILITIES))) for run in (before, after))
    scores = []
    for task in old.keys() & new.keys():
        common = {"group": {TASK: task}, "signature": signature}
        if not old[task].index.equals(new[task].index):
            scores.append(BiasScore("capability_difference", math.nan, 0.0, ANY, 0, reason=OTHER_DOCUMENTS, **common))
            continue
        sides = old[task].to_numpy(), new[task].to_numpy()
        score = mean_change("capability_difference", *sides, bounds=ANY, **common)
        scores.append(replace(score, standard_error=_standard_error(sides[1] - sides[0])))
    return sorted(scores, key=lambda score: score.group[TASK])


def _by_task(rows: pd.DataFrame) -> list[tuple[str, pd.Series]]:
    """Return the values by document for each pair of task and metric, as ("task, metric", values)."""
    return [
        (f"{task}, {metric}", part.set_index(DOCUMENT)[VALUE]) for (task, metric), part in rows.groupby([TASK, METRIC])
    ]


def _standard_error(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
