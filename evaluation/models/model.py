"""What is measured: a model that answers prompts, and that may score texts.

The weights are here (`loaded`), on a server (`served`), or only their responses are at hand (`recorded`). A model that
wraps another model (`wrapped`) changes what is asked or answered. Nothing else needs to know which model it has.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.decoding import decoding as checked_decoding
from evenhand.evaluation.models.revisions import load_control_tag
from evenhand.evaluation.score import LEFT_OUT, PROMPT_ID, RESPONSE
from evenhand.evaluation.settings import DecodingSettings, ModelSettings
from evenhand.evaluation.store import Store


class Model(ABC):
    """A model that is measured.

    Attributes:
        settings: the model's settings.
        note: where the responses came from, for the readers of a report, "" for a loaded model.
        without_weights: why the model's weights are not at hand, "" if they are.
        is_masked: whether the model fills masks, and generates no text.
        can_be_asked: whether the model answers any prompt.
        has_prompts: whether the model has responses to prompts of its own only.
        first: the position, in a response, of the first token that `respond` returns; 0 outside of `only_tokens`.
    """

    note, without_weights, is_masked, can_be_asked, has_prompts, first = "", "", False, True, False, 0

    def __init__(
        self,
        settings: ModelSettings,
        decoding: DecodingSettings | None = None,
        *,
        tag: str | None = None,
        seed: int = 0,
    ) -> None:
        """Make a model without loading it; `tag` is the control tag, None for the tag that it was tuned with."""
        self.settings, self.seed, self._tag = settings, seed, tag
        self.decoding = DecodingSettings() if decoding is None else decoding

    def with_settings(self, **changes: Any) -> "Model":
        """Return the same model, not loaded, with other settings."""
        return type(self)(self.settings.replaced(**changes), self.decoding, tag=self._tag, seed=self.seed)

    @property
    def is_chat(self) -> bool:
        """Whether the model reads messages; a loaded model is loaded to find out."""
        return self.settings.api == "chat"

    @property
    def name(self) -> str:
        """The model's name in the settings."""
        return self.settings.name

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `generate`."""
        return checked_decoding(self.decoding.preset, **self.decoding.arguments)

    @contextmanager
    def only_tokens(self, first: int, end: int) -> Iterator[None]:
        """Limit `respond` within the block to some tokens of a response: positions first to end − 1, from 0."""
        arguments = self.arguments
        self.arguments, self.first = {**arguments, "max_new_tokens": end - first}, first
        try:
            yield
        finally:
            self.arguments, self.first = arguments, 0

    @property
    def samples(self) -> bool:
        """Whether two responses to one prompt may differ."""
        return bool(self.arguments.get("do_sample"))

    @cached_property
    def tag(self) -> str:
        """The control tag after each prompt, "" if none."""
        return load_control_tag(self.name) if self._tag is None else self._tag

    def check(self) -> None:
        """Raise InputError if the decoding or the device cannot be used; nothing is loaded or asked."""
        _ = self.arguments

    @abstractmethod
    def inputs(self) -> dict[str, Any]:
        """Return fingerprints, by name, of what the responses depend on besides settings; nothing is loaded or asked.

        Raises:
            InputError: the model cannot be used.
        """

    def scoring_inputs(self) -> dict[str, Any]:
        """Return fingerprints, by name, of what log-likelihoods of sentences depend on; as `inputs`."""
        return self.inputs()

    @abstractmethod
    def entry(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry of the model in a score's signature; `inputs` are the run's fingerprints by name."""

    def prompts(self, sampled: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """Return the prompts to ask: those that `sampled` returns, unless the model `has_prompts`."""
        return sampled()

    @abstractmethod
    def respond(self, prompts: pd.DataFrame, run: Store | None = None, name: str = "responses") -> pd.DataFrame:
        """Return one response per prompt: prompt_id, response, left_out (the reason or None), and what else is known.

        The columns `text`, `persona` and `prompt_id` of the prompts are read, and, if it is there, `opening`, the text
        with which the response begins. With a run, batches are saved as they come, under `name`, so that a killed run
        can resume.
        """

    @abstractmethod
    def signature(self, run: Store, responses: pd.DataFrame) -> dict[str, Any]:
        """Return the entries of a score's signature that say which model gave the responses, and how."""

    def log_likelihood(
        self, prompts: pd.DataFrame, responses: Sequence[str], run: Store | None = None, name: str = "likelihoods"
    ) -> pd.DataFrame:
        """Return log_likelihood, in nats, and number of tokens of each response to its prompt (text, persona).

        The end of the sequence counts. A response that is too long for the model has NaN. With a run, batches are saved
        under `name`.
        """
        raise InputError("model", f"{self.without_weights}")

    def score_sentences(
        self, run: Store, sentences: Sequence[str], context: str, end_of_sequence: bool
    ) -> tuple[np.ndarray, np.ndarray, str]:
        """Return Σ log p in nats and the number of tokens of each sentence, (n,) each, and how they were scored."""
        raise InputError("model", f"{self.without_weights}")

    def n_parameters(self) -> int:
        """Return the number of the model's weights."""
        raise InputError("model", f"{self.without_weights}")

    def capability_rows(self, tasks: Sequence[Any]) -> pd.DataFrame:
        """Return the results on tasks of lm-evaluation-harness (`capabilities.capability_rows`)."""
        raise InputError("model", f"{self.without_weights}")

    def release(self) -> None:
        """Free the memory of the model, which is loaded again when it is needed."""
        from accelerate.utils.memory import clear_device_cache  # imports torch

        clear_device_cache(garbage_collection=True)


def prompt_seed(prompt_id: str, seed: int) -> int:
    """Return the 64-bit seed of a prompt: a hash of the prompt's id and the run's seed, equal on every machine."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{prompt_id}".encode(), digest_size=8).digest(), "big")


def response_table(
    prompts: pd.DataFrame, texts: Iterable[str | None], reasons: Iterable[str | None] | None = None, **columns: Any
) -> pd.DataFrame:
    """Return prompt_id, response, the reason why it is left out, and more columns.

    A text None is reasoning that did not end. `reasons` are other reasons; None: there are none.
    """
    texts = [text if isinstance(text, str) else None for text in texts]  # Parquet may return NaN for None
    given = [None] * len(texts) if reasons is None else [it if isinstance(it, str) else None for it in reasons]
    left_out = [UNFINISHED_REASONING if text is None else reason for text, reason in zip(texts, given, strict=True)]
    responses = [text or "" for text in texts]
    return pd.DataFrame({PROMPT_ID: prompts[PROMPT_ID], RESPONSE: responses, LEFT_OUT: left_out, **columns})


def compute_rows(
    run: Store | None, name: str, columns: Sequence[str], compute: Callable, *inputs: Sequence[Any], unit: str
) -> dict[str, np.ndarray]:
    """Return the columns that `compute` yields in batches; a run saves the batches (`Store.rows`)."""
    if run is not None:
        table = run.rows(name, columns, compute, *inputs, unit=unit)
    else:
        rows = sorted((row for batch in compute(*inputs) for row in zip(*batch, strict=True)), key=lambda row: row[0])
        table = pd.DataFrame(rows, columns=["row", *columns])
    return {column: table[column].to_numpy() for column in columns}
