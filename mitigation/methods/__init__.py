"""The methods of mitigation: one class in one module each; a method's name is the name of its module."""

import ast
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.errors import InputError, unknown_name

if TYPE_CHECKING:  # these imports would delay the command line
    import pandas as pd
    from datasets import Dataset

    from evenhand.mitigation.labelling.labelled_responses import ContextRenderer


class Method:
    """A way to turn labelled responses into a less biased model.

    Attributes:
        trainer: the module of `evenhand.mitigation.training.trainers` that trains on the rows. None: nothing is
            trained, and the model is measured with `instruction`, or with `resamples`.
        instruction: a system prompt, for methods that train nothing.
        resamples: whether the model is measured with responses that are drawn from candidates by the labels' even
            target.
        inference_tag: the control tag at the end of every context of the tuned model; "" for none.
        tags: all strings that get a meaning in training.
        uses_threshold: whether the rows depend on the labels. If not, the points of an ablation that differ only in
            their threshold are one point.
        defaults: values of `TuningSettings` that suit the testbed's model; they replace null.
        large_model_learning_rate: default for LoRA on models of more than 10 M parameters, if the method was measured
            on one; None: the default of the method's trainer.
    """

    trainer: str | None = None
    instruction: str = ""
    resamples: bool = False
    inference_tag: str = ""
    tags: tuple[str, ...] = ()
    uses_threshold: bool = True
    defaults: Mapping[str, Any] = {}
    large_model_learning_rate: float | None = None

    def rows(self, labelled: "pd.DataFrame", render: "ContextRenderer", seed: int = 0) -> "Dataset":
        """Return training rows: the columns of the trainer, and `context`, the context without a control tag.

        Rows with the same `context` are held out for validation together.

        Raises:
            InputError: the labelled responses give no row, or the method trains nothing.
        """
        self.check_trains()
        raise TypeError(f"{type(self).__name__} has a trainer, and lacks the method `rows`")

    def check_trains(self) -> None:
        """Raise InputError if the method trains nothing."""
        if self.trainer is None:
            name = type(self).__module__.rpartition(".")[2]
            how = "--generation_bias.resampling.exponents" if self.resamples else "its text as --model.system_prompt"
            raise InputError(f"method: {name} trains nothing; give it to `evenhand loop`, or measure with {how}.")


def names() -> list[str]:
    """Return the names of all methods."""
    return [module.name for module in iter_modules(__path__)]


def summaries() -> dict[str, str]:
    """Return the first line of each method's docstring, by the method's name; no module is imported."""
    sources = {name: Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8") for name in names()}
    return {name: str(ast.get_docstring(ast.parse(text))).split("\n")[0] for name, text in sources.items()}


def load_method(name: str) -> Method:
    """Return the method in the module `name`.

    Raises:
        InputError: the method is unknown.
    """
    if name not in names():
        raise unknown_name("method", name, names())
    module = import_module(f"{__name__}.{name}")
    return next(
        value() for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__
    )
