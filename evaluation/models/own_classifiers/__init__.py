"""Kinds of classifiers of the user: the modules in the subfolder `classifiers` of each folder in EVENHAND_PATH."""

from functools import cache

from evenhand.evaluation.classes import load_class, module_names, own_folders
from evenhand.evaluation.models.classifiers import ClassifierKind

__path__ += own_folders("classifiers")


@cache
def own_kinds() -> tuple[ClassifierKind, ...]:
    """Return the kinds of classifiers of the user, in the order of their modules' names.

    Raises:
        InputError: a module does not define exactly one kind.
    """
    return tuple(load_class(__name__, name, ClassifierKind, "style_classifier")() for name in module_names(__name__))
