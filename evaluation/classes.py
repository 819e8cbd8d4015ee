"""Loading of a class by the name of its module, from a package or from a user's own folder."""

import inspect
import os
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TypeVar

from evenhand.evaluation.errors import InputError, unknown_name

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
        InputError: the package has no such module, or two folders have one. `field` is the setting with the name.
    """
    if name not in module_names(package):
        raise unknown_name(field, name, module_names(package))
    files = [Path(folder) / f"{name}.py" for folder in import_module(package).__path__]
    if sum(file.is_file() for file in files) > 1:
        raise InputError(field, f"{name!r} is the name of two modules; rename yours in {PATH_VARIABLE}.")
    module = import_module(f"{package}.{name}")
    classes = [member for _, member in inspect.getmembers(module, inspect.isclass)]
    return next(found for found in classes if found.__module__ == module.__name__ and issubclass(found, base))
