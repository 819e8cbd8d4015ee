"""Responses to prompts by a dialogue model, and likelihoods of responses under a model."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.costs.relevance import other_prompts
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.generation import generate_responses, prompt_seed
from evenhand.evaluation.models.likelihood.perplexity import response_log_likelihoods, response_perplexity
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.progress import progress
from evenhand.evaluation.score import CUT, LEFT_OUT, PERSONA, PROMPT_ID, RESPONSE, TEXT
from evenhand.evaluation.store import Store


def respond(
    model: DialogueModel,
    prompts: pd.DataFrame,
    tag: str,
    arguments: Mapping[str, Any],
    *,
    seed: int,
    batch_size: int,
    run: Store | None = None,
) -> pd.DataFrame:
    """Return one response per prompt: prompt_id, response, the reason for leaving it out, and whether it was cut.

    With a run, finished batches are saved, so that a killed run can resume. Without a run, nothing is saved and no
    progress is displayed.

    Args:
        tag: control tag, appended to each context.
        arguments: keyword arguments of `generate`.
        seed: number from which, with the prompt's id, the seed of each response is computed.
    """
    contexts = render_contexts(model, prompts[TEXT].tolist(), prompts[PERSONA].tolist(), tag)
    seeds = [prompt_seed(prompt_id, seed) for prompt_id in prompts[PROMPT_ID]]
    if run is None:
        batches = generate_responses(model, contexts, seeds, arguments, batch_size=batch_size)
        responses = sorted(response for batch in batches for response in zip(*batch, strict=True))
        return response_table(prompts, [text for _, text, _ in responses]).assign(
            **{CUT: [is_cut for _, _, is_cut in responses]}
        )
    compute = partial(generate_responses, model, decoding=arguments, batch_size=batch_size)
    table = run.rows("responses", [RESPONSE, CUT], compute, contexts, seeds, unit="responses")
    return response_table(prompts, table[RESPONSE]).assign(**{CUT: table[CUT].to_numpy()})


def response_table(prompts: pd.DataFrame, texts: Sequence[str | None]) -> pd.DataFrame:
    """Return a table of prompt_id, response, and the reason why the response is left out or None.

    A text None stands for reasoning that did not end: the table has an empty response and this reason.
    """
    texts = [text if isinstance(text, str) else None for text in texts]  # Parquet may return NaN for None
    left_out = [UNFINISHED_REASONING if text is None else None for text in texts]
    responses = [text or "" for text in texts]
    return pd.DataFrame({PROMPT_ID: prompts[PROMPT_ID], RESPONSE: responses, LEFT_OUT: left_out})


def check_repeated_prompts(prompts: pd.DataFrame, arguments: Mapping[str, Any], config: MeasureConfig) -> None:
    """Raise InputError if decoding is deterministic and a prompts file repeats a prompt.

    The same response would count several times. Prompts that `sample_cells` repeats are allowed, because the contexts
    of a cell are independent draws.
    """
    repeated = int(prompts.duplicated([TEXT, PERSONA]).sum())
    if repeated and config.prompts.file and not arguments.get("do_sample"):
        raise InputError(
            f"decoding: {config.decoding.preset!r} gives a context the same response every time, and {repeated} of "
            f"{len(prompts)} prompts of {config.prompts.file} are repeated; sample, or write 1 as `repeats` and "
            "a persona for each."
        )


def check_nonempty(responses: Sequence[str]) -> None:
    """Raise InputError if no response has any text."""
    if not any(response.strip() for response in responses):
        raise InputError(
            f"responses: all {len(responses)} are empty or end within the model's reasoning; check the model, its tag "
            "and decoding.arguments: a reasoning model needs a larger max_new_tokens."
        )


def response_likelihoods(model: DialogueModel, pairs: pd.DataFrame, tag: str) -> pd.DataFrame:
    """Return dialogue pairs (text, response) with each response's log_likelihood, in nats, and number of tokens."""
    contexts = render_contexts(model, pairs[TEXT].tolist(), [""] * len(pairs), tag)
    with progress(len(pairs), "perplexity", "dialogues") as advance:
        log_likelihood, tokens = response_perplexity(model, contexts, pairs[RESPONSE].tolist(), on_progress=advance)
    return pairs.assign(log_likelihood=log_likelihood, tokens=tokens)


def likelihoods_of_responses(
    run: Store | None,
    name: str,
    model: DialogueModel,
    prompts: pd.DataFrame,
    responses: Sequence[str],
    tag: str,
    is_drawn: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return the log-likelihood of each response after its prompt and after another prompt; save finished batches.

    The other prompt has the same descriptor and another template (`other_prompts`); the persona is the same. Columns:
    prompt_id, other_prompt_id (null if no other prompt exists), log_likelihood and other_log_likelihood (nats; NaN if
    the prompt does not exist, or if prompt and response are too long for the model), tokens (number of tokens of the
    response with its end-of-sequence token).

    Args:
        run: saves the batches under `name`; None: nothing is saved.
        model: the model under which likelihoods are computed.
        tag: the model's control tag, appended to each context.
        is_drawn: the prompts whose responses are scored, (n,) bool; the table has only their rows. None: all prompts.
    """
    drawn = np.arange(len(prompts)) if is_drawn is None else np.flatnonzero(is_drawn)
    other = other_prompts(prompts)[drawn]
    with_other = other >= 0
    texts, personas = prompts[TEXT].to_numpy(), prompts[PERSONA].to_numpy()[drawn]
    contexts = render_contexts(
        model, [*texts[drawn], *texts[other[with_other]]], [*personas, *personas[with_other]], tag
    )
    scored = [responses[row] for row in drawn]
    continuations = [*scored, *(scored[row] for row in np.flatnonzero(with_other))]
    if run is None:
        batches = response_log_likelihoods(model, contexts, continuations)
        scores = sorted(score for batch in batches for score in zip(*batch, strict=True))
        table = pd.DataFrame(scores, columns=["row", "log_likelihood", "tokens"])
    else:
        compute = partial(response_log_likelihoods, model)
        table = run.rows(name, ["log_likelihood", "tokens"], compute, contexts, continuations, unit="likelihoods")
    n, other_log_likelihood = len(drawn), np.full(len(drawn), np.nan)
    other_log_likelihood[with_other] = table["log_likelihood"].to_numpy()[n:]
    ids = prompts[PROMPT_ID].to_numpy(dtype=object)
    return pd.DataFrame(
        {
            PROMPT_ID: ids[drawn],
            "other_prompt_id": np.where(with_other, ids[other], None),
            "log_likelihood": table["log_likelihood"].to_numpy()[:n],
            "other_log_likelihood": other_log_likelihood,
            "tokens": table["tokens"].to_numpy()[:n],
        }
    )
