"""Outcomes of the user: the modules in the subfolder `outcomes` of each folder in EVENHAND_PATH."""

from types import ModuleType

from evenhand.evaluation.classes import load_module, module_names, own_folders

__path__ += own_folders("outcomes")


def own_modules() -> dict[str, ModuleType]:
    """Return the modules of the user's outcomes, by name.

    Raises:
        InputError: two folders have a module of the same name.
    """
    return {name: load_module(__name__, name, "generation_bias.outcomes") for name in module_names(__name__)}
