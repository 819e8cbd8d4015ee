"""Kinds of classifiers of the user: the modules in the subfolder `classifiers` of each folder in EVENHAND_PATH."""

from functools import cache

from evenhand.evaluation.models.classifiers import ClassifierKind
from evenhand.evaluation.plugins import load_class, module_names, user_folders

__path__ += user_folders("classifiers")


@cache
def user_kinds() -> tuple[ClassifierKind, ...]:
    """Return the kinds of classifiers of the user, in the order of their modules' names.

    Raises:
        InputError: a module does not define exactly one kind.
    """
    return tuple(load_class(__name__, name, ClassifierKind, "style_classifier")() for name in module_names(__name__))
