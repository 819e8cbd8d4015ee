"""KTOTrainer on responses with a label: rows encoded as generation encodes them, both classes weighing the same."""

from typing import Any

import numpy as np
from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.training.passthrough import trainer_config
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers.encoding import COMPLETION, PROMPT, check_columns, prompt_ids, response_ids

LABEL = "label"  # TRL's name: true is desirable
LOSS, NEEDS_REFERENCE, SUPPORTS_ENCODER_DECODER = "KTO’s", True, False


def encode_rows(base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
    """Return the rows as `prompt_ids`, `completion_ids` and `label`, in an order drawn by the seed, with
    `KL_completion_ids`, the response of another row of the batch, from which the trainer estimates its reference
    point (Ethayarajh et al. 2024, §4.1).

    The trainer takes rows in the order given, for a batch is to hold the mismatched responses of its own rows.

    Raises:
        InputError: there are no rows, a column is missing, or a row is too long for the model.
    """
    check_columns(rows, PROMPT, COMPLETION, LABEL)
    rows = rows.select(np.random.default_rng(seed).permutation(len(rows)))
    prompts = prompt_ids(base, rows)
    completions = response_ids(base, rows, COMPLETION, prompts)
    mismatched = []
    for start in range(0, len(completions), settings.batch_size):
        batch = completions[start : start + settings.batch_size]
        mismatched += batch[-1:] + batch[:-1]
    return Dataset.from_dict(
        {
            "prompt_ids": prompts,
            "completion_ids": completions,
            "KL_completion_ids": mismatched,
            LABEL: list(rows[LABEL]),
        }
    )


def target_responses(rows: Dataset) -> tuple[list[str], list[str]]:
    """Return the contexts and responses of the desirable rows."""
    desirable = rows.select(np.flatnonzero(rows[LABEL]))
    return list(desirable[PROMPT]), list(desirable[COMPLETION])


def arguments(common: dict[str, Any], settings: TuningSettings, train: Dataset) -> KTOConfig:
    """Return the trainer's settings; the rarer class weighs more, so that both count the same, 1 on average."""
    desirable = sum(train[LABEL])
    told = {
        **common,
        "max_length": None,
        "pad_to_multiple_of": None,
        "beta": settings.preference_beta,
        "desirable_weight": len(train) / (2 * max(desirable, 1)),
        "undesirable_weight": len(train) / (2 * max(len(train) - desirable, 1)),
    }
    return trainer_config(KTOConfig, told, settings)


def data_collator(base: DialogueModel, pad_token_id: int) -> None:
    """Return None: TRL's own collator is for these columns."""


class Trainer(KTOTrainer):
    """KTOTrainer on rows that are encoded already."""

    # A private hook of TRL 1.16, which has a public argument for this in SFTConfig alone (skip_prepare_dataset).
    def _prepare_dataset(self, dataset: Dataset, *args: Any, **kwargs: Any) -> Dataset:
        return dataset

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write none: every checkpoint would get one, and ours is written once, with what was measured."""
