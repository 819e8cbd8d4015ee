"""DPOTrainer on pairs of responses that are encoded as in generation."""

from typing import Any

import numpy as np
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.training.arguments import trainer_config
from evenhand.mitigation.training.data import PROMPT, check_columns, prompt_ids, response_ids
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import TrainingMethod

CHOSEN, REJECTED = "chosen", "rejected"


class Trainer(DPOTrainer):
    """DPOTrainer on encoded rows."""

    # A private hook of TRL 1.16: only SFTConfig has a public argument that skips tokenization (skip_prepare_dataset).
    def _prepare_dataset(self, dataset: Dataset, *args: Any, **kwargs: Any) -> Dataset:
        return dataset


class DPO(TrainingMethod):
    """DPOTrainer on pairs of responses that are encoded as in generation."""

    trainer = Trainer
    loss = "DPO’s"
    needs_reference = True

    def encode_rows(self, base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
        """Return the rows as `prompt_ids`, `chosen_ids` and `rejected_ids`, shuffled by `seed`.

        Raises:
            InputError: see `TrainingMethod`.
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

    def target_responses(self, rows: Dataset) -> tuple[list[str], list[str]]:
        """Return the contexts and the chosen responses."""
        return list(rows[PROMPT]), list(rows[CHOSEN])

    def build_config(self, common: dict[str, Any], settings: TuningSettings, train: Dataset) -> DPOConfig:
        """Return the trainer's config. Rows are read in order, so a resumed training continues with the next row."""
        fields = {
            **common,
            "max_length": None,
            "pad_to_multiple_of": None,
            "beta": settings.preference_beta,
            "train_sampling_strategy": "sequential",
        }
        return trainer_config(DPOConfig, fields, settings)
