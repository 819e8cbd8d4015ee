"""The methods of mitigation, each a class in a module of this package; a method's name is the name of its module."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.classes import load_class, module_names, own_folders
from evenhand.evaluation.errors import InputError

if TYPE_CHECKING:  # these imports would delay the command line
    import pandas as pd
    from datasets import Dataset

    from evenhand.mitigation.labelled_responses import ContextRenderer

__path__ += own_folders("methods")


class Method(ABC):
    """A way to turn labelled responses into a less biased model.

    Attributes:
        trainer: the name in `evenhand.mitigation.trainers.TRAINERS` of the trainer; None: nothing is trained.
        instruction: a system prompt that the model is measured with; "" for none.
        opens: whether the first tokens of responses answer another person.
        exchanges_style: whether responses are chosen from several candidates by the style of another person's.
        needs_labels: whether responses must be labelled first.
        inference_tag: the control tag at the end of every context of the tuned model; "" for none.
        tags: all strings that get a meaning in training.
        uses_threshold: whether the rows depend on the labels. If not, the points of an ablation that differ only in
            their threshold are one point.
        defaults: values of `TuningSettings` that suit the testbed's model; they replace null.
        large_model_learning_rate: default for LoRA on models of more than 10 M parameters, if the method was measured
            on one; None: the default of the method's trainer.
    """

    trainer: str | None = "sft"
    instruction: str = ""
    opens: bool = False
    exchanges_style: bool = False
    needs_labels: bool = True
    inference_tag: str = ""
    tags: tuple[str, ...] = ()
    uses_threshold: bool = True
    defaults: Mapping[str, Any] = {"learning_rate": 4e-3}
    large_model_learning_rate: float | None = None

    def __init__(self, seed: int = 0) -> None:
        """Set the seed by which the method samples its rows."""
        self.seed = seed

    @abstractmethod
    def rows(self, labelled: "pd.DataFrame", render: "ContextRenderer") -> "Dataset":
        """Return training rows: the columns of the trainer, and `context`, the context without a control tag.

        Rows with the same `context` are held out for validation together.

        Args:
            labelled: a row for each labelled response: the columns of the prompts, `response`, `cut` (whether
                max_new_tokens ended it) and `label` ("bias" or "no_bias").
            render: renders prompts and personas as contexts with a control tag.

        Raises:
            InputError: the labelled responses give no row.
        """


class UntrainedMethod(Method):
    """A method that changes how the model is asked, not its weights."""

    trainer = None
    uses_threshold = False

    def rows(self, labelled: "pd.DataFrame", render: "ContextRenderer") -> "Dataset":
        name = type(self).__module__.rpartition(".")[2]
        raise InputError("method", f"{name} trains nothing; give it to `evenhand loop`.")


def names() -> list[str]:
    """Return the names of all methods."""
    return module_names(__name__)


def load_method(name: str) -> type[Method]:
    """Return a method's class.

    Raises:
        InputError: the method is unknown.
    """
    return load_class(__name__, name, Method, "method")
