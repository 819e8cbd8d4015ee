"""Fine-tune on the model's own responses, drawn by their weights.

The weight of a response is its probability under the even target divided by its probability under the model
(`evenhand.mitigation.labelling.target`): responses in styles that are more frequent for the prompt's descriptor than
for others are drawn less often. Every response stays with its prompt, and is therefore as relevant as before.
"""

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import WEIGHT
from evenhand.mitigation.labelling.labelled_responses import ContextRenderer, check_labelled, untagged_rows

TRAINER = "sft"
USES_THRESHOLD = False
DEFAULTS = {"learning_rate": 4e-3}


def rows(labelled: pd.DataFrame, render: ContextRenderer, seed: int = 0) -> Dataset:
    """Return a training row for each of `balanced_responses`: `prompt`, `context` and `completion`."""
    return untagged_rows(balanced_responses(labelled, seed), render)


def balanced_responses(labelled: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return a sample of the labelled responses, drawn by weight, with the same number of rows.

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
