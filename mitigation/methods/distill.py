"""Fine-tune on the base's mean prediction for different people.

A row has a response, its prompt, and prompts that differ in the descriptor only. The base model predicts each token of
the response after each of these prompts. After the response's own prompt and one of the others, the tuned model learns
to predict the mean of these predictions for the first tokens (`first_tokens`), which decide the language and a part of
the style, and the base's own prediction for the rest, which answers the person. A row of `exchange` is one random token
at each position, and a row of `distill` is a whole distribution, so fewer rows suffice. Labels are not used,
unless `only_bias` is set.

Sources: Hinton, Vinyals and Dean 2015, "Distilling the Knowledge in a Neural Network" (soft targets); Garg et al. 2019,
"Counterfactual Fairness in Text Classification through Robustness" (equal outputs for prompts that differ in a group).
"""

from typing import TYPE_CHECKING, Annotated

import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.settings import WITHOUT_FLAG, Count, StrictSettings
from evenhand.mitigation.labelled_responses import (
    IS_EVEN,
    SPARES_OWN_WORDS,
    ContextRenderer,
    contexts_of_others,
    rows_of_several_people,
)
from evenhand.mitigation.labels import BIAS
from evenhand.mitigation.methods import TrainedMethod

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset


class Distill(TrainedMethod):
    """Trains on the rows of `rows_of_several_people`."""

    class Settings(StrictSettings):
        """Distill: which tokens of which responses are evened out."""

        first_tokens: Count = Field(
            4,
            description="how many tokens at the start of a response learn the mean over people; later ones learn the "
            "base's own prediction. With more, answers refer less to what people say about themselves; "
            "1000: all",
        )

        min_divergence: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
            0.0,
            description="responses whose predictions of these tokens depend less on who asks, in nats of divergence, "
            "learn the base's own prediction",
        )
        only_bias: bool = Field(
            False,
            description="responses that are not labelled `bias` learn the base's own prediction",
            json_schema_extra=WITHOUT_FLAG,
        )
        spare_own_words: bool = Field(
            False,
            description="the words by which people name themselves keep each person's own prediction, and the rest is "
            "evened out",
        )

    settings: Settings
    trainer = "distill"
    defaults = {"learning_rate": 4e-3, "batch_size": 2, "max_rows": 560}
    large_model_learning_rate = 3e-4  # 1e-3 changes the later tokens, too, and ends at a higher validation loss

    @property
    def reads_labels(self) -> bool:
        return self.settings.only_bias

    def trainer_arguments(self) -> dict[str, float]:
        return {
            "first_tokens": self.settings.first_tokens,
            "min_divergence": self.settings.min_divergence,
            "label_smoothing_factor": 0.0,  # the loss smooths nothing
        }

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> "Dataset":
        rows = rows_of_several_people(labelled, render, "", self.seed)
        if self.settings.only_bias:
            receivers = labelled.loc[contexts_of_others(labelled, render, self.seed)[0]]
            rows = rows.add_column(IS_EVEN, (receivers[columns.LABEL] == BIAS).tolist())
        if self.settings.spare_own_words:
            rows = rows.add_column(SPARES_OWN_WORDS, [True] * len(rows))
        return rows
