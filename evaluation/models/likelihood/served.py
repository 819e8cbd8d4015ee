"""Σ log p of sentences by a completions server that says how probable the tokens of its prompt are.

It is asked by token ids, so that the server reads what a model loaded here would: the start token, the context, and the
sentence. OpenAI's `echo` with `logprobs` is what lm-evaluation-harness asks for, too (github.com/EleutherAI/
lm-evaluation-harness, `local-completions`); `prompt_logprobs` is vLLM's own.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import load_config, load_tokenizer
from evenhand.evaluation.models.likelihood.causal import EncodedSentences, encode
from evenhand.evaluation.models.server import Body, UnsupportedRequest, fetch_answers, request_once, served_tokenizer
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.settings import ModelSettings


@dataclass(frozen=True)
class LogprobEndpoint:
    """One of the ways to be told log p of a prompt's tokens: what is asked for, and where it stands in the answer.

    `read` returns log p of each token of the prompt, of the first None, and None where the answer has no such thing.
    """

    name: str
    asked: Body
    read: Callable[[Any, Sequence[int]], Sequence[float | None] | None]


def _parse_echo(choice: Any, ids: Sequence[int]) -> Sequence[float | None] | None:
    if choice.logprobs is None:
        return None
    found = choice.logprobs.token_logprobs
    if len(found) - len(ids) not in (0, 1):  # the token that is generated after the prompt may be there or not
        raise ValueError(f"{len(found)} log-probabilities for {len(ids)} tokens")
    return found[: len(ids)]


def _parse_prompt_logprobs(choice: Any, ids: Sequence[int]) -> Sequence[float | None] | None:
    found = getattr(choice, "prompt_logprobs", None)
    if found is None:
        return None
    return [place and place[str(token)]["logprob"] for place, token in zip(found, ids, strict=True)]


LOGPROB_ENDPOINTS = (
    LogprobEndpoint("`echo` with `logprobs`", {"echo": True, "logprobs": 1}, _parse_echo),
    LogprobEndpoint("`prompt_logprobs`", {"extra_body": {"prompt_logprobs": 1}}, _parse_prompt_logprobs),
)


def served_log_likelihoods(
    run: Run, model: ModelSettings, sentences: Sequence[str], context: str = "", end_of_sequence: bool = False
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return Σ log p in nats and the number of tokens of each sentence, (n,), and how they were scored.

    The same numbers as `sentence_log_likelihoods` of the model loaded here, to the precision of the server's.

    Raises:
        InputError: the server says no log p of a prompt's tokens, or fails; a sentence has no tokens, or too many.
    """
    encoded = _encode(model, sentences, context, end_of_sequence)
    body = {"model": model.name, "max_tokens": 1, "temperature": 0}
    bodies = [{**body, "prompt": ids} for ids in encoded.ids]
    way = processes.on_rank_zero(lambda: LOGPROB_ENDPOINTS.index(_find_endpoint(model, bodies[0])))
    way = LOGPROB_ENDPOINTS[way]
    run.facts["server"] = model.server
    asked = [{**body, **way.asked} for body in bodies]
    parts = run.parts("sentences", ["log_likelihood"], len(sentences))
    for shard in parts.unfinished_shards():
        batches = (
            (rows, [math.fsum(log_p[first:]) for log_p, first in zip(found, encoded.begin[rows], strict=True)])
            for rows, found in fetch_answers(model, asked, shard, read=_logprob_parser(way))
        )
        parts.save(shard, batches, "sentences", "sentences")
    tokens = np.array([len(ids) for ids in encoded.ids]) - encoded.begin
    variant = f"Σ log p of the whole sentence after {encoded.start.upper()}" + " and a context" * bool(context)
    return parts.read()["log_likelihood"].to_numpy(), tokens, f"{variant}, by a server's {way.name}"


def _encode(model: ModelSettings, sentences: Sequence[str], context: str, end_of_sequence: bool) -> EncodedSentences:
    described = served_tokenizer(model)
    config = load_config(described)
    tokenizer = load_tokenizer(described, config)
    room = getattr(config, "max_position_embeddings", None)
    how = {"context": context, "end_of_sequence": end_of_sequence}
    return encode(tokenizer, sentences, name=model.name, room=room and room - 1, **how)  # one token is generated


def _logprob_parser(way: LogprobEndpoint) -> Callable[[Any, Body], list[float]]:
    """Return what reads log p of all tokens of a prompt from an answer, 0 of the first, which follows nothing."""

    def read(answer: Any, body: Body) -> list[float]:
        (choice,) = answer.choices
        found = way.read(choice, body["prompt"])
        if found is None:
            raise UnsupportedRequest(f"it answers without what {way.name} asks for")
        log_p = [0.0, *map(float, found[1:])]
        if any(map(math.isnan, log_p)):
            raise ValueError("NaN where a log-probability should be")
        return log_p

    return read


def _find_endpoint(model: ModelSettings, body: Body) -> LogprobEndpoint:
    """Return the first way in which a server says log p of a prompt's tokens.

    Raises:
        InputError: there is none, or no server.
    """
    said = []
    for way in LOGPROB_ENDPOINTS:
        try:
            request_once(model, {**body, **way.asked}, _logprob_parser(way))
        except UnsupportedRequest as error:
            said.append(f"{way.name}: {error}")
        else:
            return way
    raise InputError(
        f"model.server: {model.server} says no log-probabilities of a prompt's tokens, neither by "
        f"{' nor by '.join(way.name for way in LOGPROB_ENDPOINTS)} ({'; '.join(said)}); serve the model by one "
        "that does, such as vLLM or SGLang, or load it."
    )
