"""Trainers: each module here takes one of TRL's; nothing else has to know of it, a method names it by `TRAINER`."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import transformers
    from datasets import Dataset

    from evenhand.evaluation.models.loading import DialogueModel
    from evenhand.mitigation.training.settings import TuningSettings


class TrainerModule(Protocol):
    """What a module of this package holds.

    Trainer: a class of TRL's, or a subclass, that takes rows encoded already.
    LOSS: what its loss is, for the model card.
    NEEDS_REFERENCE: it holds the model against the one it was: with an adapter, the one without it; else a copy.
    TAKES_ENCODER_DECODER: whether it trains encoder-decoder models.
    """

    Trainer: "type[transformers.Trainer]"
    LOSS: str
    NEEDS_REFERENCE: bool
    SUPPORTS_ENCODER_DECODER: bool

    def encode_rows(self, base: "DialogueModel", rows: "Dataset", settings: "TuningSettings", seed: int) -> "Dataset":
        """Return a method's rows as token ids.

        Raises:
            InputError: there are no rows, a column is missing, a row is too long for the model, or two prompts that
                differ are the same to the tokenizer.
        """

    def target_responses(self, rows: "Dataset") -> tuple[list[str], list[str]]:
        """Return contexts and the responses that the rows would have the model give to them."""

    def arguments(
        self, common: dict[str, Any], settings: "TuningSettings", train: "Dataset"
    ) -> "transformers.TrainingArguments":
        """Return the trainer's arguments: `common`, which all are told, and its own."""

    def data_collator(self, base: "DialogueModel", pad_token_id: int) -> Callable[..., dict[str, Any]] | None:
        """Return what makes a batch of encoded rows; None is TRL's own."""


def load_trainer(name: str) -> TrainerModule:
    """Return the trainer of this name."""
    return cast(TrainerModule, import_module(f"{__name__}.{name}"))
