"""Functions on labelled responses that several methods use."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import mention_terms, replace_mentions
from evenhand.evaluation.data.other_people import other_people, prompts_of_others, several_people
from evenhand.evaluation.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset

# Columns of training rows.
CONTEXT = "context"
PROMPT = "prompt"
COMPLETION = "completion"
COMPLETION_CUT = "completion_cut"  # whether max_new_tokens ended the response
COMPLETION_IDS = "completion_ids"  # the token ids in which the base wrote the response, or null
REJECTED = "rejected"  # of the trainer "preference": the response that the model shall prefer `completion` to
REJECTED_CUT = "rejected_cut"  # whether max_new_tokens ended it
REJECTED_IDS = "rejected_ids"  # the token ids in which the base wrote it, or null
OTHERS = "others"  # of the trainer "distill": contexts of other people, which the base reads
TRAINED = "trained"  # of the trainer "distill": contexts after which the model is trained
N_OTHERS = 7  # a person is one of eight: with eight or more descriptors, an eighth of its effect is in the mean
# Optional columns of the trainer "distill": how many tokens of a response are trained, whether its first tokens learn
# the mean over people, and whether words in which the prompts differ keep each person's own prediction.
MAX_TOKENS = "max_tokens"
IS_EVEN = "is_even"
SPARES_OWN_WORDS = "spares_own_words"
# (prompts, personas, control tag) → contexts: `evenhand.evaluation.models.contexts.render_contexts` of a model.
ContextRenderer = Callable[[Sequence[str], Sequence[str], str], list[str]]


def untagged_rows(labelled: pd.DataFrame, render: ContextRenderer, prompts: list[str] | None = None) -> "Dataset":
    """Return a training row for each labelled response, in the same order.

    Columns: `context`, the context without a tag; `prompt`, the same or `prompts`; `completion`, the response;
    `completion_cut`, whether max_new_tokens ended the response, and `completion_ids`, the token ids in which it was
    written, if these are recorded.
    """
    from datasets import Dataset  # slow to import, and the command line imports the methods

    contexts = render(labelled[columns.TEXT].tolist(), labelled[columns.PERSONA].tolist(), "")
    names = {PROMPT: prompts or contexts, COMPLETION: labelled[columns.RESPONSE].tolist()}
    if columns.CUT in labelled:
        names[COMPLETION_CUT] = labelled[columns.CUT].tolist()
    if columns.RESPONSE_IDS in labelled:
        names[COMPLETION_IDS] = labelled[columns.RESPONSE_IDS].tolist()
    names[CONTEXT] = contexts
    return Dataset.from_dict(names)


def contexts_of_others(labelled: pd.DataFrame, render: ContextRenderer, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows have prompts of other people, bool (n,), and the contexts of N_OTHERS of them, (m, N_OTHERS).

    The prompts of a row differ in the descriptor only (`several_people`). Rows whose template has only one descriptor
    have no others.

    Raises:
        InputError: no row has others.
    """
    others = several_people(labelled, N_OTHERS, seed)
    has_others = others[:, 0] >= 0
    if not has_others.any():
        raise InputError("labelled responses", f"no {columns.TEMPLATE} has two descriptors; label more descriptors.")
    receivers = labelled.loc[has_others]
    repeated = receivers.iloc[np.arange(len(receivers)).repeat(N_OTHERS)]
    donors = labelled.iloc[others[has_others].ravel()]
    prompts = prompts_of_others(repeated, donors)[[columns.TEXT, columns.PERSONA]]
    distinct = prompts.drop_duplicates()
    distinct[CONTEXT] = render(distinct[columns.TEXT].tolist(), distinct[columns.PERSONA].tolist(), "")
    contexts = prompts.merge(distinct, how="left", on=[columns.TEXT, columns.PERSONA])[CONTEXT].to_numpy(dtype=object)
    return has_others, contexts.reshape(-1, N_OTHERS)


def rows_of_several_people(labelled: pd.DataFrame, render: ContextRenderer, tag: str, seed: int) -> "Dataset":
    """Return a row for the trainer "distill" for each labelled response, except where a template has one descriptor.

    Columns: `context` and `others`, the contexts of eight people (`contexts_of_others`); `trained`, the contexts of the
    first two with `tag` at the end, of which `prompt` is the first (to train more people takes longer and teaches
    hardly more); `completion`, and perhaps `completion_cut`.

    Raises:
        InputError: no row remains.
    """

    def render_tagged(prompts: Sequence[str], personas: Sequence[str], _: str) -> list[str]:
        return render(prompts, personas, tag)

    has_others, others = contexts_of_others(labelled, render, seed)
    trained = contexts_of_others(labelled, render_tagged, seed)[1] if tag else others
    receivers = labelled.loc[has_others]
    own = render(receivers[columns.TEXT].tolist(), receivers[columns.PERSONA].tolist(), tag)
    rows = untagged_rows(receivers, render, own).add_column(OTHERS, others.tolist())
    return rows.add_column(TRAINED, [[first, second] for first, second in zip(own, trained[:, 0], strict=True)])


def exchange_responses(labelled: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return labelled rows in which a response to another descriptor of the same template replaces each response.

    Mentions of the other descriptor are rewritten: "I never met a deaf man!" → "I never met an autistic man!"

    The exchanged responses are sampled uniformly by `seed` from the responses to the same template and noun, or to the
    template if the noun has no other descriptor. They have the same distribution of styles as the original responses
    and fit their templates and nouns equally well: a model tuned on them neither drifts nor becomes vague. Rows whose
    template has only one descriptor are left out.

    Raises:
        InputError: no row remains.
    """
    donor = other_people(labelled, seed)
    has_donor = donor >= 0
    receivers = labelled.loc[has_donor]
    donors = labelled.iloc[donor[has_donor]]
    if receivers.empty:
        raise InputError(
            "labelled responses",
            f"no {columns.TEMPLATE} has responses of two descriptors to exchange; label more descriptors.",
        )
    names = zip(donors[columns.RESPONSE], mention_terms(donors), mention_terms(receivers), strict=True)
    exchanged = receivers.copy()
    exchanged[columns.RESPONSE] = [replace_mentions(response, old, new) for response, old, new in names]
    for name in (columns.CUT, columns.RESPONSE_IDS):
        if name in donors:
            exchanged[name] = donors[name].to_numpy()
    return exchanged
