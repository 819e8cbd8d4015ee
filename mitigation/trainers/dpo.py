"""DPO on pairs of responses that are encoded as in generation."""

from typing import Any

import numpy as np
from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainers import RowTrainer
from evenhand.mitigation.training_rows import prompt_ids, response_ids

CHOSEN, REJECTED = "chosen", "rejected"


class DPO(RowTrainer, DPOTrainer):
    """TRL's DPOTrainer on encoded rows, `prompt_ids`, `chosen_ids` and `rejected_ids`, which `seed` shuffles."""

    config_class, loss_name, response_column, needs_reference = DPOConfig, "DPO’s", CHOSEN, True

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
        rows = rows.select(np.random.default_rng(seed).permutation(len(rows)))
        prompts = prompt_ids(base, rows)
        responses = {f"{name}_ids": response_ids(base, rows, name, prompts) for name in (CHOSEN, REJECTED)}
        return Dataset.from_dict({"prompt_ids": prompts, **responses})

    @staticmethod
    def config_fields(settings: TuningSettings, train: Dataset) -> dict[str, Any]:
        # Rows are read in order, so that a resumed training continues with the next row.
        order = {"train_sampling_strategy": "sequential"}
        return {"max_length": None, "pad_to_multiple_of": None, "beta": settings.preference_beta, **order}

    # A private hook of TRL 1.16: only SFTConfig has a public argument that skips tokenization (skip_prepare_dataset).
    def _prepare_dataset(self, dataset: Dataset, *args: Any, **kwargs: Any) -> Dataset:
        return dataset
