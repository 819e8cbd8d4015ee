"""The examples in docstrings are true."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted(
    ".".join(["evenhand", *file.relative_to(ROOT).with_suffix("").parts])
    for room in ("evaluation", "mitigation", "recipes")
    for file in (ROOT / room).rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_examples_of_a_module(module):
    failed, tried = doctest.testmod(import_module(module))
    assert tried
    assert not failed
