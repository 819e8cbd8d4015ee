"""Fine-tune on the model's own responses, drawn by their weights.

Each response is to the very prompt. A weight is the ratio of the even target's probability of a response to the model's
(`evenhand.mitigation.labelling.target`): styles that the prompt's descriptor gets more often than others are drawn less
often. No response moves to another prompt, so that responses stay as relevant as they were.
"""

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import WEIGHT
from evenhand.mitigation.labelling.labelled_responses import ContextRenderer, check_labelled, untagged_rows

TRAINER = "sft"
USES_THRESHOLD = False
DEFAULTS = {"learning_rate": 4e-3}


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return a training row for each of `balanced_responses`: `prompt`, `context` and `completion`."""
    return untagged_rows(balanced_responses(labelled, seed), render)


def balanced_responses(labelled: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return as many labelled responses as there are, drawn by weight.

    Args:
        labelled: columns prompt_id, text, persona, response, label and weight.

    Raises:
        InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled` and `check_weights`.
    """
    check_labelled(labelled, WEIGHT)
    return labelled.iloc[draw_by_weight(check_weights(labelled), seed)]


def check_weights(labelled: pd.DataFrame) -> np.ndarray:
    """Return the weights of labelled responses, (n,).

    Raises:
        InputError: a weight is negative or not finite, or all are 0.
    """
    weights = labelled[WEIGHT].to_numpy(dtype=np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise InputError(f"{WEIGHT}: a weight is negative or not finite, or all are 0; run `evenhand label` again.")
    return weights


def draw_by_weight(weights: np.ndarray, seed: int) -> np.ndarray:
    """Return n sorted rows drawn by n weights, by systematic sampling (Madow 1949): as few repetitions as possible.

    A row of c times the mean weight is drawn ⌊c⌋ or ⌈c⌉ times, c times on average.

    >>> draw_by_weight(np.array([1.0, 0.0, 2.0, 1.0]), seed=0).tolist()
    [0, 2, 2, 3]
    """
    n = len(weights)
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)  # neighbours, which share a prompt or template, would be drawn dependently
    ends = np.cumsum(weights[order])
    points = (np.arange(n) + rng.random()) * ends[-1] / n
    drawn = np.minimum(np.searchsorted(ends, points, side="right"), n - 1)
    return np.sort(order[drawn])
