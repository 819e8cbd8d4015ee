"""A model on a server: its weights are not available.

Log-likelihoods of sentences and responses come from a completions server that returns log-probabilities of prompt
tokens, by OpenAI's `echo` with `logprobs`, as in lm-evaluation-harness (github.com/EleutherAI/lm-evaluation-harness,
`local-completions`). Requests contain token ids, so that the server reads the same start token, context and text as a
loaded model.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.model_settings import NOWHERE, CheckpointSettings, ModelSettings
from evenhand.evaluation.models.asking import UnsupportedRequest
from evenhand.evaluation.models.remote import RemoteModel
from evenhand.evaluation.models.request_parameters import PROBE, Body
from evenhand.evaluation.models.revisions import tokenizer_revision
from evenhand.evaluation.models.server_client import (
    answer_of,
    ask_openai,
    build_requests,
    check_client,
    fetch_answers,
)
from evenhand.evaluation.settings import Access

if TYPE_CHECKING:  # takes a second
    from openai import AsyncOpenAI

    from evenhand.evaluation.models.launching import LaunchedServer
    from evenhand.evaluation.models.loading import DialogueModel
    from evenhand.evaluation.models.predictions import Predictions


UNPROCESSED = {"temperature": 1, "top_p": 1, "max_tokens": 1}  # so that no server changes the probabilities


def unnamed() -> str:
    """Return why a server that only the record of a run names is not asked."""
    return f"only the record of the run names the server of its model; give {spelled('model.server', 'URL')}"


class ServedModel(RemoteModel):
    """A model on an OpenAI-compatible server; texts are scored with the model's tokenizer, which is here."""

    SETTING = "model.server"
    launched: "LaunchedServer | None" = None

    @property
    def asked(self) -> ModelSettings:
        if self.settings.launch is None:
            return self.settings
        if self.launched is None:
            from evenhand.evaluation.models.launching import LaunchedServer

            self.launched = LaunchedServer(self.settings)
        return self.settings.replaced(server=self.launched.address, launch=None, launch_arguments=None)

    def close(self) -> None:
        if self.launched is not None:
            self.launched.close()
            self.launched = None
        super().close()

    @classmethod
    def access(cls, settings: ModelSettings) -> Collection[Access]:
        if settings.api == "completions" or _scores_responses(settings):
            return (Access.ANSWERS, Access.PREDICTIONS, Access.LIKELIHOODS)
        return (Access.ANSWERS, Access.PREDICTIONS)

    async def ask(self, client: "AsyncOpenAI | None", body: Body) -> Any:
        return await ask_openai(client, body, self.settings.api)

    @property
    def api(self) -> str:
        return self.settings.api

    @property
    def scores_responses(self) -> bool:
        return _scores_responses(self.settings)

    @property
    def without_likelihoods(self) -> str:
        if self.settings.base_url == NOWHERE:
            return unnamed()
        if not self.scores_responses:
            return f"{self.without_weights}; give model.tokenizer if the server gives log-probabilities of prompts"
        return ""

    @property
    def without_predictions(self) -> str:
        return unnamed() if self.settings.base_url == NOWHERE else ""

    @property
    def reads_tokens(self) -> bool:
        """Whether sentences or responses are scored, for which the tokenizer is needed."""
        return self.scores_sentences or not self.without_likelihoods

    @property
    def tokenizer(self) -> CheckpointSettings:
        """The settings of the tokenizer: `model.tokenizer`, else the model's name and revision."""
        if self.settings.tokenizer is not None:
            return CheckpointSettings(name=self.settings.tokenizer)
        return CheckpointSettings(name=self.name, revision=self.settings.revision)

    def identity(self) -> dict[str, Json]:
        """Return the name of the model and, if texts are scored, the revision of its tokenizer.

        Raises:
            InputError: the client is not installed, the API has no equivalent of a decoding argument, the tokenizer
                does not exist, or the server cannot be started.
        """
        if self.settings.launch is not None:
            from evenhand.evaluation.models.launching import check_launch

            check_launch(self.settings)
        identity: dict[str, Json] = {"model": self.name}
        if self.scores_sentences:
            check_client()
        else:
            identity = super().identity()
        if not self.reads_tokens:
            return identity
        try:
            revision = tokenizer_revision(self.tokenizer.name, self.tokenizer.revision)
        except InputError:
            raise InputError(
                "model.tokenizer", f"{self.tokenizer.name!r} does not exist; give that of the model."
            ) from None
        return {**identity, "tokenizer": revision}

    @property
    def description(self) -> dict[str, Json]:
        """Name, revision (which the user supplies and nobody verifies), API and tokenizer; not the server's address."""
        if not self.reads_tokens:
            return super().description
        revision = tokenizer_revision(self.tokenizer.name, self.tokenizer.revision)
        return {**super().description, "tokenizer": revision}

    @cached_property
    def format(self) -> "DialogueModel":
        """The model's tokenizer and format of prompts, without weights.

        Raises:
            InputError: the model is an encoder-decoder model, or has no chat template for a server of chats.
        """
        from evenhand.evaluation.models.loading import load_without_weights

        loaded = load_without_weights(self.tokenizer, self.settings)
        if loaded.kind == "encoder_decoder":
            raise InputError("model.tokenizer", f"{self.tokenizer.name} is an encoder-decoder model; load the model.")
        if self.api == "completions":  # the server reads texts as they are
            return replace(loaded, kind="dialogue")
        if not loaded.tokenizer.chat_template:
            raise InputError(
                "model.tokenizer",
                f"{self.tokenizer.name} has no chat template; give {spelled('model.server', 'URL/v1/completions')}.",
            )
        return loaded

    @property
    def n_parameters(self) -> int:
        return self.format.model.num_parameters()

    def contexts(self, prompts: pd.DataFrame) -> list[str]:
        """Return what the server reads before its responses: a rendered chat, or the text of a request."""
        from evenhand.evaluation.models.contexts import render_contexts

        texts = prompts[columns.TEXT].tolist()
        personas = prompts[columns.PERSONA].tolist()
        if self.api == "chat":
            return render_contexts(self.format, texts, personas, self.tag)
        seeds = [0] * len(texts)  # which are not read
        return [body["prompt"] for body in build_requests(self.settings, texts, personas, seeds, self.tag, {})]

    def check_likelihoods(self) -> None:
        if not self.without_likelihoods:
            ids = self.format.tokenizer(PROBE, add_special_tokens=False)["input_ids"]
            list(self.token_log_likelihoods([ids]))

    def log_likelihood(self, pairs: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """Yield the numbers of a loaded model, up to the server's precision."""
        from evenhand.evaluation.models.batches import max_positions
        from evenhand.evaluation.models.likelihood.tokens import encode_rows

        if self.without_likelihoods:
            raise InputError("model.server", self.without_likelihoods)
        heads, tails = encode_rows(self.format, self.contexts(pairs), pairs)
        lengths = np.array([len(head) + len(tail) for head, tail in zip(heads, tails, strict=True)], dtype=np.int64)
        n_tokens = np.array([len(tail) for tail in tails], dtype=np.int64)
        fits = lengths < max_positions(self.format.model.config)  # the server generates one token
        fitting = np.flatnonzero(fits)
        sums = np.full(len(pairs), np.nan)

        def table(rows: np.ndarray) -> pd.DataFrame:
            numbers = {columns.LOG_LIKELIHOOD: sums[rows], columns.TOKENS: n_tokens[rows]}
            return pd.DataFrame(numbers, index=pairs.index[rows])

        for numbers, log_p in self.token_log_likelihoods([heads[row] + tails[row] for row in fitting]):
            rows = fitting[numbers]
            sums[rows] = [math.fsum(values[len(heads[row]) :]) for row, values in zip(rows, log_p, strict=True)]
            yield table(rows)
        yield table(np.flatnonzero(~fits))

    def predictions(self, prompts: pd.DataFrame, listed_tokens: int) -> "Predictions":
        """Return the predictions of the tokens that the server lists for all prompts (`common_predictions`)."""
        from evenhand.evaluation.models.predictions import common_predictions

        asked = {"logprobs": True, "top_logprobs": listed_tokens}
        if self.api == "completions":
            asked = {"logprobs": listed_tokens}
        parameters = self.parameters()
        bodies = [parameters.apply({**body, **UNPROCESSED, **asked}) for body in self.requests(prompts)]
        listed: list[list[tuple[str, float]]] = [[]] * len(bodies)
        for rows, found in self.fetch(bodies, _listed_tokens):
            for row, tokens in zip(rows, found, strict=True):
                listed[row] = tokens
        texts = prompts[columns.PERSONA] + "\n" + prompts[columns.TEXT]
        return common_predictions(listed, texts.tolist())

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
            sentences[columns.TEXT].tolist(),
            name=self.name,
            max_tokens=max_positions(config) - 1,  # the server generates one token
            context=context,
            end_of_sequence=end_of_sequence,
        )
        variant = describe(encoded, context)
        for rows, token_log_p in self.token_log_likelihoods(encoded.ids):
            sums = [math.fsum(log_p[begin:]) for log_p, begin in zip(token_log_p, encoded.begin[rows], strict=True)]
            table = {
                columns.LOG_LIKELIHOOD: sums,
                columns.TOKENS: encoded.n_scored[np.array(rows)],
                columns.VARIANT: variant,
            }
            yield pd.DataFrame(table, index=sentences.index[rows])

    def token_log_likelihoods(self, ids: Sequence[list[int]]) -> Iterator[tuple[list[int], list[list[float]]]]:
        """Yield row numbers, and log p of all tokens of these rows given the tokens before them, in nats.

        The first token of a row has 0.
        """
        request = {"model": self.name, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        bodies = [{**request, "prompt": row} for row in ids]
        return fetch_answers(self.asked, bodies, _token_log_p, ask=partial(ask_openai, api="completions"))


def _scores_responses(settings: ModelSettings) -> bool:
    """Return whether the settings say that the server gives likelihoods of responses; vLLM that is started does."""
    return settings.tokenizer is not None or settings.launch == "vllm"


def _token_log_p(answer: Any, body: Body) -> list[float]:
    """Return log p of all prompt tokens in an answer; the first token has 0."""
    answer_of(answer)  # raises if an error took the place of the answer
    (choice,) = answer.choices
    ids = body["prompt"]
    if choice.logprobs is None or len(choice.logprobs.token_logprobs) < len(ids):
        raise UnsupportedRequest("model.server", "it returns no log-probabilities of prompts; use vLLM or SGLang.")
    log_p = choice.logprobs.token_logprobs
    if len(log_p) - len(ids) > 1:  # the answer may include the token that is generated after the prompt
        raise ValueError(f"{len(log_p)} log-probabilities for {len(ids)} tokens")
    log_p = [0.0, *map(float, log_p[1 : len(ids)])]
    if any(map(math.isnan, log_p)):
        raise ValueError("a log-probability is NaN")
    return log_p


def _listed_tokens(answer: Any, body: Body) -> list[tuple[str, float]]:
    """Return the texts and log-probabilities of the tokens that an answer lists for its first token."""
    (choice,) = answer.choices
    if choice.logprobs is None:
        raise UnsupportedRequest("model.server", "it returns no log-probabilities of tokens; use vLLM or llama.cpp.")
    if "messages" in body:
        tokens = [(token.token, float(token.logprob)) for token in choice.logprobs.content[0].top_logprobs]
    else:
        tokens = [(text, float(log_p)) for text, log_p in choice.logprobs.top_logprobs[0].items()]
    if not tokens or any(not log_p <= 0 for _, log_p in tokens):
        raise ValueError("no log-probabilities, or one above 0")
    return tokens
