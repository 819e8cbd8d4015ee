"""Train to prefer a response to another person over the person's own most biased response.

A row is one descriptor at one template: its chosen response was given to another descriptor of the same template
(`exchange`), and its rejected response is the one of the descriptor's own with the largest bias value. The base, which
is the model without its adapter, is the reference.

Source: Rafailov et al. 2023, "Direct Preference Optimization: Your Language Model is Secretly a Reward Model", eq. 7.
"""

from typing import TYPE_CHECKING, Annotated

import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.settings import WITHOUT_FLAG, StrictSettings
from evenhand.mitigation.labelled_responses import (
    REJECTED,
    REJECTED_CUT,
    REJECTED_IDS,
    ContextRenderer,
    exchange_responses,
    untagged_rows,
)
from evenhand.mitigation.methods import TrainedMethod

if TYPE_CHECKING:  # slow to import
    from datasets import Dataset


class Preference(TrainedMethod):
    """Trains on a row for each descriptor at each template: `prompt`, `context`, `completion` (chosen), `rejected`."""

    class Settings(StrictSettings):
        """Preference: how near the model stays to the base."""

        beta: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
            0.1,
            description="β of DPO: the larger, the nearer the model stays to the base",
            json_schema_extra=WITHOUT_FLAG,
        )

    settings: Settings
    trainer = "preference"
    reads_labels = False
    reads_bias_values = True
    defaults = {"learning_rate": 1e-3, "batch_size": 16}
    large_model_learning_rate = 5e-5

    def trainer_arguments(self) -> dict[str, float]:
        return {"beta": self.settings.beta}

    def rows(self, labelled: pd.DataFrame, render: ContextRenderer) -> "Dataset":
        table = labelled.reset_index(drop=True)
        exchanged = exchange_responses(table, self.seed)
        own = table.loc[exchanged.index]
        worst = own.groupby([columns.TEMPLATE, columns.DESCRIPTOR], sort=False)[columns.BIAS_VALUE].idxmax()
        rejected = own.loc[worst]
        rows = untagged_rows(exchanged.loc[worst], render)
        for column, name in (
            (columns.RESPONSE, REJECTED),
            (columns.CUT, REJECTED_CUT),
            (columns.RESPONSE_IDS, REJECTED_IDS),
        ):
            if column in rejected:
                rows = rows.add_column(name, rejected[column].tolist())
        return rows
