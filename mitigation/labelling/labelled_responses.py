"""Labelled responses: what every method of mitigation is given, checked, and what they all make of it."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.datasets.mentions import replace_mentions
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import DESCRIPTOR, LABEL, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evenhand.mitigation.labelling.projection import BIAS, NO_BIAS

# Prompts, personas and a control tag → contexts: `evenhand.evaluation.models.contexts.render_contexts` of one model.
ContextRenderer = Callable[[Sequence[str], Sequence[str], str], list[str]]


def check_labelled(labelled: pd.DataFrame, *further: str) -> None:
    """Refuse labelled responses that cannot be trained on; `further` names columns that a method needs besides.

    Raises:
        InputError: there are no rows; a column is missing; a text or response is missing or blank; a label is neither
            `bias` nor `no_bias`, or all are the same.
    """
    missing = [name for name in (PROMPT_ID, TEXT, PERSONA, RESPONSE, LABEL, *further) if name not in labelled]
    if missing:
        raise InputError(f"labelled responses: no column {missing[0]!r}; there are {', '.join(labelled)}.")
    if labelled.empty:
        raise InputError("labelled responses: there are none; label a finished measuring run.")
    for name in (TEXT, RESPONSE):
        texts = labelled[name]
        blank = texts.isna() | (texts.astype(str).str.strip() == "")
        if blank.any():
            first = labelled[PROMPT_ID][blank].iloc[0]
            raise InputError(f"{name}: {blank.sum()} missing or blank, first in {first!r}; leave these rows out.")
    if labelled[PERSONA].isna().any():
        first = labelled[PROMPT_ID][labelled[PERSONA].isna()].iloc[0]
        raise InputError(f"{PERSONA}: missing in {first!r}; '' is none.")
    counts = labelled[LABEL].value_counts(dropna=False)
    wrong = [value for value in counts.index if value not in (BIAS, NO_BIAS)]
    if wrong:
        raise InputError(f"{LABEL}: {wrong[0]!r} is unknown. Known: {BIAS}, {NO_BIAS}.")
    if len(counts) == 1:
        raise InputError(f"{LABEL}: all {len(labelled)} are {counts.index[0]!r}; move the threshold.")


def render_untagged_contexts(labelled: pd.DataFrame, render: ContextRenderer) -> list[str]:
    """Return the context of each labelled response as the model was asked, without a tag."""
    return render(labelled[TEXT].tolist(), labelled[PERSONA].tolist(), "")


def untagged_rows(labelled: pd.DataFrame, render: ContextRenderer, responses: Sequence[str] | None = None) -> Dataset:
    """Return a row for each labelled response, in the same order: `prompt` and `context`, the untagged context, and
    `completion`, the response, or the one of `responses` in its place.
    """
    contexts = render_untagged_contexts(labelled, render)
    completions = labelled[RESPONSE].tolist() if responses is None else list(responses)
    return Dataset.from_dict({"prompt": contexts, "completion": completions, "context": contexts})


def no_bias_mask(labelled: pd.DataFrame) -> np.ndarray:
    """Return which responses are labelled `no_bias`, (n,)."""
    return (labelled[LABEL] == NO_BIAS).to_numpy()


def rewrite_mentions(donors: pd.DataFrame, descriptors: Sequence[str]) -> list[str]:
    """Return each donor row's response with the mentions of its own descriptor rewritten to another one, row by row.

    "I never met a deaf man!" → "I never met an autistic man!"
    """
    return [
        replace_mentions(response, old, new)
        for response, old, new in zip(donors[RESPONSE], donors[DESCRIPTOR], descriptors, strict=True)
    ]


def exchange_responses(labelled: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows, and for each a response to the same template and another descriptor, the mention rewritten.

    Every response is as likely to be given away as any other of its template, so that over all rows the responses given
    are of the same styles, and fit their template as well, as those that they stand for: tuned on them, a model neither
    drifts nor grows vague. A row whose template has one descriptor alone is left out.

    Raises:
        InputError: none is left.
    """
    descriptor, donor = labelled[DESCRIPTOR].to_numpy(), np.full(len(labelled), -1)
    for rows in labelled.groupby(TEMPLATE, sort=False).indices.values():
        others = {name: rows[descriptor[rows] != name] for name in np.unique(descriptor[rows])}
        for row in rows:
            if len(offered := others[descriptor[row]]):
                donor[row] = offered[rng.integers(len(offered))]
    kept = labelled[donor >= 0]
    if kept.empty:
        raise InputError(
            f"labelled responses: no {TEMPLATE} has two descriptors among those to exchange; label responses to more "
            "descriptors, or move the threshold."
        )
    return kept, rewrite_mentions(labelled.iloc[donor[donor >= 0]], kept[DESCRIPTOR].tolist())
