"""Trainers, each a class in a module of this package that derives from a trainer of TRL.

`Method.trainer` is the module's name.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import transformers
from datasets import Dataset

from evenhand.evaluation.classes import load_class
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.training_rows import COMPLETION, PROMPT


class RowTrainer(ABC):
    """What a class of this package defines in addition to the trainer of TRL that it derives from.

    Attributes:
        config_class, loss_name: the trainer's config in TRL, and the name or unit of its loss.
        response_column: the column of the responses that training makes more likely.
        needs_reference: whether the loss compares the model with its base. With an adapter, the reference is the model
            without the adapter; else a copy of the base.
        needs_lora: whether training needs the model without its adapter, so that not all weights can be trained.
        supports_encoder_decoder: whether the trainer supports encoder-decoder models.
    """

    config_class: type[transformers.TrainingArguments]
    loss_name: str
    response_column: str = COMPLETION
    needs_reference: bool = False
    needs_lora: bool = False
    supports_encoder_decoder: bool = False

    @staticmethod
    @abstractmethod
    def encode_rows(base: DialogueModel, rows: Dataset, settings: TuningSettings, seed: int) -> Dataset:
        """Return a method's rows as token ids.

        Raises:
            InputError: a row is too long for the model, or the tokenizer encodes different prompts as the same tokens.
        """

    @staticmethod
    @abstractmethod
    def config_fields(settings: TuningSettings, train: Dataset) -> dict[str, Any]:
        """Return the fields of the config that only this trainer has; `train` are the encoded training rows."""

    @staticmethod
    def collator(base: DialogueModel, pad_token_id: int) -> Callable[..., dict[str, Any]] | None:
        """Return a function that collates encoded rows into a batch; None for TRL's collator."""
        return None

    @classmethod
    def target_responses(cls, rows: Dataset) -> tuple[list[str], list[str]]:
        """Return the contexts of the rows, and the responses that training makes more likely."""
        return list(rows[PROMPT]), list(rows[cls.response_column])


def load_trainer(name: str) -> type[RowTrainer]:
    """Return a trainer's class.

    Raises:
        InputError: the trainer is unknown.
    """
    return load_class(__name__, name, RowTrainer, "trainer")
