"""A model whose weights are in this process: loaded when it is first needed."""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.base import Model, prompt_seed, response_batch
from evenhand.evaluation.models.chat_templates import NO_TEMPLATE, read_template
from evenhand.evaluation.models.decoding import arguments_of_part, check_no_beams
from evenhand.evaluation.models.revisions import is_adapter, is_revision, model_revision
from evenhand.evaluation.settings import Access, as_settings
from evenhand.evaluation.tables import label_batches

if TYPE_CHECKING:  # imports torch
    from evenhand.evaluation.models.loading import DialogueModel
    from evenhand.evaluation.models.predictions import Predictions

SERVED_FIELDS = ("source", "concurrency")  # settings with a value that say nothing of a loaded model


class LoadedModel(Model):
    """A causal, encoder-decoder or masked model in this process; `engine` is set for a model that is loaded already."""

    SETTING = "model"
    engine: "DialogueModel | None" = None

    @classmethod
    def access(cls, settings: ModelSettings) -> Collection[Access]:
        return tuple(Access)

    def load(self) -> "DialogueModel":
        from evenhand.evaluation.models.activation import invocation_of
        from evenhand.evaluation.models.contexts import render_contexts
        from evenhand.evaluation.models.loading import load_dialogue_model

        if self.engine is None:
            self.engine = load_dialogue_model(self.settings)
            if invocation_of(self.engine.model) is not None:  # of an adapter on the hub, nothing was known before
                check_no_beams(self.arguments)
            _check_invocation(self.engine, render_contexts(self.engine, ["Hello."], [""], self.engine.control_tag))
        return self.engine

    def close(self) -> None:
        self.engine = None
        super().close()

    @cached_property
    def is_masked(self) -> bool:
        from evenhand.evaluation.models.loading import is_masked_lm

        return is_masked_lm(self.settings)

    @cached_property
    def revision(self) -> str:
        """The commit, or a hash of the files, of the model."""
        return model_revision(self.name, self.settings.revision, self.settings.base)

    @property
    def is_chat(self) -> bool:
        return self.load().kind == "chat"

    def has_revision(self, revision: str) -> bool:
        return is_revision(revision, self.name, self.settings.revision, self.settings.base)

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        from evenhand.evaluation.models.activation import invocation_in
        from evenhand.evaluation.models.checkpoints import resolve_device

        super().check(prompts)
        if self.settings.strip:
            raise InputError("model.strip", "it is for the answers of a server or a file; set stop_strings.")
        resolve_device(self.settings.device)
        adapter = Path(self.name).expanduser()
        if is_adapter(adapter) and invocation_in(adapter) is not None:
            check_no_beams(self.arguments)

    def check_memory(self) -> None:
        from evenhand.evaluation.models.memory import check_fits  # imports torch

        check_fits(self.settings)

    def identity(self) -> dict[str, Json]:
        """Return the revision of the model and, if a file replaces its chat template, the hash of the template."""
        if self.settings.chat_template is None:
            return {"model": self.revision}
        template = read_template(self.settings.chat_template)
        return {"model": self.revision, "chat_template": sha256(template.encode()).hexdigest()}

    @property
    def description(self) -> dict[str, Json]:
        settings = {name: value for name, value in as_settings(self.settings).items() if name not in SERVED_FIELDS}
        return {**settings, "revision": self.revision}

    def facts(self) -> dict[str, Any]:
        """Return the entries of a signature, with the precision that "auto" resolved to and the format of prompts."""
        from evenhand.evaluation.models.contexts import prompt_format

        facts = super().facts()
        loaded = self.load()
        facts["model"]["dtype"] = str(loaded.model.dtype).removeprefix("torch.")
        facts["format"] = prompt_format(loaded)
        if loaded.kind == "dialogue" and not loaded.tokenizer.chat_template:
            facts["format"]["template"] = NO_TEMPLATE
        return facts

    def contexts(self, prompts: pd.DataFrame) -> list[str]:
        from evenhand.evaluation.models.contexts import render_contexts

        loaded = self.load()
        contexts = render_contexts(loaded, prompts[columns.TEXT].tolist(), prompts[columns.PERSONA].tolist(), self.tag)
        if self.tag == loaded.control_tag:
            _check_invocation(loaded, contexts)
        return contexts

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield responses, their token ids, whether max_new_tokens cut them, and whether they had reasoning.

        The model reads `contexts`, and samples by the random numbers of its prompt's id.
        """
        from evenhand.evaluation.models.generation import generate_responses

        contexts = self.contexts(prompts)
        batches = generate_responses(
            self.load(),
            contexts,
            [prompt_seed(prompt_id, self.seed) for prompt_id in prompts[columns.PROMPT_ID]],
            self.arguments if tokens is None else arguments_of_part(self.arguments, tokens),
            openings=self._openings(prompts, contexts) if columns.OPENING in prompts else None,
            first=0 if tokens is None else tokens.start,
            batch_size=self.decoding.batch_size,
        )
        for responses in batches:
            yield response_batch(
                prompts.iloc[list(responses)],
                [response.text for response in responses.values()],
                more={
                    columns.RESPONSE_IDS: [response.ids for response in responses.values()],
                    columns.CUT: [response.is_cut for response in responses.values()],
                    columns.REASONED: [response.had_reasoning for response in responses.values()],
                },
            )

    def _openings(self, prompts: pd.DataFrame, contexts: Sequence[str]) -> list[list[int]]:
        """Return the token ids with which the responses begin: the ids that were written, else those of the text."""
        from evenhand.evaluation.models.contexts import encode_continuations, written_ids

        texts = prompts[columns.OPENING].tolist()
        openings = encode_continuations(self.load(), contexts, texts)
        written = prompts[columns.OPENING_IDS].tolist() if columns.OPENING_IDS in prompts else None
        for row, ids in written_ids(self.load(), texts, written, is_cut=[True] * len(texts)).items():
            openings[row] = ids
        return openings

    def log_likelihood(self, pairs: pd.DataFrame) -> Iterator[pd.DataFrame]:
        from evenhand.evaluation.models.likelihood.tokens import encode_rows, pair_log_likelihoods

        batches = pair_log_likelihoods(self.load(), *encode_rows(self.load(), self.contexts(pairs), pairs))
        return label_batches(batches, (columns.LOG_LIKELIHOOD, columns.TOKENS), pairs.index)

    def predictions(self, prompts: pd.DataFrame, listed_tokens: int) -> "Predictions":
        from evenhand.evaluation.models.contexts import encode_contexts
        from evenhand.evaluation.models.likelihood.first_token import first_token_log_probabilities
        from evenhand.evaluation.models.own_words import own_word_ids
        from evenhand.evaluation.models.predictions import Predictions

        loaded = self.load()
        contexts = self.contexts(prompts)
        return Predictions(
            log_p=first_token_log_probabilities(loaded, contexts),
            text_of=lambda token: str(loaded.tokenizer.decode([token])),
            own_words=own_word_ids(loaded.tokenizer, encode_contexts(loaded, contexts)),
        )

    def score_sentences(
        self, sentences: pd.DataFrame, *, context: str = "", end_of_sequence: bool = False
    ) -> Iterator[pd.DataFrame]:
        from evenhand.evaluation.models.likelihood.sentences import sentence_log_likelihoods

        return sentence_log_likelihoods(self.load(), sentences, context, end_of_sequence)


def _check_invocation(model: "DialogueModel", contexts: Sequence[str]) -> None:
    """Raise InputError if a context lacks the tokens of the model's activated adapter: the model would be its base."""
    from evenhand.evaluation.models.activation import invocation_of, last_occurrence
    from evenhand.evaluation.models.contexts import encode_contexts

    invocation = invocation_of(model.model)
    if invocation is None:
        return
    for context, ids in zip(contexts, encode_contexts(model, contexts), strict=True):
        if last_occurrence(ids, invocation) is None:
            raise InputError(
                "model",
                f"the adapter {model.name} acts after the tokens {model.tokenizer.decode(invocation)!r}, which the "
                f"context {context[-80:]!r} lacks, so that its base would answer; give the chat template and the base "
                "with which the adapter was trained.",
            )
