"""The methods of mitigation, each a class in a module of this package; a method's name is the name of its module.

`a+b` is both methods: the model is tuned by `a`, and measured as `b` measures it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import StyleClassifierSettings
from evenhand.evaluation.models.decoding import check_no_beams
from evenhand.evaluation.plugins import load_class, module_names, user_folders
from evenhand.evaluation.settings import StrictSettings

if TYPE_CHECKING:  # these imports would delay the command line
    from pathlib import Path

    import pandas as pd
    from datasets import Dataset

    from evenhand.evaluation.models.base import Model
    from evenhand.mitigation.labelled_responses import ContextRenderer

__path__ += user_folders("methods")

JOIN = "+"  # between the names of methods that are used together


class NoSettings(StrictSettings):
    """A method without settings."""


class Method(ABC):
    """A way to make a model less biased: by other weights, by how it is asked, or by which of its responses is taken.

    Attributes:
        Settings: the class of the method's settings.
        settings: the settings.
        seed: the seed by which the method samples.
        style_classifier: the classifier of the measured styles, for methods that choose responses by their style.
    """

    Settings: ClassVar[type[StrictSettings]] = NoSettings

    def __init__(
        self,
        settings: StrictSettings | None = None,
        *,
        seed: int = 0,
        style_classifier: StyleClassifierSettings | None = None,
    ) -> None:
        self.settings = self.Settings() if settings is None else settings
        self.seed = seed
        self.style_classifier = style_classifier

    @property
    def name(self) -> str:
        """The method's name, which is the name of its module."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def training_part(self) -> "TrainedMethod | None":
        """The part of the method that trains the model; None: the method trains nothing."""
        return None

    @abstractmethod
    def measured(self, model: "Model", adapter: "Path | None" = None) -> "Model":
        """Return the model that is measured with this method, not loaded.

        Args:
            model: the base model; or, if the method trains and `adapter` is None, the tuned model.
            adapter: the folder of the adapter that `tune` made; a method that trains nothing has none.
        """


class TrainedMethod(Method):
    """A method that trains the model on rows made of its labelled responses.

    Attributes:
        tuner: the name of the function in `evenhand.mitigation.tuners.TUNERS` that makes the tuned model.
        trainer: the name of the trainer in `evenhand.mitigation.trainers.TRAINERS`.
        control_tag: the control tag at the end of every context of the tuned model; "" for none.
        tags: all strings whose embeddings are trained.
        is_activated: whether the adapter acts from the control tag on only (`evenhand.evaluation.models.activation`).
        reads_labels: whether the rows depend on the labels. If not, points of an ablation that differ only in the
            threshold of the labels are one point.
        reads_bias_values: whether the rows depend on which response of a person has the largest bias value.
        changes_weights: whether the tuned model has weights of its own. If not, its folder is no model that other
            metrics than those of responses could read.
        acting_settings: the names of the settings by which the tuned model is measured and loaded.
        defaults: values of `TuningSettings` that suit the testbed's model; they replace null.
        large_model_learning_rate: default for LoRA on models of more than 10 M parameters, if the method was measured
            on one; None: the default of `TuningSettings`.
    """

    tuner: ClassVar[str] = "training"
    trainer: str = "sft"
    control_tag: ClassVar[str] = ""
    tags: Sequence[str] = ()
    is_activated: bool = False
    reads_labels: bool = True
    reads_bias_values: ClassVar[bool] = False
    changes_weights: ClassVar[bool] = True
    acting_settings: ClassVar[Sequence[str]] = ()
    defaults: Mapping[str, float] = {"learning_rate": 4e-3}
    large_model_learning_rate: float | None = None

    @property
    def training_part(self) -> "TrainedMethod":
        return self

    def trainer_arguments(self) -> dict[str, float]:
        """Return the arguments that the method's trainer needs beyond those of every trainer."""
        return {}

    def check_decoding(self, arguments: Mapping[str, Any]) -> None:
        """Raise InputError if the tuned model cannot answer with these arguments of `generate`."""
        if self.is_activated:
            check_no_beams(arguments)

    @abstractmethod
    def rows(self, labelled: "pd.DataFrame", render: "ContextRenderer") -> "Dataset":
        """Return training rows with the columns that the trainer reads, and `context`.

        Of "sft", these are `prompt`, a rendered context with its control tag, and `completion`, the response to learn;
        `untagged_rows` of `labelled_responses` makes such rows of responses as they are, and `rows_of_several_people`
        those of "distill". `context` is the context without a control tag: rows with the same one are held out for
        validation together.

        Args:
            labelled: a row for each labelled response: the columns of the prompts, `response`, `cut` (whether
                max_new_tokens ended it) and `label` ("bias" or "no_bias").
            render: renders prompts and personas as contexts with a control tag.

        Raises:
            InputError: the labelled responses give no row.
        """

    def measured(self, model: "Model", adapter: "Path | None" = None) -> "Model":
        """Return the tuned model: the folder of the adapter says which base and which control tag it needs."""
        return model if adapter is None else model.with_settings(name=str(adapter), revision=None)


class CombinedMethod(Method):
    """Several methods, used together: `distill+nearest_style` measures the distilled model with `nearest_style`."""

    def __init__(self, parts: Sequence[Method]) -> None:
        super().__init__(seed=parts[0].seed, style_classifier=parts[0].style_classifier)
        self.parts = parts

    @property
    def name(self) -> str:
        return JOIN.join(part.name for part in self.parts)

    @property
    def training_part(self) -> TrainedMethod | None:
        return self.parts[0].training_part

    def measured(self, model: "Model", adapter: "Path | None" = None) -> "Model":
        for part in self.parts:
            model = part.measured(model) if part.training_part is None else part.measured(model, adapter)
        return model


def names() -> list[str]:
    """Return the names of all methods."""
    return module_names(__name__)


def method_class(name: str) -> type[Method]:
    """Return the class of a method.

    Raises:
        InputError: the method is unknown.
    """
    return load_class(__name__, name, Method, "method")


def load_method(
    name: str,
    settings: Mapping[str, StrictSettings] | None = None,
    *,
    seed: int = 0,
    style_classifier: StyleClassifierSettings | None = None,
) -> Method:
    """Return a method, or several joined by "+".

    Args:
        name: the name, such as "distill" or "distill+nearest_style".
        settings: the settings of methods by their names; a method without settings here has its defaults.
        seed, style_classifier: see `Method`.

    Raises:
        InputError: a method is unknown, or one that trains comes after another.
    """
    settings = settings or {}
    parts = []
    for part_name in name.split(JOIN):
        part_class = method_class(part_name)
        part = part_class(settings.get(part_name), seed=seed, style_classifier=style_classifier)
        if part.training_part is not None and parts:
            raise InputError("method", f"{name!r}: {part_name} trains the model; only the first method can.")
        parts.append(part)
    return parts[0] if len(parts) == 1 else CombinedMethod(parts)


def reads_labels(name: str, settings: Mapping[str, object]) -> bool:
    """Return whether a model was tuned on labels.

    Args:
        name: the name of the method that trained it.
        settings: the settings of its tuning, among them the method's, as evenhand.json has them.

    >>> reads_labels("distill", {"only_bias": False}), reads_labels("rejection", {})
    (False, True)
    """
    known = method_class(name)
    given = {field: value for field, value in settings.items() if field in known.Settings.model_fields}
    trained = known(known.Settings.model_validate(given)).training_part
    return trained is not None and trained.reads_labels


def trained_method(name: str, settings: Mapping[str, StrictSettings] | None = None, *, seed: int = 0) -> TrainedMethod:
    """Return the part of a method that trains, as `load_method`.

    Raises:
        InputError: the method is unknown, or trains nothing.
    """
    method = load_method(name, settings, seed=seed).training_part
    if method is None:
        raise InputError("method", f"{name} trains nothing; give it to `evenhand measure` or `evenhand loop`.")
    return method
