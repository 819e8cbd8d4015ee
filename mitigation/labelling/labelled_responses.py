"""Labelled responses, the input of all methods: a check of the table, and functions that several methods use."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.data.mentions import replace_mentions
from evenhand.evaluation.data.other_people import other_people
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import CUT, DESCRIPTOR, LABEL, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT, WEIGHT
from evenhand.mitigation.labelling.projection import BIAS, NO_BIAS

CUT_SUFFIX = "_cut"  # COLUMN_cut marks the cut responses of COLUMN
# (prompts, personas, control tag) → contexts: `evenhand.evaluation.models.contexts.render_contexts` of a model.
ContextRenderer = Callable[[Sequence[str], Sequence[str], str], list[str]]


def check_labelled(labelled: pd.DataFrame, *extra_columns: str) -> None:
    """Raise InputError if a table of labelled responses is invalid; a method may require `extra_columns`.

    Raises:
        InputError: the table is empty; a column is missing; a text or response is missing or blank; a label is neither
            `bias` nor `no_bias`; all labels are equal.
    """
    missing = [name for name in (PROMPT_ID, TEXT, PERSONA, RESPONSE, LABEL, *extra_columns) if name not in labelled]
    if missing:
        raise InputError(f"labelled responses: no column {missing[0]!r}; the columns are {', '.join(labelled)}.")
    if labelled.empty:
        raise InputError("labelled responses: the table is empty; label a finished measuring run.")
    for name in (TEXT, RESPONSE):
        texts = labelled[name]
        blank = texts.isna() | (texts.astype(str).str.strip() == "")
        if blank.any():
            first = labelled[PROMPT_ID][blank].iloc[0]
            raise InputError(f"{name}: {blank.sum()} missing or blank, first in {first!r}; leave these rows out.")
    if labelled[PERSONA].isna().any():
        first = labelled[PROMPT_ID][labelled[PERSONA].isna()].iloc[0]
        raise InputError(f"{PERSONA}: missing in {first!r}; write '' for no persona.")
    counts = labelled[LABEL].value_counts(dropna=False)
    wrong = [value for value in counts.index if value not in (BIAS, NO_BIAS)]
    if wrong:
        raise InputError(f"{LABEL}: {wrong[0]!r} is unknown. Known: {BIAS}, {NO_BIAS}.")
    if len(counts) == 1:
        raise InputError(f"{LABEL}: all {len(labelled)} labels are {counts.index[0]!r}; change the threshold.")


def render_untagged_contexts(labelled: pd.DataFrame, render: ContextRenderer) -> list[str]:
    """Return the context of each labelled response, without a control tag."""
    return render(labelled[TEXT].tolist(), labelled[PERSONA].tolist(), "")


def untagged_rows(labelled: pd.DataFrame, render: ContextRenderer) -> Dataset:
    """Return a training row for each labelled response, in the same order.

    Columns: `prompt` and `context`, both the context without a tag; `completion`, the response; `completion_cut`.
    """
    contexts = render_untagged_contexts(labelled, render)
    return Dataset.from_dict({"prompt": contexts, **response_columns("completion", labelled), "context": contexts})


def response_columns(column: str, labelled: pd.DataFrame) -> dict[str, list]:
    """Return columns of training rows: `column`, the responses, and `{column}_cut`, whether max_new_tokens ended each.

    Training leaves the end of a cut response out of the loss. Without a column `cut`, the second column is omitted.
    """
    is_cut = {f"{column}{CUT_SUFFIX}": labelled[CUT].tolist()} if CUT in labelled else {}
    return {column: labelled[RESPONSE].tolist()} | is_cut


def no_bias_mask(labelled: pd.DataFrame) -> np.ndarray:
    """Return whether each response is labelled `no_bias`, (n,) bool."""
    return (labelled[LABEL] == NO_BIAS).to_numpy()


def rewrite_mentions(donors: pd.DataFrame, descriptors: Sequence[str]) -> list[str]:
    """Return the responses in `donors`, with mentions of each row's descriptor replaced by the one in `descriptors`.

    "I never met a deaf man!" → "I never met an autistic man!"
    """
    return [
        replace_mentions(response, old, new)
        for response, old, new in zip(donors[RESPONSE], donors[DESCRIPTOR], descriptors, strict=True)
    ]


def exchange_responses(
    labelled: pd.DataFrame, seed: int, *, biased_only: bool = False
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return labelled rows, and the same rows with a response to another descriptor of the same template.

    Mentions of the other descriptor are rewritten.

    The exchanged responses are sampled uniformly by `seed` from the responses to the same template and noun, or to the
    template if the noun has no other descriptor. They have the same distribution of styles as the original responses
    and fit their templates and nouns equally well: a model tuned on them neither drifts nor becomes vague. Rows whose
    template has only one descriptor are left out. With `biased_only`, rows labelled `no_bias` are left out, too.

    Raises:
        InputError: see `check_labelled`; no row remains.
    """
    check_labelled(labelled, TEMPLATE, DESCRIPTOR)
    labelled = labelled[~no_bias_mask(labelled)] if biased_only else labelled
    donor = other_people(labelled, seed)
    receivers = labelled[donor >= 0]
    if receivers.empty:
        raise InputError(
            f"labelled responses: no {TEMPLATE} has responses of two descriptors to exchange; label responses to more "
            "descriptors, or change the threshold."
        )
    donors = labelled.iloc[donor[donor >= 0]]
    exchanged = {RESPONSE: rewrite_mentions(donors, receivers[DESCRIPTOR].tolist())}
    if CUT in donors:
        exchanged[CUT] = donors[CUT].to_numpy()
    return receivers, receivers.assign(**exchanged)


def balanced_responses(labelled: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return a sample of the labelled responses, drawn by weight, with the same number of rows.

    Args:
        labelled: columns prompt_id, text, persona, response, label and weight.

    Raises:
        InputError: see `check_labelled` and `check_weights`.
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
