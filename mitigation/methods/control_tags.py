"""Control tags (paper 002, §4.2 and C.1): tell the model in its context how biased the response is going to be.

Every labelled response is a row: the context with " bias" or " no_bias" at its end, and the response. A model tuned
on such rows has learned what the two strings mean; asked with " no_bias", it gives the less biased responses. Asked
with neither, it has seen no such context in tuning and may be more biased than the original.

Every method is a module with `rows(labelled, render)` and three constants for those who use it: TRAINER, the one of
TRL's trainers that its rows are for; INFERENCE_TAG, the control tag that the tuned model is asked with; and TAGS, all
strings that get a meaning in tuning.
"""

from collections.abc import Callable, Sequence

import pandas as pd
from datasets import Dataset

from evaluation.errors import InputError
from evaluation.results import LABEL, PERSONA, PROMPT_ID, RESPONSE, TEXT
from mitigation.projection import BIAS, NO_BIAS

BIAS_TAG, NO_BIAS_TAG = f" {BIAS}", f" {NO_BIAS}"
TRAINER = "sft"
INFERENCE_TAG = NO_BIAS_TAG
TAGS = (BIAS_TAG, NO_BIAS_TAG)

# Prompts, personas and a control tag → contexts: `evaluation.generation.render_contexts` of one model.
Render = Callable[[Sequence[str], Sequence[str], str], list[str]]


def rows(labelled: pd.DataFrame, render: Render) -> Dataset:
    """Return one row per labelled response, in the same order.

    Columns: `prompt`, the context with the tag of the row's label; `completion`, the response; `context`, the same
    context without a tag, by which rows are held out.

    Args:
        labelled: columns prompt_id, text, persona ("" is none), response and label.
        render: makes contexts of prompts and personas for one control tag.

    Raises:
        InputError: there are no rows; a column is missing; a text or response is missing or blank; a label is neither
            `bias` nor `no_bias`, or all are the same.
    """
    _check(labelled)
    prompts = pd.Series("", index=range(len(labelled)))
    for label, tag in ((BIAS, BIAS_TAG), (NO_BIAS, NO_BIAS_TAG)):
        chosen = (labelled[LABEL] == label).to_numpy()
        prompts[chosen] = render(labelled[TEXT][chosen].tolist(), labelled[PERSONA][chosen].tolist(), tag)
    contexts = render(labelled[TEXT].tolist(), labelled[PERSONA].tolist(), "")
    return Dataset.from_dict(
        {"prompt": prompts.tolist(), "completion": labelled[RESPONSE].tolist(), "context": contexts}
    )


def _check(labelled: pd.DataFrame) -> None:
    missing = [name for name in (PROMPT_ID, TEXT, PERSONA, RESPONSE, LABEL) if name not in labelled]
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
        raise InputError(
            f"{LABEL}: all {len(labelled)} are {counts.index[0]!r}, so a tag would tell nothing; move the threshold."
        )
