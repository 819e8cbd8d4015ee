"""A model that wraps a model, to change what it is asked or which of its responses is the answer."""

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

import pandas as pd

from evenhand.evaluation.data.other_people import partner_rows
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.models.base import Model

if TYPE_CHECKING:  # imports torch
    from evenhand.evaluation.models.loading import DialogueModel


class WrappedModel(Model):
    """A model that passes everything on to another model; a subclass changes what is asked or answered."""

    def __init__(self, model: Model) -> None:
        """Wrap the model."""
        super().__init__(model.settings, model.decoding, tag=model._tag, seed=model.seed)
        self.model = model
        self.note = model.note
        self.without_weights = model.without_weights
        self.can_be_asked = model.can_be_asked

    @property
    def requests_per_response(self) -> int:
        return self.model.requests_per_response

    @property
    def needs_partners(self) -> bool:
        return self.model.needs_partners

    @property
    def arguments(self) -> dict[str, Any]:
        return self.model.arguments

    @property
    def without_likelihoods(self) -> str:
        return self.model.without_likelihoods

    @property
    def n_parameters(self) -> int:
        return self.model.n_parameters

    @property
    def is_chat(self) -> bool:
        return self.model.is_chat

    @property
    def is_masked(self) -> bool:
        return self.model.is_masked

    @property
    def samples(self) -> bool:
        return self.model.samples

    def with_settings(self, **changes: object) -> "WrappedModel":
        wrapped = copy(self)
        WrappedModel.__init__(wrapped, self.model.with_settings(**changes))
        return wrapped

    @property
    def changes(self) -> dict[str, Json]:
        """What is changed, as entries of the model in a score's signature."""
        return {}

    @property
    def description(self) -> dict[str, Json]:
        return {**self.model.description, **self.changes}

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        self.model.check(prompts)
        if self.needs_partners and prompts is not None and not len(partner_rows(prompts).columns):
            raise InputError("prompts", "they have no columns of other people's prompts; add them by `with_partners`.")

    def check_memory(self) -> None:
        self.model.check_memory()

    def check_likelihoods(self) -> None:
        self.model.check_likelihoods()

    def has_revision(self, revision: str) -> bool:
        return self.model.has_revision(revision)

    def identity(self) -> dict[str, Json]:
        self.check()
        return self.model.identity()

    def facts(self) -> dict[str, Any]:
        facts = self.model.facts()
        return {**facts, "model": {**facts["model"], **self.changes}}

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        return self.model.respond(prompts, tokens)

    def log_likelihood(self, pairs: pd.DataFrame) -> Iterator[pd.DataFrame]:
        return self.model.log_likelihood(pairs)

    def score_sentences(
        self, sentences: pd.DataFrame, *, context: str = "", end_of_sequence: bool = False
    ) -> Iterator[pd.DataFrame]:
        return self.model.score_sentences(sentences, context=context, end_of_sequence=end_of_sequence)

    def load(self) -> "DialogueModel":
        return self.model.load()

    def close(self) -> None:
        self.model.close()
