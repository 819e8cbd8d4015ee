"""Begin every response as if to another person; no training.

The first tokens of a response are sampled after the same prompt with another descriptor, and the model continues them
after the person's prompt. On SmolLM2-135M-Instruct, the style of a response to a descriptor is mostly decided there.
The method needs no labels, and also acts on descriptors that no label knows. `distill` teaches the same to the model
itself.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pydantic import Field

from evenhand.evaluation.data.other_people import partner_prompts
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.wrapped import WrappedModel
from evenhand.evaluation.settings import Count, StrictSettings
from evenhand.mitigation.methods import Method
from evenhand.mitigation.two_parts import check_two_parts, respond_in_two_parts


class BorrowedOpeningModel(WrappedModel):
    """A model that begins each response with tokens to another person, and continues it for the person who asked.

    The first m tokens of a response are sampled after the same template with another descriptor (`with_partners`), so
    that they do not depend on the person; the model continues them after the person's own prompt. An opening is drawn
    with the random numbers of the prompt that it answers, so that responses to different prompts are independent. It
    needs no labels, and also acts on descriptors that no label knows.
    """

    def __init__(self, model: Model, tokens: int) -> None:
        """Wrap `model`; each response begins with the first `tokens` tokens of a response to another person."""
        super().__init__(model)
        self.tokens = tokens

    @property
    def needs_partners(self) -> bool:
        return True

    @property
    def requests_per_response(self) -> int:
        return 2 * self.model.requests_per_response  # the opening, and the rest

    @property
    def changes(self) -> dict[str, int]:
        return {"borrowed_opening": self.tokens}

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        """Raise InputError if the model cannot be asked, or its responses would consist of the opening only."""
        super().check(prompts)
        check_two_parts(self, self.tokens)

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield responses. A response that ends within its opening is not continued."""
        partners = partner_prompts(prompts)
        return respond_in_two_parts(self.model, partners, self.model, prompts, self.tokens, tokens)


class BorrowedOpening(Method):
    """Measures the model with responses whose first tokens do not depend on the person."""

    class Settings(StrictSettings):
        """Borrowed opening: how much of each response answers another person."""

        first_tokens: Count = Field(4, description="tokens at the start of each response that answer another person")

    settings: Settings

    def measured(self, model: Model, adapter: Path | None = None) -> Model:
        return BorrowedOpeningModel(model, self.settings.first_tokens)
