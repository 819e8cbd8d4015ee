"""The methods of mitigation: the attributes of a method's module, and functions that load and check such a module."""

import ast
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from evenhand.evaluation.contracts import check_contract, load_module, module_names
from evenhand.evaluation.errors import InputError

if TYPE_CHECKING:  # these imports would delay the command line
    import pandas as pd
    from datasets import Dataset

    from evenhand.mitigation.labelling.labelled_responses import ContextRenderer


class Method(Protocol):
    """The attributes that every method's module must have. A module's functions have no parameter `self`.

    TRAINER: the module of `evenhand.mitigation.training.trainers` that trains on the rows. None: nothing is trained,
        and the model is measured with INSTRUCTION.
    INSTRUCTION: a system prompt; required if TRAINER is None.
    RESAMPLES: whether the model is measured with responses that are drawn from candidates by the labels' even target.
    INFERENCE_TAG: the control tag at the end of every context of the tuned model; "" for none.
    TAGS: all strings that get a meaning in training.
    USES_THRESHOLD: whether the rows depend on the labels. If not, the points of an ablation that differ only in their
        threshold are one point.
    DEFAULTS: values of `TuningSettings` that suit the testbed's model; they replace null.
    LARGE_MODEL_LEARNING_RATE: default for LoRA on models of more than 10 M parameters, if the method was measured on
        one; None: the default of the method's trainer.
    """

    TRAINER: str | None
    INSTRUCTION: str
    RESAMPLES: bool = False
    INFERENCE_TAG: str = ""
    TAGS: tuple[str, ...] = ()
    USES_THRESHOLD: bool = True
    DEFAULTS: Mapping[str, Any] = {}
    LARGE_MODEL_LEARNING_RATE: float | None = None


class TrainedMethod(Method, Protocol):
    """The module of a method that trains a model."""

    TRAINER: str
    INSTRUCTION: str = ""

    @abstractmethod
    def rows(self, labelled: "pd.DataFrame", render: "ContextRenderer", seed: int) -> "Dataset":
        """Return training rows: the columns of the trainer, and `context`, the context without a control tag.

        Rows with the same `context` are held out for validation together.

        Raises:
            InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`; the labelled responses
                give no row.
        """


def names() -> list[str]:
    """Return the names of all methods."""
    return module_names(__name__)


def summaries() -> dict[str, str]:
    """Return the first line of each method's docstring, by the method's name; no module is imported."""
    sources = {name: Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in names()}
    return {name: str(ast.get_docstring(ast.parse(text))).split("\n")[0] for name, text in sources.items()}


def load_method(name: str) -> Method:
    """Return a method's module, checked against `TrainedMethod`, or against `Method` if its TRAINER is None.

    Raises:
        InputError: the method is unknown, or its module does not fulfil the contract.
    """
    module = load_module(__name__, name, "method")
    trains = vars(module).get("TRAINER", "") is not None
    return check_contract(module, TrainedMethod if trains else Method)


def load_trained_method(name: str) -> TrainedMethod:
    """Return the module of a method that trains a model.

    Raises:
        InputError: see `load_method`; the method trains nothing.
    """
    method = load_method(name)
    if method.TRAINER is None:
        raise InputError(
            f"method: {name} trains nothing; give it to `evenhand loop`, or measure with "
            + ("--generation_bias.resampling.exponents." if method.RESAMPLES else "its text as --model.system_prompt.")
        )
    return method
