"""Methods of mitigation: each is a module here, found by its name; nothing else has to know of it."""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol, cast

from evenhand.evaluation.errors import unknown_name

if TYPE_CHECKING:  # what these import would delay the command line
    import pandas as pd
    from datasets import Dataset

    from evenhand.mitigation.labelling.labelled_responses import ContextRenderer


class Method(Protocol):
    """What a module of this package holds.

    TRAINER: the module of `evenhand.mitigation.training.trainers` that its rows are for. A method that trains nothing
        has None, no rows, and INSTRUCTION: the system prompt that the model is measured with.
    INFERENCE_TAG: the control tag that the tuned model is asked with, "" for none.
    TAGS: all strings that get a meaning in tuning.
    PLANNED: whether the tuned model answers as the responses labelled `no_bias` do: what it leaves is what the
        threshold plan predicts. To other methods labels say which responses change places, or nothing.
    rewards: of a method that draws responses in tuning alone: base model, classifier, weight → what they are worth.
    DEFAULTS: the settings that it does well with on the testbed's model of a million parameters: what is left null.
    """

    TRAINER: str | None
    INFERENCE_TAG: str
    TAGS: tuple[str, ...]
    THRESHOLD_PLAN_APPLIES: bool
    DEFAULTS: Mapping[str, Any]
    INSTRUCTION: str

    def rows(self, labelled: "pd.DataFrame", render: "ContextRenderer", seed: int = 0) -> "Dataset":
        """Return rows with the columns of the trainer and `context`, the untagged context, by which some are held out.

        Raises:
            InputError: see `evenhand.mitigation.labelling.labelled_responses.check_labelled`; no row can be made.
        """


def names() -> list[str]:
    """Return the names of the methods that there are."""
    return [module.name for module in iter_modules(__path__)]


def load_method(name: str) -> Method:
    """Return the method of this name.

    Raises:
        InputError: there is none.
    """
    if name not in names():
        raise unknown_name("method", name, names())
    return cast(Method, import_module(f"{__name__}.{name}"))
