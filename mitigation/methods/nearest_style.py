"""Answer in the style of a response to another person; no training.

Of several candidates, the nearest in style to a response to another person is the answer. The contents stay the
person's own. Generation takes one response more than there are candidates.
"""

from typing import Annotated

from pydantic import Field

from evenhand.evaluation.models.model import Model
from evenhand.evaluation.models.wrapped import NearestStyleModel
from evenhand.evaluation.settings import MAX_COUNT, StrictSettings
from evenhand.mitigation.methods import Method

Candidates = Annotated[int, Field(ge=2, le=MAX_COUNT)]


class NearestStyle(Method):
    """Measures the model with responses whose styles come from other people's responses."""

    class Settings(StrictSettings):
        """Nearest style: from how many candidates the answer is chosen."""

        candidates: Candidates = Field(
            4, description="candidates, of which the nearest in style to a response to another person is the answer"
        )

    def measured(self, model: Model) -> Model:
        return NearestStyleModel(model, self.settings.candidates, self.style_classifier)
