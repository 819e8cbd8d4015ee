"""The kinds of models that can be measured, each a class in a module of this package, which `model.source` names.

A kind of your own is a file in the subfolder `models` of a folder in EVENHAND_PATH (docs/extending.md).
"""

from evenhand.evaluation.model_settings import FILE, ModelSettings
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.plugins import load_class, user_folders
from evenhand.evaluation.settings import Access

__path__ += user_folders("models")


def model_kind(settings: ModelSettings, *, has_file: bool = False) -> type[Model]:
    """Return the class of the model that settings name; a file of its responses, if there is one, is in its place.

    Raises:
        InputError: `model.source` names no kind.
    """
    return load_class(__name__, FILE if has_file else settings.kind, Model, "model.source")


def has_weights(settings: ModelSettings, *, has_file: bool = False) -> bool:
    """Return whether the weights of the model that settings name are loaded here."""
    return Access.WEIGHTS in model_kind(settings, has_file=has_file).access(settings)
