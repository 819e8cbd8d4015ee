"""What is measured: a model that answers prompts, and that may score texts.

A model is of a kind (`kinds`): its weights are in this process, it is behind an API, or a file has its responses. A
model that wraps another model (`wrapped`) changes what is asked or answered. Nothing else needs to know which model it
has. A model keeps nothing: `Store.rows` saves its batches, resumes after a kill and splits rows among processes.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.other_text import other_text, strip_other_text
from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.data.readers.response_files import ResponseFile
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.models.revisions import load_control_tag
from evenhand.evaluation.settings import Access

if TYPE_CHECKING:  # imports torch
    from evenhand.evaluation.models.loading import DialogueModel
    from evenhand.evaluation.models.predictions import Predictions

# Columns of the tables that models return.
CANDIDATES = "candidates"  # of responses that were chosen: the texts of all candidates for a prompt


class Model(ABC):
    """A model that is measured. It answers, and keeps nothing.

    A new kind of model has to write `identity` and `respond`. It writes `access`, `log_likelihood` and
    `score_sentences` if it can score texts. A kind with an API is a class derived from `RemoteModel`.

    Attributes:
        SETTING: the setting by which the kind is chosen, for errors.
        settings: the model's settings.
        decoding: the settings of decoding.
        seed: the seed of the responses.
        file: the file of its responses, for a model that is only known by them.
        scores_sentences: whether sentences are scored, for which a served model needs its tokenizer.
        note: where the responses came from, for the readers of a report; "" for a loaded model.
        without_weights: why the model's weights are not available; "" if they are.
        without_likelihoods: why the model gives no likelihoods of responses; "" if it does.
        without_predictions: why the model gives no predictions of first tokens; "" if it does.
        is_masked: whether the model fills masks, and generates no text.
        can_be_asked: whether the model answers any prompt.
    """

    SETTING: ClassVar[str] = "model.source"
    note: str = ""
    without_weights: str = ""
    is_masked: bool = False
    can_be_asked: bool = True

    def __init__(
        self,
        settings: ModelSettings,
        decoding: DecodingSettings | None = None,
        *,
        tag: str | None = None,
        seed: int = 0,
        file: ResponseFile | None = None,
        scores_sentences: bool = False,
    ) -> None:
        """Make a model without loading it; `tag` is the control tag, None for the tag that it was tuned with."""
        self.settings = settings
        self.decoding = DecodingSettings() if decoding is None else decoding
        self.seed = seed
        self.file = file
        self.scores_sentences = scores_sentences
        self._tag = tag

    def with_settings(self, **changes: object) -> "Model":
        """Return the same model, not loaded, with other settings."""
        return type(self)(
            self.settings.replaced(**changes),
            self.decoding,
            tag=self._tag,
            seed=self.seed,
            file=self.file,
            scores_sentences=self.scores_sentences,
        )

    @classmethod
    def access(cls, settings: ModelSettings) -> Collection[Access]:
        """Return what a model of this kind with these settings gives to those who measure it."""
        return (Access.ANSWERS,)

    @property
    def name(self) -> str:
        """The model's name in the settings."""
        return self.settings.name

    @property
    def without_likelihoods(self) -> str:
        return self.without_weights

    @property
    def without_predictions(self) -> str:
        return self.without_weights

    @property
    def n_parameters(self) -> int:
        """The number of the model's parameters; a loaded model is loaded to find out."""
        return self.load().model.num_parameters()

    @property
    def requests_per_response(self) -> int:
        """The number of requests to an API that a response takes."""
        return 0

    @property
    def needs_partners(self) -> bool:
        """Whether `respond` reads another person's prompt with each prompt (`with_partners`)."""
        return False

    @property
    def is_chat(self) -> bool:
        """Whether the model reads messages; a loaded model is loaded to find out."""
        return self.settings.api == "chat"

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `generate`."""
        return decoding_arguments(self.decoding.preset, self.decoding.arguments)

    @property
    def samples(self) -> bool:
        """Whether two responses to one prompt may differ."""
        return bool(self.arguments.get("do_sample"))

    @cached_property
    def tag(self) -> str:
        """The control tag after each prompt, "" if none."""
        if self._tag is not None:
            return self._tag
        return load_control_tag(self.name, self.settings.revision, self.settings.base)

    @property
    def description(self) -> dict[str, Json]:
        """The entry of the model in a score's signature, as far as it is known without loading or asking the model."""
        return {"name": self.name, **self.identity()}

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        """Check that the model can answer the prompts, if they are given; nothing is loaded or asked.

        Raises:
            InputError: the decoding or the device cannot be used, or the prompts lack a column.
        """
        _ = self.arguments  # raises for an unknown argument

    def check_memory(self) -> None:
        """Raise InputError if the model is to be loaded, and does not fit into memory."""
        return

    def check_likelihoods(self) -> None:
        """Raise InputError if the model, which is asked once, does not give the likelihoods of responses it should."""
        return

    def has_revision(self, revision: str) -> bool:
        """Return whether the model is the one of which a run recorded the revision, as far as this can be known."""
        return True

    @abstractmethod
    def identity(self) -> dict[str, Json]:
        """Return fingerprints, by name, of what the responses depend on besides settings; nothing is loaded or asked.

        Raises:
            InputError: the model cannot be used.
        """

    def facts(self) -> dict[str, Any]:
        """Return the entries of a score's signature that say which model answered, and how; it may be loaded or asked.

        The caller keeps them (`Store.keep_facts`), so that a run that goes on has the facts of its start.
        """
        return {"model": {**self.description, "control_tag": self.tag}, "decoding": dict(self.arguments)}

    @abstractmethod
    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield responses batch by batch, one for each prompt, in any order (`response_batch`).

        Args:
            prompts: columns `text`, `persona` and `prompt_id`; if responses begin with given texts, `opening`; and, if
                the prompts name people, `descriptor`, `template`, `axis` and others of `columns.py`.
            tokens: positions, in a response, of the tokens that are generated; None: all, up to max_new_tokens.
        """

    def log_likelihood(self, pairs: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """Yield log_likelihood, in nats, and number of tokens of each response to its prompt, batch by batch.

        The end of the sequence counts, unless the response is cut. A response that is too long for the model has NaN.

        Args:
            pairs: columns `text` and `persona` of the prompt, and `response`; and, where they are known, the token ids
                in which the response was written (`response_ids`), and whether it is `cut`.
        """
        raise InputError("model", self.without_likelihoods)

    def contexts(self, prompts: pd.DataFrame) -> list[str]:
        """Return the texts that a model with weights reads before its responses.

        Args:
            prompts: columns `text` and `persona`.
        """
        raise InputError("model", self.without_weights)

    def predictions(self, prompts: pd.DataFrame, listed_tokens: int) -> "Predictions":
        """Return the predictions of the first token of the response to each prompt.

        Temperature, top-k and top-p have no influence.

        Args:
            prompts: columns `prompt_id`, `text` and `persona`.
            listed_tokens: the number of likeliest tokens that a server is asked for; other models give all.
        """
        raise InputError("model", self.without_predictions or f"{self.name} gives no predictions of tokens.")

    def score_sentences(
        self, sentences: pd.DataFrame, *, context: str = "", end_of_sequence: bool = False
    ) -> Iterator[pd.DataFrame]:
        """Yield log_likelihood, in nats, number of tokens, and variant (which log-likelihood it is) of each sentence.

        Args:
            sentences: the column `text`.
            context: the text that the model reads before each sentence, which is not scored.
            end_of_sequence: whether the end of the sequence is scored, too.
        """
        raise InputError("model", self.without_weights)

    def load(self) -> "DialogueModel":
        """Return the network and the tokenizer of a model with weights, which are loaded once."""
        raise InputError("model", self.without_weights)

    def close(self) -> None:
        """Free the memory of the model, which is loaded again when it is needed."""
        from accelerate.utils.memory import clear_device_cache  # imports torch

        clear_device_cache(garbage_collection=True)


def prompt_seed(prompt_id: str, seed: int) -> int:
    """Return the 64-bit seed of a prompt: a hash of the prompt's id and the run's seed, equal on every machine."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{prompt_id}".encode(), digest_size=8).digest(), "big")


def response_batch(
    prompts: pd.DataFrame,
    texts: Sequence[str | None],
    reasons: Sequence[str | None] | None = None,
    more: Mapping[str, Sequence[object]] | None = None,
    strip: Sequence[str] = (),
) -> pd.DataFrame:
    """Return the responses to some prompts: prompt_id, response, left_out (why it is not scored) and more columns.

    The index is that of the prompts. A text None is reasoning that did not end: the response is "", and left out.
    `reasons` are other reasons why responses are left out. `strip` are the kinds of other text to remove; the column
    other_text names the kinds that are left (`language/other_text`).
    """
    reasons = [None] * len(texts) if reasons is None else reasons
    asked = prompts[columns.TEXT].tolist() if columns.TEXT in prompts else [""] * len(texts)
    responses = [text or "" for text in texts]
    if strip:
        responses = [strip_other_text(text, prompt, strip) for text, prompt in zip(responses, asked, strict=True)]
    table = {
        columns.PROMPT_ID: prompts[columns.PROMPT_ID].tolist(),
        columns.RESPONSE: responses,
        columns.OTHER_TEXT: [" ".join(other_text(text, prompt)) for text, prompt in zip(responses, asked, strict=True)],
        columns.LEFT_OUT: [
            UNFINISHED_REASONING if text is None else reason for text, reason in zip(texts, reasons, strict=True)
        ],
    }
    return pd.DataFrame({**table, **(more or {})}, index=prompts.index)
