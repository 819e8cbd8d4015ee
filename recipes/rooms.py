"""A name in a config is the name of a module: of the file in the room where such things are."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from evaluation.errors import unknown_name


def module_named(room: ModuleType, name: str, field: str) -> ModuleType:
    """Return the module of this name in a package.

    Raises:
        InputError: there is none; `field` is where the name was given.
    """
    if name not in names_in(room):
        raise unknown_name(field, name, names_in(room))
    return import_module(f"{room.__name__}.{name}")


def names_in(room: ModuleType) -> list[str]:
    """Return the names of a package's modules."""
    return [module.name for module in iter_modules(room.__path__)]
