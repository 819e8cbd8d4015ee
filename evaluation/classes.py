"""Loading of a class by the name of its module, from a package or from a user's own folder."""

import inspect
import os
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TypeVar

from evenhand.evaluation.errors import unknown_name

PATH_VARIABLE = "EVENHAND_PATH"  # folders with subfolders `metrics` and `methods`, separated as in PATH

Base = TypeVar("Base")


def own_folders(subfolder: str) -> list[str]:
    """Return the path of a subfolder of each folder in the environment variable EVENHAND_PATH."""
    folders = filter(None, os.environ.get(PATH_VARIABLE, "").split(os.pathsep))
    return [str(Path(folder).expanduser().resolve() / subfolder) for folder in folders]


def module_names(package: str) -> list[str]:
    """Return the names of the modules in a package."""
    return [module.name for module in iter_modules(import_module(package).__path__)]


def load_class(package: str, name: str, base: type[Base], field: str) -> type[Base]:
    """Return the subclass of `base` that the module `name` of a package defines.

    Raises:
        InputError: the package has no such module. The message contains `field`, the setting whose value is the name.
    """
    if name not in module_names(package):
        raise unknown_name(field, name, module_names(package))
    module = import_module(f"{package}.{name}")
    found = [it for _, it in inspect.getmembers(module, inspect.isclass) if it.__module__ == module.__name__]
    return next(it for it in found if issubclass(it, base))
