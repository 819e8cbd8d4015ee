"""A model on a server: its weights are not available.

Log-likelihoods of sentences come from a completions server that returns log-probabilities of prompt tokens, by OpenAI's
`echo` with `logprobs`, as in lm-evaluation-harness (github.com/EleutherAI/lm-evaluation-harness, `local-completions`).
Requests contain token ids, so that the server reads the same start token, context and sentence as a loaded model.
"""

import math
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.models.asking import UnsupportedRequest
from evenhand.evaluation.models.remote import RemoteModel
from evenhand.evaluation.models.request_parameters import Body
from evenhand.evaluation.models.revisions import tokenizer_revision
from evenhand.evaluation.models.server_client import answer_of, ask_openai, check_client
from evenhand.evaluation.settings import Access, CheckpointSettings, ModelSettings

if TYPE_CHECKING:  # takes a second
    from openai import AsyncOpenAI


class ServedModel(RemoteModel):
    """A model on an OpenAI-compatible server; the tokenizer is needed if sentences are scored."""

    SETTING = "model.server"

    @classmethod
    def access(cls, settings: ModelSettings) -> Collection[Access]:
        if settings.api == "completions":
            return (Access.ANSWERS, Access.LIKELIHOODS)
        return (Access.ANSWERS,)

    async def ask(self, client: "AsyncOpenAI | None", body: Body) -> Any:
        return await ask_openai(client, body, self.settings.api)

    @property
    def api(self) -> str:
        return self.settings.api

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
        if not self.scores_sentences:
            return super().identity()
        check_client()
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
        if not self.scores_sentences:
            return super().description
        revision = tokenizer_revision(self.tokenizer.name, self.tokenizer.revision)
        return {**super().description, "tokenizer": revision}

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
        request = {"model": self.name, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        bodies = [{**request, "prompt": ids} for ids in encoded.ids]
        variant = f"{describe(encoded, context)}, by a server's `echo` with `logprobs`"
        for rows, token_log_p in self.fetch(bodies, _token_log_p):
            sums = [math.fsum(log_p[begin:]) for log_p, begin in zip(token_log_p, encoded.begin[rows], strict=True)]
            table = {
                columns.LOG_LIKELIHOOD: sums,
                columns.TOKENS: encoded.n_scored[np.array(rows)],
                columns.VARIANT: variant,
            }
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
