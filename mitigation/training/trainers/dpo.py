"""DPOTrainer on pairs of responses: rows encoded as generation encodes them, in an order that survives a kill."""

from typing import Any

import numpy as np
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.training.passthrough import trainer_config
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers.encoding import PROMPT, check_columns, prompt_ids, response_ids

CHOSEN, REJECTED = "chosen", "rejected"
LOSS, NEEDS_REFERENCE, SUPPORTS_ENCODER_DECODER = "DPO’s", True, False


def encode_rows(base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
    """Return the rows as `prompt_ids`, `chosen_ids` and `rejected_ids`, in an order drawn by the seed.

    Raises:
        InputError: there are no rows, a column is missing, or a row is too long for the model.
    """
    check_columns(rows, PROMPT, CHOSEN, REJECTED)
    rows = rows.select(np.random.default_rng(seed).permutation(len(rows)))
    prompts = prompt_ids(base, rows)
    return Dataset.from_dict(
        {
            "prompt_ids": prompts,
            "chosen_ids": response_ids(base, rows, CHOSEN, prompts),
            "rejected_ids": response_ids(base, rows, REJECTED, prompts),
        }
    )


def target_responses(rows: Dataset) -> tuple[list[str], list[str]]:
    """Return the contexts and the chosen responses."""
    return list(rows[PROMPT]), list(rows[CHOSEN])


def arguments(common: dict[str, Any], settings: TuningSettings, train: Dataset) -> DPOConfig:
    """Return the trainer's settings; it takes rows in their order, so that a resumed run goes on with the next one."""
    told = {
        **common,
        "max_length": None,
        "pad_to_multiple_of": None,
        "beta": settings.preference_beta,
        "train_sampling_strategy": "sequential",
    }
    return trainer_config(DPOConfig, told, settings)


def data_collator(base: DialogueModel, pad_token_id: int) -> None:
    """Return None: TRL's own collator is for these columns."""


class Trainer(DPOTrainer):
    """DPOTrainer on rows that are encoded already."""

    # A private hook of TRL 1.16, which has a public argument for this in SFTConfig alone (skip_prepare_dataset).
    def _prepare_dataset(self, dataset: Dataset, *args: Any, **kwargs: Any) -> Dataset:
        return dataset

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: every checkpoint would get one, and ours is written once, with what was measured."""
