"""Labels: bias values → a threshold → `bias` or `no_bias`, and which responses not to teach (paper 002, C.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.costs.text_quality import repeats_prompt
from evenhand.evaluation.results import (
    BIAS_VALUE,
    DESCRIPTOR,
    LABEL,
    PERSONA,
    PROMPT_ID,
    RESPONSE,
    TEMPLATE,
    TEXT,
)
from evenhand.evaluation.statistics.cells import codes
from evenhand.mitigation.labelling.projection import BIAS, assign_labels, bias_values


@dataclass(frozen=True)
class Threshold:
    """The threshold that responses were labelled by: those with b > `beta` are `bias`, `share_labelled_bias` of all."""

    alpha: int
    beta: float
    quantile: float
    cross_fitted: bool
    share_labelled_bias: float


def label_responses(
    prompts: pd.DataFrame,
    responses: Sequence[str],
    vectors: np.ndarray,
    *,
    alpha: int = 0,
    beta: float | None = None,
    quantile: float = 0.9,
    cross_fitted: bool = False,
) -> tuple[pd.DataFrame, Threshold]:
    """Label each response by its bias value: above β, or above that quantile of all where β is None (paper 002, C.1).

    Args:
        prompts: columns prompt_id, descriptor, persona, text and template; one row per response.
        vectors: style vectors of the responses, (n, S), finite.
        alpha, cross_fitted: see `bias_values`.

    Returns:
        prompt_id, descriptor, persona, text, response, bias_value and label, in the order of the prompts; the
        threshold.

    Raises:
        InputError: alpha is none of 0, 1, 2; all or none of the responses are above the threshold.

    Descriptor a is mostly answered in the first style, b always in the second: m̄ = (⅜, ⅝), the direction of a is
    (⅜, −⅜), so that b = ¹⁵⁄₃₂ for its first style and −⁹⁄₃₂ for the other.

    >>> prompts = pd.DataFrame({"prompt_id": list("12345678"), "descriptor": list("aaaabbbb"), "persona": ""})
    >>> prompts = prompts.assign(text="hi", template="t")
    >>> vectors = np.eye(2)[[0, 0, 0, 1, 1, 1, 1, 1]]
    >>> labelled, threshold = label_responses(prompts, ["x"] * 8, vectors, beta=0.4)
    >>> labelled["bias_value"].tolist()[:4], labelled["label"].tolist()[:4]
    ([0.46875, 0.46875, 0.46875, -0.28125], ['bias', 'bias', 'bias', 'no_bias'])
    """
    b = bias_values(vectors, codes(prompts[TEMPLATE]), codes(prompts[DESCRIPTOR]), alpha, cross_fitted=cross_fitted)
    threshold = choose_threshold(b, alpha, beta, quantile, cross_fitted=cross_fitted)
    return add_labels(prompts.assign(**{RESPONSE: list(responses)}), b, threshold), threshold


def choose_threshold(
    b: np.ndarray, alpha: int, beta: float | None = None, quantile: float = 0.9, *, cross_fitted: bool = False
) -> Threshold:
    """Return the threshold for (n,) bias values: β, or that quantile of all where β is None.

    Raises:
        InputError: all or none of them are above it.
    """
    threshold = float(np.quantile(b, quantile)) if beta is None else beta
    share = float((b > threshold).mean())
    if share in (0.0, 1.0):
        raise InputError(
            f"beta: {threshold} labels {share:.0%} of the responses {BIAS!r}; "
            f"give a number between {b.min():.3g} and {b.max():.3g}, or a quantile."
        )
    return Threshold(alpha, threshold, quantile if beta is None else 1 - share, cross_fitted, share)


def add_labels(rows: pd.DataFrame, b: np.ndarray, threshold: Threshold) -> pd.DataFrame:
    """Return rows, with the columns of prompts and the response, as `label_responses` does, of their bias values."""
    columns = rows[[PROMPT_ID, DESCRIPTOR, PERSONA, TEXT, RESPONSE]]
    return columns.assign(**{BIAS_VALUE: b, LABEL: assign_labels(b, threshold.beta)})


def exclusion_mask(
    labelled: pd.DataFrame,
    vectors: np.ndarray,
    *,
    parrots: bool = False,
    clusters: Sequence[Sequence[int]] = (),
    above: float = 0.5,
) -> np.ndarray:
    """Return which responses must not be taught, whatever their label, (n,) bool: parrots, those in a style cluster.

    Paper 002, C.2.1, found more of both after tuning. What is `bias` for one descriptor is taught to others by some
    methods (`exchange`, `dpo`, `kto`).

    Args:
        labelled: columns text and response, see `label_responses`; vectors: their style vectors, (n, S).
        parrots: exclude responses that repeat their prompt.
        clusters: exclude responses in these style clusters, each given by the columns of its styles.
        above: a response is in a cluster if the summed probability of its styles is larger.
    """
    found = np.zeros(len(labelled), dtype=bool)
    if parrots:
        found |= np.array(list(map(repeats_prompt, labelled[RESPONSE], labelled[TEXT])), dtype=bool)
    for columns in clusters:
        found |= vectors[:, list(columns)].sum(axis=1) > above
    return found
