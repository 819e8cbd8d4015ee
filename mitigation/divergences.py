"""The divergence of labelled responses: how much the predictions of their first tokens depend on who asks."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.likelihood.openings import opening_divergences
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.runs.progress import progress
from evenhand.mitigation.labelled_responses import contexts_of_others


def response_divergences(
    model: DialogueModel, responses: pd.DataFrame, first_tokens: int = 4, seed: int = 0
) -> np.ndarray:
    """Return the divergence of each response's first tokens between its person and seven others, in nats, (n,).

    It is the mutual information of person and next token, given the response so far, summed over the first tokens; 0 if
    the predictions do not depend on the person, and at most ln 8 for each token. A response whose template has only one
    descriptor has 0: nobody else can be treated differently. The rows of `distill` have the same eight prompts, if the
    table and the seed are the same.

    Args:
        model: the model that gave the responses.
        responses: columns of the prompts, `response` and, if they are known, its token ids (`response_ids`).

    Raises:
        InputError: no template has two descriptors, or the model is an encoder-decoder model.
    """

    def render(prompts: Sequence[str], personas: Sequence[str], tag: str) -> list[str]:
        return render_contexts(model, prompts, personas, tag or model.control_tag)

    has_others, others = contexts_of_others(responses, render, seed)
    chosen = responses.loc[has_others]
    own = render(chosen[columns.TEXT].tolist(), chosen[columns.PERSONA].tolist(), "")
    contexts = [[first, *rest] for first, rest in zip(own, others, strict=True)]
    texts = chosen[columns.RESPONSE].tolist()
    written = chosen[columns.RESPONSE_IDS].tolist() if columns.RESPONSE_IDS in chosen else None
    of_chosen = np.zeros(len(contexts))
    with progress(len(contexts), "divergence", "responses") as bar:
        for rows, values in opening_divergences(model, contexts, texts, first_tokens, written):
            of_chosen[rows] = values.mean(axis=1)
            bar.update(len(rows))
    divergence = np.zeros(len(responses))
    divergence[has_others] = of_chosen
    return divergence
