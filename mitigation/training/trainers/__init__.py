"""Ways to train: each module of this package has one class around a trainer of TRL.

`Method.trainer` is the name of the module.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import transformers

from evenhand.evaluation.errors import unknown_name

if TYPE_CHECKING:
    from datasets import Dataset

    from evenhand.evaluation.models.loading import DialogueModel
    from evenhand.mitigation.training.settings import TuningSettings


class TrainingMethod(ABC):
    """How the rows of a method are encoded and trained on.

    Attributes:
        trainer: a trainer of TRL, or a subclass, that takes encoded rows.
        loss: the name or unit of the trainer's loss, for the model card.
        needs_reference: whether the loss compares the model with its base. With an adapter, the reference is the model
            without the adapter; else a copy of the base.
        needs_lora: whether training needs the model without its adapter, so that not all weights can be trained.
        supports_encoder_decoder: whether the trainer supports encoder-decoder models.
    """

    trainer: type[transformers.Trainer]
    loss: str
    needs_reference: bool = False
    needs_lora: bool = False
    supports_encoder_decoder: bool = False

    @abstractmethod
    def encode_rows(self, base: "DialogueModel", rows: "Dataset", settings: "TuningSettings", seed: int) -> "Dataset":
        """Return a method's rows as token ids.

        Raises:
            InputError: the rows are empty or lack a column; a row is too long for the model; the tokenizer encodes
                different prompts as the same tokens.
        """

    @abstractmethod
    def target_responses(self, rows: "Dataset") -> tuple[list[str], list[str]]:
        """Return the contexts of the rows, and the responses that training makes more likely."""

    @abstractmethod
    def build_config(
        self, common: dict[str, Any], settings: "TuningSettings", train: "Dataset"
    ) -> "transformers.TrainingArguments":
        """Return the trainer's config: the fields `common` of all trainers, and the fields of this trainer.

        Raises:
            InputError: see `evenhand.mitigation.training.arguments.trainer_config`.
        """

    def data_collator(self, base: "DialogueModel", pad_token_id: int) -> Callable[..., dict[str, Any]] | None:
        """Return a function that collates encoded rows into a batch; None for TRL's collator."""
        return None


def names() -> list[str]:
    """Return the names of all trainers."""
    return [module.name for module in iter_modules(__path__)]


def load_trainer(name: str) -> TrainingMethod:
    """Return the training method in the module `name`.

    Raises:
        InputError: the trainer is unknown.
    """
    if name not in names():
        raise unknown_name("trainer", name, names())
    module = import_module(f"{__name__}.{name}")
    return next(
        value()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, TrainingMethod) and value.__module__ == module.__name__
    )
