"""Outcomes of the user: the modules in the subfolder `outcomes` of each folder in EVENHAND_PATH."""

from types import ModuleType

from evenhand.evaluation.plugins import load_module, module_names, user_folders

__path__ += user_folders("outcomes")


def user_modules() -> dict[str, ModuleType]:
    """Return the modules of the user's outcomes, by name.

    Raises:
        InputError: two folders have a module of the same name.
    """
    return {name: load_module(__name__, name, "generation_bias.outcomes") for name in module_names(__name__)}
