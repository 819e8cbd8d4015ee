"""Loading of a module, or of its class, by name: from a package or from a user's own folder."""

import inspect
import os
import traceback
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

from evenhand.evaluation.errors import InputError, unknown_name

# Folders, separated as in PATH, with subfolders `metrics`, `methods`, `models`, `outcomes`, `classifiers`, `commands`.
PATH_VARIABLE = "EVENHAND_PATH"

Base = TypeVar("Base")


def user_folders(subfolder: str) -> list[str]:
    """Return the path of a subfolder of each folder in the environment variable EVENHAND_PATH."""
    folders = filter(None, os.environ.get(PATH_VARIABLE, "").split(os.pathsep))
    return [str(Path(folder).expanduser().resolve() / subfolder) for folder in folders]


def module_names(package: str) -> list[str]:
    """Return the names of the modules in a package."""
    return [module.name for module in iter_modules(import_module(package).__path__)]


def load_module(package: str, name: str, field: str) -> ModuleType:
    """Return the module `name` of a package.

    Raises:
        InputError: the package has no such module, two folders have one, or importing the user's one raised an error.
            `field` is the setting with the name.
    """
    folders = list(import_module(package).__path__)
    if name not in module_names(package):
        error = unknown_name(field, name, module_names(package))
        missing = [folder for folder in folders if not Path(folder).is_dir()]
        if missing:
            raise InputError(field, f"{error.problem} {PATH_VARIABLE}: {', '.join(missing)} does not exist.")
        raise error
    files = [Path(folder) / f"{name}.py" for folder in folders]
    if sum(file.is_file() for file in files) > 1:
        raise InputError(field, f"{name!r} is the name of two modules; rename yours in {PATH_VARIABLE}.")
    try:
        return import_module(f"{package}.{name}")
    except InputError:
        raise
    except Exception as error:
        file = next((file for file in files if file.is_file()), None)
        if file is None or file == files[0]:  # a module of Evenhand
            raise
        problem = f"{type(error).__name__}: {getattr(error, 'msg', error)}"
        raise InputError(field, f"{file}{_line_of(error, file)} cannot be imported: {problem}.") from error


def _line_of(error: Exception, file: Path) -> str:
    """Return the line of a file at which importing it raised an error, as text; "" if the error is elsewhere."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    if isinstance(error, SyntaxError):
        lines.append(error.lineno)
    return f", line {lines[-1]}," if lines else ""


def load_class(package: str, name: str, base: type[Base], field: str) -> type[Base]:
    """Return the class that the module `name` of a package defines as its subclass of `base`.

    If the module defines several, such as a common base and a class derived from it, the result is the class from which
    no other class is derived.

    Raises:
        InputError: as `load_module`; or the module does not define exactly one such class.
    """
    module = load_module(package, name, field)
    candidates = []
    for _, found in inspect.getmembers(module, inspect.isclass):
        if found.__module__ == module.__name__ and issubclass(found, base):
            candidates.append(found)
    parents = {parent for found in candidates for parent in found.__mro__[1:]}
    chosen = [found for found in candidates if found not in parents]
    if len(chosen) != 1:
        listed = ", ".join(found.__name__ for found in chosen) or "none"
        file = Path(str(module.__file__))
        raise InputError(
            field,
            f"{file} must define one class derived from {base.__name__}, and defines {listed}; "
            f"a module that only helps others belongs outside of the folder `{file.parent.name}`.",
        )
    return chosen[0]
