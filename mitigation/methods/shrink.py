"""Shrink what depends on the person from the hidden states that decide the first tokens of a response.

Linear maps of hidden states, fitted in closed form (`hidden_state_maps`), act at the positions that predict the first
tokens of a response, after three late layers. No weight changes and nothing is trained: `tune` fits the maps within
minutes, to the contexts of `distill`'s rows and the first tokens of their responses. Labels are not used. The maps
cannot be merged into weights, and act on models that this process runs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.wrapped import WrappedModel
from evenhand.evaluation.settings import WITHOUT_FLAG, Count, StrictSettings
from evenhand.mitigation.labelled_responses import OTHERS, ContextRenderer, contexts_of_others, untagged_rows
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.tuned_base import base_of

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset

MAPS_FILE = "shrink.safetensors"


class ShrunkModel(WrappedModel):
    """A model whose hidden states are mapped while it predicts the first tokens of a response."""

    def __init__(self, model: Model, folder: Path, strength: float) -> None:
        """Wrap the base model; `folder` has the file of the maps."""
        super().__init__(model)
        self.file = folder / MAPS_FILE
        self.strength = strength

    @property
    def changes(self) -> dict[str, Json]:
        return {"shrink": self.strength, "shrink_maps": sha256_of(self.file)}

    def identity(self) -> dict[str, Json]:
        return {**super().identity(), "shrink_maps": sha256_of(self.file)}

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        """Raise InputError if the model is not in this process, or decodes by beams."""
        super().check(prompts)
        if self.without_weights:
            raise InputError("method", f"shrink maps hidden states: {self.without_weights}")
        if (self.arguments.get("num_beams") or 1) > 1:
            raise InputError("decoding", "shrink maps the hidden states of one sequence at a time; use no beams.")

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        from evenhand.mitigation.hidden_state_maps import edited_generation, load_maps

        first = 0 if tokens is None else tokens.start
        with edited_generation(self.load().model, load_maps(self.file), self.strength, first):
            yield from self.model.respond(prompts, tokens)

    def log_likelihood(self, pairs: pd.DataFrame) -> Iterator[pd.DataFrame]:
        from evenhand.evaluation.models.contexts import render_contexts
        from evenhand.evaluation.models.likelihood.tokens import encode_rows
        from evenhand.mitigation.edited_likelihoods import edited_log_likelihoods
        from evenhand.mitigation.hidden_state_maps import load_maps

        model = self.load()
        contexts = render_contexts(model, pairs[columns.TEXT].tolist(), pairs[columns.PERSONA].tolist(), self.model.tag)
        ids = encode_rows(model, contexts, pairs)
        log_p, n_tokens = edited_log_likelihoods(model, load_maps(self.file), self.strength, *ids)
        yield pd.DataFrame({columns.LOG_LIKELIHOOD: log_p, columns.TOKENS: n_tokens}, index=pairs.index)


class Shrink(TrainedMethod):
    """Fits maps to the contexts of several people, and measures the base with them."""

    class Settings(StrictSettings):
        """Shrink: how the maps are fitted, and how much of them is used."""

        first_tokens: Count = Field(
            4,
            description="how many tokens at the start of a response are predicted from mapped states",
            json_schema_extra=WITHOUT_FLAG,
        )
        ridge: Annotated[float, Field(gt=0)] = Field(
            0.3,
            description="share of the mean variance that is added to the covariance of hidden states",
            json_schema_extra=WITHOUT_FLAG,
        )
        strength: Annotated[float, Field(ge=0)] = Field(
            1.0, description="factor of the maps when the model is measured: 0 is the base"
        )

    settings: Settings
    tuner = "closed_form"
    trainer = "distill"  # whose rows the maps are fitted to
    reads_labels = False
    changes_weights = False
    acting_settings = ("strength",)
    defaults = {**TrainedMethod.defaults, "max_rows": 240}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> "Dataset":
        has_others, contexts = contexts_of_others(labelled, render, self.seed)
        return untagged_rows(labelled.loc[has_others], render).add_column(OTHERS, contexts.tolist())

    def measured(self, model: Model, adapter: Path | None = None) -> Model:
        base = base_of(model) if adapter is None else model
        return ShrunkModel(base, Path(model.name) if adapter is None else adapter, self.settings.strength)
