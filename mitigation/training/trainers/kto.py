"""KTOTrainer on labelled responses that are encoded as in generation; both classes have the same total weight."""

from typing import Any

import numpy as np
from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.training.arguments import trainer_config
from evenhand.mitigation.training.data import COMPLETION, PROMPT, check_columns, prompt_ids, response_ids
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import TrainingMethod

LABEL = "label"  # a column of TRL: true for desirable responses


class Trainer(KTOTrainer):
    """TRL's KTOTrainer for rows that are already tokenized."""

    # A private hook of TRL 1.16: only SFTConfig has a public argument that skips tokenization (skip_prepare_dataset).
    def _prepare_dataset(self, dataset: Dataset, *args: Any, **kwargs: Any) -> Dataset:
        return dataset


class KTO(TrainingMethod):
    """KTOTrainer on labelled responses that are encoded as in generation; both classes have the same total weight."""

    trainer = Trainer
    loss = "KTO’s"
    needs_reference = True

    def encode_rows(self, base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
        """Return the rows as `prompt_ids`, `completion_ids`, `KL_completion_ids` and `label`, shuffled by `seed`.

        `KL_completion_ids` is the response of another row of the batch, from which the trainer estimates its reference
        point (Ethayarajh et al. 2024, §4.1). The trainer must therefore read the rows in this order.

        Raises:
            InputError: see `TrainingMethod`.
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

    def target_responses(self, rows: Dataset) -> tuple[list[str], list[str]]:
        """Return the contexts and responses of the desirable rows."""
        desirable = rows.select(np.flatnonzero(rows[LABEL]))
        return list(desirable[PROMPT]), list(desirable[COMPLETION])

    def build_config(self, common: dict[str, Any], settings: TuningSettings, train: Dataset) -> KTOConfig:
        """Return the trainer's config; both classes have the same total weight, and the mean weight of a row is 1."""
        n_desirable = sum(train[LABEL])
        fields = {
            **common,
            "max_length": None,
            "pad_to_multiple_of": None,
            "beta": settings.preference_beta,
            "desirable_weight": len(train) / (2 * max(n_desirable, 1)),
            "undesirable_weight": len(train) / (2 * max(len(train) - n_desirable, 1)),
        }
        return trainer_config(KTOConfig, fields, settings)
