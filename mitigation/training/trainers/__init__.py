"""Trainers: each module of this package wraps a trainer of TRL. `TRAINER` of a method is the module's name."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import transformers

from evenhand.evaluation.contracts import check_contract, load_module, module_names

if TYPE_CHECKING:
    from datasets import Dataset

    from evenhand.evaluation.models.loading import DialogueModel
    from evenhand.mitigation.training.settings import TuningSettings


class TrainerModule(Protocol):
    """The attributes of a module of this package. A module's functions have no parameter `self`.

    Trainer: a trainer of TRL, or a subclass, that takes encoded rows.
    LOSS: the name or unit of the trainer's loss, for the model card.
    NEEDS_REFERENCE: whether the loss compares the model with its base. With an adapter, the reference is the model
        without the adapter; else a copy of the base.
    NEEDS_LORA: whether training needs the model without its adapter, so that not all weights can be trained.
    SUPPORTS_ENCODER_DECODER: whether the trainer supports encoder-decoder models.
    """

    Trainer: type[transformers.Trainer]
    LOSS: str
    NEEDS_REFERENCE: bool = False
    NEEDS_LORA: bool = False
    SUPPORTS_ENCODER_DECODER: bool = False

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
    return module_names(__name__)


def load_trainer(name: str) -> TrainerModule:
    """Return a trainer's module, checked against its contract.

    Raises:
        InputError: the trainer is unknown, or its module does not fulfil the contract.
    """
    return check_contract(load_module(__name__, name, "trainer"), TrainerModule)
