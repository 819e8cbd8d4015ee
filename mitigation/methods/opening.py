"""Begin every response with `distill`'s adapter, and continue it with the base.

The adapter is trained on rows that are cut after the first tokens, which takes less time than whole responses. It is
switched on for the first tokens of a response only: later tokens are the base's own. Labels are not used. Serving the
method needs the base with and without the adapter, so that it cannot be merged.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.wrapped import WrappedModel
from evenhand.evaluation.settings import Count, StrictSettings
from evenhand.mitigation.labelled_responses import MAX_TOKENS, ContextRenderer
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.methods.distill import Distill
from evenhand.mitigation.tuned_base import base_of
from evenhand.mitigation.two_parts import check_two_parts, respond_in_two_parts

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset

    from evenhand.evaluation.models.loading import DialogueModel


class OpenedModel(WrappedModel):
    """A tuned model that writes the first tokens of each response, and its base, which continues it."""

    def __init__(self, tuned: Model, base: Model, tokens: int) -> None:
        """Wrap `tuned`; its base writes all but the first `tokens` tokens of a response."""
        super().__init__(tuned)
        self.base = base
        self.tokens = tokens

    @property
    def changes(self) -> dict[str, int]:
        return {"opening": self.tokens}

    def with_settings(self, **changes: object) -> "OpenedModel":
        return OpenedModel(self.model.with_settings(**changes), self.base.with_settings(**changes), self.tokens)

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        """Raise InputError if the model cannot be asked, or its responses would consist of the opening only."""
        super().check(prompts)
        check_two_parts(self, self.tokens)

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield responses. A response that ends within its opening is not continued."""
        return respond_in_two_parts(self.model, prompts, self.base, prompts, self.tokens, tokens)

    def log_likelihood(self, pairs: pd.DataFrame) -> Iterator[pd.DataFrame]:
        from evenhand.evaluation.models.contexts import render_contexts
        from evenhand.evaluation.models.likelihood.tokens import encode_rows
        from evenhand.mitigation.two_part_likelihoods import two_part_log_likelihoods

        base = self.load()
        contexts = render_contexts(base, pairs[columns.TEXT].tolist(), pairs[columns.PERSONA].tolist(), self.tag)
        ids = encode_rows(base, contexts, pairs)
        log_p, n_tokens = two_part_log_likelihoods(self.model.load(), base, self.tokens, *ids)
        yield pd.DataFrame({columns.LOG_LIKELIHOOD: log_p, columns.TOKENS: n_tokens}, index=pairs.index)

    def score_sentences(
        self, sentences: pd.DataFrame, *, context: str = "", end_of_sequence: bool = False
    ) -> Iterator[pd.DataFrame]:
        """Yield the base's scores: a sentence is no response, and has no opening."""
        return self.base.score_sentences(sentences, context=context, end_of_sequence=end_of_sequence)

    def load(self) -> "DialogueModel":
        return self.base.load()

    def close(self) -> None:
        self.model.close()
        self.base.close()


class Opening(TrainedMethod):
    """Trains on the first tokens of `distill`'s rows, and measures the adapter at these tokens."""

    class Settings(StrictSettings):
        """Opening: how many tokens the adapter writes."""

        first_tokens: Count = Field(4, description="tokens at the start of each response that the adapter writes")
        spare_own_words: bool = Field(False, description="as of `distill`")

    settings: Settings
    trainer = "distill"
    reads_labels = False
    changes_weights = False
    acting_settings = ("first_tokens",)
    defaults = Distill.defaults
    large_model_learning_rate = 1e-3  # nothing but the first tokens can be damaged

    def trainer_arguments(self) -> dict[str, float]:
        return {
            "first_tokens": self.settings.first_tokens,
            "label_smoothing_factor": 0.0,
        }

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> "Dataset":
        settings = Distill.Settings.model_validate({"spare_own_words": self.settings.spare_own_words})
        rows = Distill(settings, seed=self.seed).rows(labelled, render)
        return rows.add_column(MAX_TOKENS, np.full(len(rows), self.settings.first_tokens))

    def measured(self, model: Model, adapter: Path | None = None) -> Model:
        tuned = super().measured(model, adapter)
        return OpenedModel(tuned, base_of(tuned), self.settings.first_tokens)
