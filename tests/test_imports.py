"""evaluation ← mitigation ← recipes: the instrument must not know the treatment."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FORBIDDEN = {"evaluation": {"mitigation", "recipes"}, "mitigation": {"recipes"}}


def imported_packages(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", FORBIDDEN)
def test_nothing_imports_what_stands_on_it(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {str(file): bad for file in files if (bad := imported_packages(file) & FORBIDDEN[package])}
    assert not wrong
