"""A model on a server: its weights are not available.

Log-likelihoods of sentences come from a completions server that returns log-probabilities of prompt tokens, by OpenAI's
`echo` with `logprobs`, as in lm-evaluation-harness (github.com/EleutherAI/lm-evaluation-harness, `local-completions`).
Requests contain token ids, so that the server reads the same start token, context and sentence as a loaded model.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.models.base import LOG_LIKELIHOOD, TOKENS, VARIANT, Model, prompt_seed, response_batch
from evenhand.evaluation.models.request_parameters import PROBE, Body, Parameters, unfinished_message
from evenhand.evaluation.models.revisions import tokenizer_revision
from evenhand.evaluation.models.server_client import (
    UnsupportedRequest,
    answer_of,
    build_requests,
    check_client,
    continued,
    fetch_answers,
    find_parameters,
    parse_response,
    request_arguments,
)
from evenhand.evaluation.score import CUT, LEFT_OUT, OPENING, PERSONA, PROMPT_ID, REASONED, RESPONSE, TEXT
from evenhand.evaluation.settings import CheckpointSettings, DecodingSettings, ModelSettings

FIRST_ANSWERS = 16  # a run ends if so many first answers all end within the reasoning
ANSWERED_BY = "answered_by"  # column of the responses: name of the model in the server's answer


class ServedModel(Model):
    """A model on an OpenAI-compatible server."""

    def __init__(
        self,
        settings: ModelSettings,
        decoding: DecodingSettings | None = None,
        *,
        tag: str | None = None,
        seed: int = 0,
        scores_sentences: bool = False,
    ) -> None:
        """Make a model; `scores_sentences`: sentences are scored, for which the model's tokenizer is needed."""
        super().__init__(settings, decoding, tag=tag, seed=seed)
        self.scores_sentences = scores_sentences
        self._parameters: Parameters | None = None

    def with_settings(self, **changes: object) -> "ServedModel":
        settings = self.settings.replaced(**changes)
        return ServedModel(
            settings, self.decoding, tag=self._tag, seed=self.seed, scores_sentences=self.scores_sentences
        )

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

    def identity(self) -> dict[str, Json]:
        """Return the name of the model and, if sentences are scored, the revision of its tokenizer.

        Raises:
            InputError: the client is not installed, the API has no equivalent of a decoding argument, or the tokenizer
                does not exist.
        """
        check_client()
        if not self.scores_sentences:
            request_arguments(self.arguments)
            return {"model": self.name}
        try:
            revision = tokenizer_revision(self.tokenizer.name, self.tokenizer.revision)
        except InputError:
            raise InputError(
                "model.tokenizer", f"{self.tokenizer.name!r} does not exist; give that of the model."
            ) from None
        return {"model": self.name, "tokenizer": revision}

    @property
    def description(self) -> dict[str, Json]:
        """Name, revision (which the user supplies and nobody verifies), API and tokenizer; not the server's address."""
        description = {"name": self.name, "revision": self.settings.revision, "api": self.settings.api}
        if self.scores_sentences:
            description["tokenizer"] = tokenizer_revision(self.tokenizer.name, self.tokenizer.revision)
        if self.settings.reasoning:
            description["reasoning"] = self.settings.reasoning
        if self.settings.strip:
            description["strip"] = self.settings.strip
        if self.settings.request:
            description["request"] = self.settings.request
        return description

    def facts(self) -> dict[str, Any]:
        """Return the entries of a signature, with the parameters that the server accepts; it may ignore the seeds."""
        facts = super().facts()
        facts["model"]["system_prompt"] = self.settings.system_prompt
        parameters = self.parameters().as_values()
        if parameters:
            facts["model"]["parameters"] = parameters
        facts["server_seed"] = {"sent": self.seed, "verified": False}
        return facts

    def parameters(self) -> Parameters:
        """Return the parameters that the server accepts, which a probe finds once."""
        if self._parameters is None:
            arguments = request_arguments(self.arguments)
            (probe,) = build_requests(self.settings, [PROBE], [""], [self.seed], "", arguments)
            self._parameters = find_parameters(self.settings, probe)
        return self._parameters

    def requests(self, prompts: pd.DataFrame, tokens: range | None = None) -> list[Body]:
        """Return the body of a request for each prompt; a prompt has the same seed as with a loaded model.

        The continuation of an opening has another seed, because with the same seed a server would draw it with the
        random numbers of the opening.
        """
        limit = {} if tokens is None else {"max_new_tokens": len(tokens)}
        part = f"/{tokens.start}" if tokens is not None and tokens.start else ""
        bodies = build_requests(
            self.settings,
            prompts[TEXT].tolist(),
            prompts[PERSONA].tolist(),
            [prompt_seed(f"{prompt_id}{part}", self.seed) for prompt_id in prompts[PROMPT_ID]],
            self.tag,
            request_arguments({**self.arguments, **limit}),
        )
        if OPENING not in prompts:
            return bodies
        return [continued(body, opening) for body, opening in zip(bodies, prompts[OPENING], strict=True)]

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield responses, and what else the server's answers say.

        That is whether max_tokens cut the response, the name of the model, whether it had reasoning, and why it is
        missing.
        """

        def parse(answer: Any, body: Body) -> dict[str, Any]:
            found = parse_response(answer, body, self.settings.reasoning)
            name = answer.model if isinstance(answer.model, str) else self.name
            return response(found.text, found.reason, found.is_cut, name, found.had_reasoning)

        def missing(reason: str) -> dict[str, Any]:
            return response("", reason, False, self.name, False)

        def response(text: str, reason: str | None, cut: bool, name: str, reasoned: bool) -> dict[str, Any]:
            return {RESPONSE: text, LEFT_OUT: reason, CUT: cut, ANSWERED_BY: name, REASONED: reasoned}

        parameters = self.parameters()
        bodies = [parameters.apply(body) for body in self.requests(prompts, tokens)]
        n_answers = 0
        n_unfinished = 0
        for rows, answers in fetch_answers(self.settings, bodies, parse, missing):
            texts = [answer[RESPONSE] for answer in answers]
            reasons = [answer[LEFT_OUT] for answer in answers]
            columns = {name: [answer[name] for answer in answers] for name in (CUT, ANSWERED_BY, REASONED)}
            yield response_batch(prompts.iloc[rows], texts, reasons, columns, strip=self.settings.strip or ())
            n_answers += len(answers)
            n_unfinished += reasons.count(UNFINISHED_REASONING)
            if n_unfinished == n_answers >= FIRST_ANSWERS:
                raise InputError("model.server", unfinished_message(self.name))

    def score_sentences(
        self, sentences: pd.DataFrame, *, context: str = "", end_of_sequence: bool = False
    ) -> Iterator[pd.DataFrame]:
        """Yield the numbers of a loaded model, up to the server's precision."""
        from evenhand.evaluation.models.batches import max_positions
        from evenhand.evaluation.models.checkpoints import load_config, load_tokenizer
        from evenhand.evaluation.models.likelihood.sentences import describe, encode

        config = load_config(self.tokenizer)
        encoded = encode(
            load_tokenizer(self.tokenizer, config),
            sentences[TEXT].tolist(),
            name=self.name,
            max_tokens=max_positions(config) - 1,  # the server generates one token
            context=context,
            end_of_sequence=end_of_sequence,
        )
        request = {"model": self.name, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        bodies = [{**request, "prompt": ids} for ids in encoded.ids]
        variant = f"{describe(encoded, context)}, by a server's `echo` with `logprobs`"
        for rows, token_log_p in fetch_answers(self.settings, bodies, _token_log_p):
            sums = [math.fsum(log_p[begin:]) for log_p, begin in zip(token_log_p, encoded.begin[rows], strict=True)]
            table = {LOG_LIKELIHOOD: sums, TOKENS: encoded.n_scored[np.array(rows)], VARIANT: variant}
            yield pd.DataFrame(table, index=sentences.index[rows])


def _token_log_p(answer: Any, body: Body) -> list[float]:
    """Return log p of all prompt tokens in an answer; the first token has 0."""
    answer_of(answer)  # raises if an error took the place of the answer
    (choice,) = answer.choices
    ids = body["prompt"]
    if choice.logprobs is None:
        raise UnsupportedRequest("model.server", "it returns no log-probabilities of prompts; use vLLM or SGLang.")
    log_p = choice.logprobs.token_logprobs
    if len(log_p) - len(ids) not in (0, 1):  # the answer may include the token that is generated after the prompt
        raise ValueError(f"{len(log_p)} log-probabilities for {len(ids)} tokens")
    log_p = [0.0, *map(float, log_p[1 : len(ids)])]
    if any(map(math.isnan, log_p)):
        raise ValueError("a log-probability is NaN")
    return log_p
