"""KTO on labelled responses that are encoded as in generation; both classes have the same total weight."""

from typing import Any

import numpy as np
from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainers import RowTrainer
from evenhand.mitigation.training_rows import COMPLETION, prompt_ids, response_ids

LABEL = "label"  # a column of TRL: true for desirable responses


class KTO(RowTrainer, KTOTrainer):
    """TRL's KTOTrainer on encoded rows, `prompt_ids`, `completion_ids`, `KL_completion_ids` and `label`.

    `seed` shuffles the rows. `KL_completion_ids` is the response of another row of the batch, from which the trainer
    estimates its reference point (Ethayarajh et al. 2024, §4.1), so the trainer must read the rows in this order.
    """

    config_class, loss_name, needs_reference = KTOConfig, "KTO’s", True

    @staticmethod
    def encode_rows(base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
        rows = rows.select(np.random.default_rng(seed).permutation(len(rows)))
        prompts = prompt_ids(base, rows)
        completions = response_ids(base, rows, COMPLETION, prompts)
        mismatched = []
        for start in range(0, len(completions), settings.batch_size):
            batch = completions[start : start + settings.batch_size]
            mismatched += batch[-1:] + batch[:-1]
        columns = {"prompt_ids": prompts, "completion_ids": completions, "KL_completion_ids": mismatched}
        return Dataset.from_dict({**columns, LABEL: list(rows[LABEL])})

    @classmethod
    def target_responses(cls, rows: Dataset) -> tuple[list[str], list[str]]:
        """Return the contexts and responses of the desirable rows."""
        return super().target_responses(rows.select(np.flatnonzero(rows[LABEL])))

    @staticmethod
    def config_fields(settings: TuningSettings, train: Dataset) -> dict[str, Any]:
        """Return the fields of the config; both classes have the same total weight, and the mean weight is 1."""
        n_desirable = sum(train[LABEL])
        return {
            "max_length": None,
            "pad_to_multiple_of": None,
            "beta": settings.preference_beta,
            "desirable_weight": len(train) / (2 * max(n_desirable, 1)),
            "undesirable_weight": len(train) / (2 * max(len(train) - n_desirable, 1)),
        }

    # A private hook of TRL 1.16: only SFTConfig has a public argument that skips tokenization (skip_prepare_dataset).
    def _prepare_dataset(self, dataset: Dataset, *args: Any, **kwargs: Any) -> Dataset:
        return dataset
