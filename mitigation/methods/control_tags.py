"""Fine-tune with a control tag at the end of the context (Smith et al. 2022).

Source: Smith et al. 2022, §4.2 and C.1, whose targets are `labels`: each labelled response is a row, with " bias" or
" no_bias" at the end of its context. With " no_bias" there, a model tuned on such rows gives less biased responses.
Without a tag, it may be more biased than the original, because training had no such context. As in `rejection`, the
mean style drifts towards the style of the responses labelled `no_bias`.

With the targets `predictions`, the default, the model learns to predict, after " no_bias", what `distill` teaches: the
base's mean prediction for different people in the first tokens of a response, and the base's own in later ones. Labels
are not used, and the tag switches an activated adapter on: without the tag, the model is the base, token by token.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.settings import WITHOUT_FLAG, StrictSettings
from evenhand.mitigation.labelled_responses import (
    SPARES_OWN_WORDS,
    ContextRenderer,
    rows_of_several_people,
    untagged_rows,
)
from evenhand.mitigation.labels import BIAS, NO_BIAS
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.methods.distill import Distill

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset

BIAS_TAG = f" {BIAS}"
NO_BIAS_TAG = f" {NO_BIAS}"
TAGS = {BIAS: BIAS_TAG, NO_BIAS: NO_BIAS_TAG}


class ControlTags(TrainedMethod):
    """Trains on the labelled responses with the tags of their labels, or on predictions after " no_bias"."""

    class Settings(StrictSettings):
        """Control tags: what the model learns to do after the tag."""

        targets: Literal["predictions", "labels"] = Field(
            "predictions",
            description="predictions: the base's mean prediction for different people, by an adapter that acts after "
            "the tag only; labels: the responses with the tag of their label (Smith et al. 2022)",
            json_schema_extra=WITHOUT_FLAG,
        )
        spare_own_words: bool = Field(
            False, description="with predictions, as of `distill`", json_schema_extra=WITHOUT_FLAG
        )

    settings: Settings
    control_tag = NO_BIAS_TAG

    def __init__(self, settings: StrictSettings | None = None, **options: Any) -> None:
        super().__init__(settings, **options)
        if self.settings.targets == "labels":
            self.tags = tuple(TAGS.values())
            self.defaults = {"learning_rate": 4e-3, "epochs": 2}
        else:
            self.trainer = Distill.trainer
            self.is_activated = True
            self.reads_labels = False
            self.defaults = Distill.defaults
            self.large_model_learning_rate = 1e-3  # fewer positions learn than in `distill`

    def trainer_arguments(self) -> dict[str, float]:
        if self.settings.targets == "labels":
            return {}
        return Distill(seed=self.seed).trainer_arguments()

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> "Dataset":
        if self.settings.targets == "predictions":
            rows = rows_of_several_people(labelled, render, NO_BIAS_TAG, self.seed)
            if self.settings.spare_own_words:
                rows = rows.add_column(SPARES_OWN_WORDS, [True] * len(rows))
            return rows
        contexts = np.full(len(labelled), "", dtype=object)
        for label, tag in TAGS.items():
            has_label = (labelled[columns.LABEL] == label).to_numpy()
            rows = labelled[has_label]
            contexts[has_label] = render(rows[columns.TEXT].tolist(), rows[columns.PERSONA].tolist(), tag)
        return untagged_rows(labelled, render, contexts.tolist())
