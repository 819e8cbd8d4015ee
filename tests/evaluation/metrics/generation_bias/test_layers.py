"""measures ← engine ← parts ← pages: inside generation bias, nothing imports what stands above it."""

import ast
from functools import cache
from pathlib import Path

import pytest

import evenhand.evaluation.metrics.generation_bias as family

FOLDER = Path(family.__file__).parent
NAME = f"{family.__name__}."
FLOORS = (
    ("measures",),
    ("engine", "people", "answers", "likelihoods", "requested_language"),
    ("parts", "accepted", "cuts", "words"),
    (
        "advice",
        "answer_warnings",
        "examples",
        "findings",
        "first_tables",
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


def modules_imported(file, names):
    """Return the modules of the family, by their dotted names inside it, that a file imports when it is loaded."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(NAME):
            inside = f"{node.module}.".removeprefix(NAME)
            found |= {inside.strip(".")} | {f"{inside}{alias.name}" for alias in node.names}
    return found & names


def test_a_module_stands_on_at_most_seven_others():
    """The longest chain of imports, such as from `page` down to `answers`, has 8 modules."""
    files = {}
    for file in FOLDER.rglob("*.py"):
        parts = file.relative_to(FOLDER).with_suffix("").parts
        files[".".join(part for part in parts if part != "__init__")] = file
    del files[""]
    below = {name: modules_imported(file, files.keys() - {name}) for name, file in files.items()}

    @cache
    def height(name):
        return 1 + max((height(other) for other in below[name]), default=0)

    assert {name: height(name) for name in files if height(name) > 8} == {}
