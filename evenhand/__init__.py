"""Evenhand: measuring and mitigating demographic bias of language models.

This module exports the public objects (docs/python_api.md), which `__init__.pyi` lists, and imports each on first use.
All other modules are private and may change.
"""

import ast
import logging
from importlib import import_module
from pathlib import Path
from typing import Any

# bitsandbytes warns of a missing kernel that is not used, as soon as PEFT imports it.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_IMPORTS = [statement for statement in _STUB.body if isinstance(statement, ast.ImportFrom)]
_MODULES = {name.name: str(statement.module) for statement in _IMPORTS for name in statement.names}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Return a public object, imported on first use, so that a table of scores does not require the import of torch."""
    if name == "__version__":
        from importlib.metadata import version

        return version("evenhand")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'evenhand' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
