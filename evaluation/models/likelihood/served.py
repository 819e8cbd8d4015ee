"""Log-likelihoods of sentences from a completions server that returns log-probabilities of prompt tokens.

Requests contain token ids, so that the server reads the same start token, context and sentence as a loaded model.
lm-evaluation-harness uses OpenAI's `echo` with `logprobs` too (github.com/EleutherAI/lm-evaluation-harness,
`local-completions`); `prompt_logprobs` is an extension of vLLM.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import max_positions
from evenhand.evaluation.models.checkpoints import load_config, load_tokenizer
from evenhand.evaluation.models.likelihood.sentences import encode
from evenhand.evaluation.models.server import Body, UnsupportedRequest, fetch_answers, request_once, served_tokenizer
from evenhand.evaluation.settings import ModelSettings
from evenhand.evaluation.store import Store


def _read_echo(choice: Any, ids: Sequence[int]) -> Sequence[float | None] | None:
    if choice.logprobs is None:
        return None
    log_p = choice.logprobs.token_logprobs
    if len(log_p) - len(ids) not in (0, 1):  # the answer may include the token that is generated after the prompt
        raise ValueError(f"{len(log_p)} log-probabilities for {len(ids)} tokens")
    return log_p[: len(ids)]


def _read_prompt_logprobs(choice: Any, ids: Sequence[int]) -> Sequence[float | None] | None:
    by_position = getattr(choice, "prompt_logprobs", None)
    if by_position is None:
        return None
    return [by_token and by_token[str(token)]["logprob"] for by_token, token in zip(by_position, ids, strict=True)]


# Name → request fields that make a server return log p of prompt tokens, and the reader of the answer, None for none.
ENDPOINTS = {
    "`echo` with `logprobs`": ({"echo": True, "logprobs": 1}, _read_echo),
    "`prompt_logprobs`": ({"extra_body": {"prompt_logprobs": 1}}, _read_prompt_logprobs),
}


def served_log_likelihoods(
    run: Store, model: ModelSettings, sentences: Sequence[str], context: str = "", end_of_sequence: bool = False
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return Σ log p in nats and the number of tokens of each sentence, (n,) each, and a description of the scoring.

    The numbers equal the results of `sentence_log_likelihoods` for the same model, up to the server's precision.
    """
    description = served_tokenizer(model)
    config = load_config(description)
    encoded = encode(
        load_tokenizer(description, config),
        sentences,
        name=model.name,
        max_tokens=max_positions(config) - 1,  # the server generates one token
        context=context,
        end_of_sequence=end_of_sequence,
    )
    body = {"model": model.name, "max_tokens": 1, "temperature": 0}
    bodies = [{**body, "prompt": ids} for ids in encoded.ids]
    endpoint = processes.on_rank_zero(lambda: _find_endpoint(model, bodies[0]))
    run.facts["server"] = model.server

    def compute(bodies: Sequence[Body], begin: np.ndarray) -> Iterator[tuple[list[int], list[float]]]:
        requests = [{**body, **ENDPOINTS[endpoint][0]} for body in bodies]
        for rows, token_log_p in fetch_answers(model, requests, parse=partial(_parse, endpoint)):
            yield rows, [math.fsum(log_p[start:]) for log_p, start in zip(token_log_p, begin[rows], strict=True)]

    table = run.rows("sentences", ["log_likelihood"], compute, bodies, encoded.begin, unit="sentences")
    tokens = np.array([len(ids) for ids in encoded.ids]) - encoded.begin
    variant = f"Σ log p of the whole sentence after {encoded.start.upper()}" + " and a context" * bool(context)
    return table["log_likelihood"].to_numpy(), tokens, f"{variant}, by a server's {endpoint}"


def _parse(endpoint: str, answer: Any, body: Body) -> list[float]:
    """Return log p of all prompt tokens in an answer; the first token has 0."""
    (choice,) = answer.choices
    log_p = ENDPOINTS[endpoint][1](choice, body["prompt"])
    if log_p is None:
        raise UnsupportedRequest(f"the answer has no log-probabilities for {endpoint}")
    log_p = [0.0, *map(float, log_p[1:])]
    if any(map(math.isnan, log_p)):
        raise ValueError("a log-probability is NaN")
    return log_p


def _find_endpoint(model: ModelSettings, body: Body) -> str:
    """Return the first of `ENDPOINTS` with which the server returns log p of prompt tokens."""
    refusals = []
    for endpoint, (fields, _) in ENDPOINTS.items():
        try:
            request_once(model, {**body, **fields}, partial(_parse, endpoint))
        except UnsupportedRequest as error:
            refusals.append(f"{endpoint}: {error}")
        else:
            return endpoint
    why = "; ".join(refusals)
    raise InputError(
        f"model.server: {model.server} returns no log-probabilities of prompts ({why}); use vLLM or SGLang."
    )
