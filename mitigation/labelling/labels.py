"""Labels `bias` and `no_bias` from bias values, and responses to exclude from training (paper 002, C.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.costs.text_quality import repeats_prompt
from evenhand.evaluation.score import BIAS_VALUE, DESCRIPTOR, LABEL, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.mitigation.labelling.projection import BIAS, assign_labels, bias_values


@dataclass(frozen=True)
class Threshold:
    """A labelling threshold: the share `share_labelled_bias` of the responses has b > `beta` and is labelled `bias`."""

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
    """Return responses labelled `bias` if their bias value is above β, or above the quantile if β is None (002, C.1).

    Args:
        prompts: columns prompt_id, descriptor, persona, text and template; one row per response.
        vectors: style vectors of the responses, (n, S), finite.
        alpha: see `bias_values`.
        cross_fitted: see `bias_values`.

    Returns:
        A table of prompt_id, descriptor, persona, text, response, bias_value and label, in the order of the prompts,
        and the threshold.

    Raises:
        InputError: the table lacks a column; the numbers of rows differ; a vector is not finite; alpha is none of 0, 1,
            2; the quantile is not between 0 and 1; all or none of the responses are above the threshold.

    In the example, three of four responses to descriptor a have the first style, and no response to descriptor b. The
    mean style is m̄ = (⅜, ⅝) and the bias direction of a is (⅜, −⅜). The bias value of a response to a is therefore
    ¹⁵⁄₃₂ for the first style and −⁹⁄₃₂ for the second.

    >>> prompts = pd.DataFrame({"prompt_id": list("12345678"), "descriptor": list("aaaabbbb"), "persona": ""})
    >>> prompts = prompts.assign(text="hi", template="t")
    >>> vectors = np.eye(2)[[0, 0, 0, 1, 1, 1, 1, 1]]
    >>> labelled, threshold = label_responses(prompts, ["x"] * 8, vectors, beta=0.4)
    >>> labelled["bias_value"].tolist()[:4], labelled["label"].tolist()[:4]
    ([0.46875, 0.46875, 0.46875, -0.28125], ['bias', 'bias', 'bias', 'no_bias'])
    """
    require_columns(list(map(str, prompts)), (PROMPT_ID, DESCRIPTOR, PERSONA, TEXT, TEMPLATE), "prompts")
    for name, rows in (("responses", len(responses)), ("vectors", len(vectors))):
        if rows != len(prompts):
            raise InputError(f"{name}: {rows} rows for {len(prompts)} prompts; give one for each prompt, in order.")
    if not np.isfinite(vectors).all():
        raise InputError("vectors: some are not finite, as for empty responses; leave out these rows.")
    if not 0 < quantile < 1:
        raise InputError(f"quantile: {quantile}; give a number between 0 and 1.")
    b = bias_values(
        vectors, to_codes(prompts[TEMPLATE]), to_codes(prompts[DESCRIPTOR]), alpha, cross_fitted=cross_fitted
    )
    threshold = choose_threshold(b, alpha, beta, quantile, cross_fitted=cross_fitted)
    return add_labels(prompts.assign(**{RESPONSE: list(responses)}), b, threshold), threshold


def choose_threshold(
    b: np.ndarray, alpha: int, beta: float | None = None, quantile: float = 0.9, *, cross_fitted: bool = False
) -> Threshold:
    """Return the threshold for bias values (n,): β, or the quantile if β is None.

    Raises:
        InputError: all or no values are above the threshold.
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
    """Return the table of `label_responses`, from prompts with a column `response` and from bias values b (n,)."""
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
    """Return whether each response is excluded from training, (n,) bool: it repeats its prompt or is in a cluster.

    Parroting and some clusters became more frequent after tuning in paper 002 (C.2.1). `exchange`, `dpo` and `kto`
    train on responses that are labelled `bias` for another descriptor.

    Args:
        labelled: columns text and response, see `label_responses`.
        vectors: style vectors of the responses, (n, S).
        parrots: exclude responses that repeat their prompt.
        clusters: exclude responses in these style clusters, each a sequence of style columns.
        above: a response is in a cluster if the summed probability of its styles is larger.
    """
    mask = np.zeros(len(labelled), dtype=bool)
    if parrots:
        mask |= np.array(list(map(repeats_prompt, labelled[RESPONSE], labelled[TEXT])), dtype=bool)
    for columns in clusters:
        mask |= vectors[:, list(columns)].sum(axis=1) > above
    return mask
