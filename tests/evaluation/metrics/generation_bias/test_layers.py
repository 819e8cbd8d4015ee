"""measures ← engine ← parts ← pages: inside generation bias, nothing imports what stands above it."""

import ast
from pathlib import Path

import pytest

import evenhand.evaluation.metrics.generation_bias as family

FOLDER = Path(family.__file__).parent
NAME = f"{family.__name__}."
FLOORS = (
    ("measures",),
    ("engine", "people", "answers", "likelihoods"),
    ("parts", "accepted", "cuts", "words"),
    (
        "advice",
        "answer_warnings",
        "examples",
        "findings",
        "headline",
        "page",
        "page_warnings",
        "published",
        "verdict",
    ),
)


def imported(file):
    """Return the modules and packages of the family that a file imports, at the top or in functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(NAME):
            inside = f"{node.module}.".removeprefix(NAME)
            found |= {inside.split(".")[0]} if inside else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("floor", range(len(FLOORS)))
def test_no_floor_imports_a_floor_above(floor):
    above = {name for names in FLOORS[floor + 1 :] for name in names}
    files = []
    for name in FLOORS[floor]:
        files += [*(FOLDER / name).rglob("*.py"), *FOLDER.glob(f"{name}.py")]
    assert files
    assert {str(file.relative_to(FOLDER)): imported(file) & above for file in files if imported(file) & above} == {}
