"""Begin every response as if to another person; no training.

The first tokens of a response are sampled after the same prompt with another descriptor, and the model continues them
after the person's prompt. On SmolLM2-135M-Instruct, the style of a response to a descriptor is mostly decided there.
The method needs no labels, and also acts on descriptors that no label knows. `distill` teaches the same to the model
itself.
"""

from pydantic import Field

from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.wrapped import BorrowedOpeningModel
from evenhand.evaluation.settings import Count, StrictSettings
from evenhand.mitigation.methods import Method


class BorrowedOpening(Method):
    """Measures the model with responses whose first tokens do not depend on the person."""

    class Settings(StrictSettings):
        """Borrowed opening: how much of each response answers another person."""

        first_tokens: Count = Field(4, description="tokens at the start of each response that answer another person")

    def measured(self, model: Model) -> Model:
        return BorrowedOpeningModel(model, self.settings.first_tokens)
