"""Every benchmark can be imported, so a name that moved in the project is noticed here."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("name", sorted(file.stem for file in BENCHMARKS.glob("[a-z]*.py")))
def test_a_benchmark_can_be_imported(name):
    assert importlib.import_module(f"benchmarks.{name}").__doc__
