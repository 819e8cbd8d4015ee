"""Answer in the style of a response to another person; no training.

Of several candidates, the nearest in style to a response to another person is the answer. The contents stay the
person's own. A prompt takes as many responses as there are candidates, and one more.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.other_people import partner_prompts, partner_rows
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import StyleClassifierSettings
from evenhand.evaluation.models.base import CANDIDATES, Model
from evenhand.evaluation.models.classifiers import Classifier
from evenhand.evaluation.models.wrapped import WrappedModel
from evenhand.evaluation.settings import MAX_COUNT, StrictSettings
from evenhand.evaluation.tables import join_batches
from evenhand.mitigation.methods import Method

CHUNK = 256  # prompts whose candidates are sampled and classified together, and lost if the run is killed
Candidates = Annotated[int, Field(ge=2, le=MAX_COUNT)]


class NearestStyleModel(WrappedModel):
    """A model that answers in the style of its response to another person, with its own contents.

    K candidates are sampled for each prompt, and one more response after the same template with another descriptor
    (`with_partners`). The candidate whose style vector is nearest to this response's is the answer. With many
    candidates, styles no longer depend on the person. It needs no labels, also acts on descriptors that no label knows,
    and works with any server.
    """

    def __init__(self, model: Model, candidates: int, classifier: StyleClassifierSettings | None) -> None:
        """Wrap `model`, with K candidates; without a style classifier, the model can only be checked."""
        super().__init__(model)
        self.candidates = candidates
        self.classifier = classifier

    @property
    def needs_partners(self) -> bool:
        return True

    @property
    def requests_per_response(self) -> int:
        return (self.candidates + 1) * self.model.requests_per_response

    @property
    def changes(self) -> dict[str, int]:
        return {"nearest_style": self.candidates}

    def check(self, prompts: pd.DataFrame | None = None) -> None:
        """Raise InputError if the model cannot be asked, or the candidates of a prompt would be equal."""
        super().check(prompts)
        if not self.can_be_asked:
            raise InputError("method", "a file has no candidates; leave it out, or give a model.")
        if not self.samples:
            raise InputError("method", "the decoding gives equal candidates; let it sample.")

    def respond(self, prompts: pd.DataFrame, tokens: range | None = None) -> Iterator[pd.DataFrame]:
        """Yield responses, chosen from candidates, the first of which is the model's own response.

        The column CANDIDATES has the texts of all candidates for a prompt.
        """
        from evenhand.evaluation.models.classifier_kinds import load_style_classifier

        if self.classifier is None:
            raise InputError("style_classifier", "none is given, and nearest_style compares styles; give one.")
        classifier = load_style_classifier(self.classifier)
        for start in range(0, len(prompts), CHUNK):
            yield self._choose(classifier, prompts.iloc[start : start + CHUNK], tokens)

    def _choose(self, classifier: Classifier, prompts: pd.DataFrame, tokens: range | None) -> pd.DataFrame:
        """Return the response to each prompt: the candidate in the style that is nearest to another person's."""
        from evenhand.evaluation.models.styles import classify_responses

        n = len(prompts)
        repeated = prompts.iloc[np.repeat(np.arange(n), self.candidates)].reset_index(drop=True)
        endings = [""]
        endings += [f"/{number}" for number in range(1, self.candidates)]
        repeated[columns.PROMPT_ID] = [
            f"{prompt_id}{ending}" for prompt_id in prompts[columns.PROMPT_ID] for ending in endings
        ]
        candidates = join_batches(self.model.respond(repeated, tokens))
        vectors = classify_responses(classifier, candidates[columns.RESPONSE].tolist(), repeated)
        partners = partner_prompts(prompts).reset_index(drop=True)
        partners[columns.PROMPT_ID] = partners[columns.PROMPT_ID].astype(str) + "/other"
        others = join_batches(self.model.respond(partners, tokens))
        target = classify_responses(classifier, others[columns.RESPONSE].tolist(), partner_rows(prompts))
        chosen = nearest_candidates(vectors.reshape(n, self.candidates, -1), target)
        texts = candidates[columns.RESPONSE].to_numpy(dtype=object).reshape(n, self.candidates)
        responses = candidates.iloc[np.arange(n) * self.candidates + chosen].set_index(prompts.index)
        responses[columns.PROMPT_ID] = prompts[columns.PROMPT_ID]
        responses[CANDIDATES] = list(texts)
        return responses


def nearest_candidates(vectors: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return, for each of n responses, the index of the candidate nearest in style (Euclidean distance) to a target.

    Candidates whose vector is NaN are chosen last; for a target of NaN, the first candidate is returned.

    Args:
        vectors: style vectors of the candidates, (n, K, S).
        target: style vector of another response for each prompt, (n, S).
    """
    distance = ((vectors - target[:, None]) ** 2).sum(axis=2)
    return np.where(np.isnan(distance), np.inf, distance).argmin(axis=1)


class NearestStyle(Method):
    """Measures the model with responses whose styles come from other people's responses."""

    class Settings(StrictSettings):
        """Nearest style: from how many candidates the answer is chosen."""

        candidates: Candidates = Field(
            4,
            description="number of candidates; the one nearest in style to a response to another person is the answer",
        )

    settings: Settings

    def measured(self, model: Model, adapter: Path | None = None) -> Model:
        return NearestStyleModel(model, self.settings.candidates, self.style_classifier)
