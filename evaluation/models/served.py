"""A model behind a server: its weights are not at hand.

Log-likelihoods of sentences come from a completions server that returns log-probabilities of prompt tokens, by OpenAI's
`echo` with `logprobs`, as in lm-evaluation-harness (github.com/EleutherAI/lm-evaluation-harness, `local-completions`).
Requests contain token ids, so that the server reads the same start token, context and sentence as a loaded model.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.model import Model, compute_rows, prompt_seed, response_table
from evenhand.evaluation.models.request_parameters import PROBE, Body, Parameters, unfinished_message
from evenhand.evaluation.models.revisions import tokenizer_revision
from evenhand.evaluation.models.server import (
    UnsupportedRequest,
    build_requests,
    check_client,
    continued,
    fetch_answers,
    find_parameters,
    parse_response,
    request_arguments,
)
from evenhand.evaluation.score import CUT, LEFT_OUT, OPENING, PERSONA, PROMPT_ID, REASONED, RESPONSE, TEXT
from evenhand.evaluation.settings import CheckpointSettings
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

PARAMETERS = "request_parameters"  # file of facts of a run: the parameters that the server accepts
FIRST_ANSWERS = 16  # a run ends if so many first answers all end within the reasoning
ANSWERED_BY = "answered_by"  # column of the responses: name of the model in the server's answer


class ServedModel(Model):
    """A model on an OpenAI-compatible server; `parameters` are those that it accepts, once they are known."""

    parameters: Parameters | None = None

    @property
    def note(self) -> str:
        return (
            f"A server answered as {self.name}. Scores that need the model's weights (relevance, perplexity) are "
            "omitted. It is not verified that the server uses the seed of each request, so a second run may give other "
            "responses."
        )

    @property
    def without_weights(self) -> str:
        return f"a server answered as {self.name}: its weights are not available"

    @property
    def tokenizer(self) -> CheckpointSettings:
        """The settings of the tokenizer: `model.tokenizer`, else the model's name and revision."""
        if self.settings.tokenizer is not None:
            return CheckpointSettings(name=self.settings.tokenizer)
        return CheckpointSettings(name=self.name, revision=self.settings.revision)

    def inputs(self) -> dict[str, Any]:
        """Return the name of the model, after a check of the client and of the decoding, which the API must have."""
        check_client()
        request_arguments(self.arguments)
        return {"model": self.name}

    def scoring_inputs(self) -> dict[str, Any]:
        """Return the name of the model and the revision of its tokenizer, with which sentences are encoded."""
        check_client()
        name = self.tokenizer.name
        try:
            return {"model": self.name, "tokenizer": tokenizer_revision(name, self.tokenizer.revision)}
        except InputError:
            raise InputError("model.tokenizer", f"{name!r} does not exist; give that of the model.") from None

    def entry(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return name, revision, which the user supplies and nobody verifies, API and tokenizer; not the address."""
        tokenizer = {"tokenizer": inputs["tokenizer"]} if "tokenizer" in inputs else {}
        facts = {"name": self.name, "revision": self.settings.revision, "api": self.settings.api, **tokenizer}
        given = {name: getattr(self.settings, name) for name in ("reasoning", "request")}
        return facts | {name: value for name, value in given.items() if value}

    def requests(self, prompts: pd.DataFrame, parameters: Parameters | None = None) -> list[Body]:
        """Return the body of a request for each prompt; a prompt has the same seed as with a loaded model.

        The continuation of an opening has another seed, because with the same seed a server would draw it with the
        random numbers of the opening. `parameters` are those that the server accepts; None: all of OpenAI's API.
        """
        part = f"/{self.first}" if self.first else ""
        seeds = [prompt_seed(f"{prompt_id}{part}", self.seed) for prompt_id in prompts[PROMPT_ID]]
        asked = self.settings, prompts[TEXT].tolist(), prompts[PERSONA].tolist()
        bodies = build_requests(*asked, seeds, self.tag, request_arguments(self.arguments))
        if OPENING in prompts:
            bodies = [continued(*pair) for pair in zip(bodies, prompts[OPENING], strict=True)]
        return bodies if parameters is None else [parameters.apply(body) for body in bodies]

    def find_parameters(self, run: Store | None = None) -> Parameters:
        """Return the parameters that the server accepts, from a probe or, of a run that goes on, from its folder."""

        def compute() -> dict[str, Any]:
            arguments = request_arguments(self.arguments)
            (body,) = build_requests(self.settings, [PROBE], [""], [self.seed], "", arguments)
            return find_parameters(self.settings, body).as_values()

        if self.parameters is None:
            found = compute() if run is None else run.keep_facts(PARAMETERS, compute)
            self.parameters = Parameters.from_values(found)
        return self.parameters

    def respond(self, prompts: pd.DataFrame, run: Store | None = None, name: str = "responses") -> pd.DataFrame:
        """Return one response per prompt, and what else the server's answer says.

        That is whether max_tokens cut the response, the name of the model, whether it had reasoning, and why the
        provider's filter withheld it.
        """

        def parse(answer: Any, body: Body) -> tuple[str | None, bool, str, bool, None]:
            is_cut = answer.choices[0].finish_reason == "length"
            by = answer.model if isinstance(answer.model, str) else self.name
            text, had_reasoning = parse_response(answer, body, self.settings.reasoning)
            return text, is_cut, by, had_reasoning, None

        def filtered(reason: str) -> tuple[str, bool, str, bool, str]:
            return "", False, self.name, False, reason

        def compute(bodies: Sequence[Body]) -> Iterator[tuple[Sequence[Any], ...]]:
            n_answers = n_unfinished = 0
            for rows, columns in fetch_answers(self.settings, bodies, parse, filtered):
                yield (rows, *zip(*columns, strict=True))
                n_answers += len(columns)
                n_unfinished += sum(text is None for text, *_ in columns)
                if n_unfinished == n_answers >= FIRST_ANSWERS:
                    raise InputError("model.server", unfinished_message(self.name))

        parameters = processes.on_rank_zero(lambda: self.find_parameters(run))
        if run is not None:
            run.facts["server"] = self.settings.server
            run.facts["parameters"] = parameters.as_values()
        columns = [RESPONSE, CUT, ANSWERED_BY, REASONED, LEFT_OUT]
        table = compute_rows(run, name, columns, compute, self.requests(prompts, parameters), unit="responses")
        return response_table(prompts, table.pop(RESPONSE), table.pop(LEFT_OUT), **table)

    def signature(self, run: Store, responses: pd.DataFrame) -> dict[str, Any]:
        """Return the entries model, decoding and server_seed: the server may ignore the seeds of the requests.

        The entry has the names of models in the answers if they differ from the configured name.
        """
        tagged = {"system_prompt": self.settings.system_prompt, "control_tag": self.tag}
        tagged |= {"parameters": changed} if (changed := self.find_parameters(run).as_values()) else {}
        if (answered_by := sorted(set(responses[ANSWERED_BY]))) != [self.name]:
            tagged["answered_by"] = answered_by
            names = ", ".join(map(repr, answered_by))
            log.warning("%s: asked for %r, the answers name %s", self.settings.server, self.name, names)
        return {
            "model": self.entry({}) | tagged,
            "decoding": dict(self.arguments),
            "server_seed": {"sent": self.seed, "verified": False},
        }

    def score_sentences(
        self, run: Store, sentences: Sequence[str], context: str, end_of_sequence: bool
    ) -> tuple[np.ndarray, np.ndarray, str]:
        """Return the numbers of `sentence_log_likelihoods` for the same model, up to the server's precision."""
        from evenhand.evaluation.models.batches import max_positions
        from evenhand.evaluation.models.checkpoints import load_config, load_tokenizer
        from evenhand.evaluation.models.likelihood.sentences import describe, encode

        config = load_config(self.tokenizer)
        limit = max_positions(config) - 1  # the server generates one token
        tokenizer, options = load_tokenizer(self.tokenizer, config), {"name": self.name, "max_tokens": limit}
        encoded = encode(tokenizer, sentences, **options, context=context, end_of_sequence=end_of_sequence)
        body = {"model": self.name, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        bodies = [{**body, "prompt": ids} for ids in encoded.ids]
        run.facts["server"] = self.settings.server

        def compute(bodies: Sequence[Body], begin: np.ndarray) -> Iterator[tuple[list[int], list[float]]]:
            for rows, token_log_p in fetch_answers(self.settings, bodies, _token_log_p):
                yield rows, [math.fsum(log_p[start:]) for log_p, start in zip(token_log_p, begin[rows], strict=True)]

        table = run.rows("sentences", ["log_likelihood"], compute, bodies, encoded.begin, unit="sentences")
        how = f"{describe(encoded, context)}, by a server's `echo` with `logprobs`"
        return table["log_likelihood"].to_numpy(), encoded.n_scored, how


def _token_log_p(answer: Any, body: Body) -> list[float]:
    """Return log p of all prompt tokens in an answer; the first token has 0."""
    (choice,), ids = answer.choices, body["prompt"]
    if choice.logprobs is None:
        raise UnsupportedRequest("model.server", "it returns no log-probabilities of prompts; use vLLM or SGLang.")
    log_p = choice.logprobs.token_logprobs
    if len(log_p) - len(ids) not in (0, 1):  # the answer may include the token that is generated after the prompt
        raise ValueError(f"{len(log_p)} log-probabilities for {len(ids)} tokens")
    log_p = [0.0, *map(float, log_p[1 : len(ids)])]
    if any(map(math.isnan, log_p)):
        raise ValueError("a log-probability is NaN")
    return log_p
