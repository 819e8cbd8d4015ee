"""Fine-tune on the base's mean prediction for different people.

A row has a response, its prompt, and prompts that differ in the descriptor only. The base model predicts each token of
the response after each of these prompts. After the response's own prompt and one of the others, the tuned model learns
to predict the mean of these predictions for the first tokens (`first_tokens`), which decide the language and a part of
the style, and the base's own prediction for the rest, which answers the person. A row of `exchange` is one random token
at each position, and a row of `distill` is a whole distribution, so fewer rows suffice. Labels are not used.

Sources: Hinton, Vinyals and Dean 2015, "Distilling the Knowledge in a Neural Network" (soft targets); Garg et al. 2019,
"Counterfactual Fairness in Text Classification through Robustness" (equal outputs for prompts that differ in a group).
"""

from typing import TYPE_CHECKING

import pandas as pd
from pydantic import Field

from evenhand.evaluation.settings import Count, StrictSettings
from evenhand.mitigation.labelled_responses import ContextRenderer, rows_of_several_people
from evenhand.mitigation.methods import TrainedMethod

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset


class Distill(TrainedMethod):
    """Trains on the rows of `rows_of_several_people`."""

    class Settings(StrictSettings):
        """Distill: how many tokens of a response are evened out."""

        first_tokens: Count = Field(
            4,
            description="how many tokens at the start of a response learn the mean over people; later ones learn the "
            "base's own prediction. With more, answers refer less to what people say about themselves; "
            "1000: all",
        )

    settings: Settings
    trainer = "distill"
    reads_labels = False
    defaults = {"learning_rate": 4e-3, "batch_size": 2, "max_rows": 560}
    large_model_learning_rate = 3e-4  # 1e-3 changes the later tokens, too, and ends at a higher validation loss

    def trainer_arguments(self) -> dict[str, float]:
        return {"first_tokens": self.settings.first_tokens, "label_smoothing_factor": 0.0}  # its loss smooths nothing

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> "Dataset":
        return rows_of_several_people(labelled, render, "", self.seed)
