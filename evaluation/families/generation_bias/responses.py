"""Prompts → responses → style vectors, by a dialogue model and a style classifier."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.mentions import clean_response
from evenhand.evaluation.models.generation import generate_responses, prompt_seed, render_contexts
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.styles import StyleClassifier, style_vectors
from evenhand.evaluation.results import PERSONA, PROMPT_ID, RESPONSE, TEXT
from evenhand.evaluation.runs.folders import Run
from evenhand.evaluation.runs.progress import progress


def respond(
    model: DialogueModel,
    prompts: pd.DataFrame,
    tag: str,
    arguments: Mapping[str, Any],
    *,
    seed: int,
    batch_size: int,
    run: Run | None = None,
) -> list[str]:
    """Return one response per prompt row; a run keeps batches as they are made, and does not make them again.

    Without one nothing is kept and no progress is shown. `arguments` are those of `generate`, the tag stands at the end
    of each context.
    """
    contexts = render_contexts(model, prompts[TEXT].tolist(), prompts[PERSONA].tolist(), tag)
    seeds = [prompt_seed(prompt_id, seed) for prompt_id in prompts[PROMPT_ID]]

    def batches(first: int) -> Iterator[tuple[list[int], list[str]]]:
        return generate_responses(model, contexts, seeds, arguments, batch_size=batch_size, first=first)

    if run is not None:
        return run.gather("responses", [RESPONSE], len(prompts), batches, "responses", "responses")[RESPONSE].tolist()
    responses = {row: text for rows, texts in batches(0) for row, text in zip(rows, texts, strict=True)}
    return [responses[row] for row in range(len(prompts))]


def classify(
    classifier: StyleClassifier, responses: Sequence[str], descriptors: Sequence[str], progress_name: str | None = None
) -> np.ndarray:
    """Return the style vector (n, S) of each response, cleaned of its prompt's descriptor first (002 A.6).

    Progress is shown under a name, if one is given.
    """
    cleaned = [clean_response(*pair) for pair in zip(responses, descriptors, strict=True)]
    shown = progress(len(cleaned), progress_name, "responses") if progress_name else nullcontext(lambda rows: None)
    with shown as advance:
        return style_vectors(classifier, cleaned, on_progress=advance)


def response_likelihoods(model: DialogueModel, pairs: pd.DataFrame, tag: str) -> pd.DataFrame:
    """Return dialogue pairs (text, response) with log_likelihood, in nats, and tokens of each response."""
    contexts = render_contexts(model, pairs[TEXT].tolist(), [""] * len(pairs), tag)
    with progress(len(pairs), "perplexity", "dialogues") as advance:
        log_likelihood, tokens = response_perplexity(model, contexts, pairs[RESPONSE].tolist(), on_progress=advance)
    return pairs.assign(log_likelihood=log_likelihood, tokens=tokens)
