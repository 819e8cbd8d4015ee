"""Loading of modules by name, and checks that a module implements a Protocol."""

import inspect
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import MethodType, ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from evenhand.evaluation.errors import InputError, unknown_name

Contract = TypeVar("Contract")


def check_contract(module: ModuleType, contract: type[Contract]) -> Contract:
    """Return an object with a module's attributes and functions that implements a Protocol.

    The module must define each annotated attribute that has no default in the Protocol. It must also define each
    abstract method, as a function without `self` that takes the same positional arguments. For everything else the
    Protocol's defaults are used.

    Raises:
        InputError: attributes are missing or have another type, or functions are missing or take other arguments. The
            message lists all of these errors.
    """
    values, errors = SimpleNamespace(), []
    for name, hint in get_type_hints(contract).items():
        if name not in vars(module) and not hasattr(contract, name):
            errors.append(f"{name} is missing")
            continue
        value = vars(module).get(name, getattr(contract, name, None))
        setattr(values, name, value)
        if not _is_instance(value, hint):
            errors.append(f"{name} is {value!r}, not of type {inspect.formatannotation(hint)}")
    for name, method in inspect.getmembers(contract, inspect.isfunction):
        if name.startswith("_"):
            continue
        arguments = list(inspect.signature(method).parameters)[1:]
        function = vars(module).get(name)
        if function is not None:
            setattr(values, name, function)
            if not _takes(function, arguments):
                errors.append(f"{name} is not a function of ({', '.join(arguments)})")
        elif name in contract.__abstractmethods__:
            errors.append(f"{name}({', '.join(arguments)}) is missing")
        else:
            setattr(values, name, MethodType(method, values))
    if errors:
        raise InputError(f"{module.__name__}: {'; '.join(errors)}; see {contract.__module__}.{contract.__name__}.")
    return cast(Contract, values)


def module_names(package: str) -> list[str]:
    """Return the names of the modules in a package."""
    return [module.name for module in iter_modules(import_module(package).__path__)]


def load_module(package: str, name: str, field: str) -> ModuleType:
    """Return the module `name` of a package.

    Raises:
        InputError: the package has no such module. The message contains `field`, the setting whose value is the name.
    """
    if name not in module_names(package):
        raise unknown_name(field, name, module_names(package))
    return import_module(f"{package}.{name}")


@cache
def _adapter(hint: Any) -> TypeAdapter:
    return TypeAdapter(hint, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def _is_instance(value: Any, hint: Any) -> bool:
    try:
        _adapter(hint).validate_python(value)
    except ValidationError:
        return False
    return True


def _takes(function: Any, arguments: list[str]) -> bool:
    """Return whether an object is a function that accepts as many positional arguments as `arguments` has."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True
