"""Fixtures of the tests of the recipes."""

from types import SimpleNamespace

import pytest

from evenhand.recipes import cli
from evenhand.recipes.settings import COMMANDS
from tools.testbed import grammar


@pytest.fixture(scope="session")
def small_talk(tmp_path_factory):
    """The path of a file of neutral dialogue that is shorter than the shipped one."""
    file = tmp_path_factory.mktemp("neutral") / "neutral.jsonl"
    pairs = grammar.neutral_dialogue("held_out", 24, seed=0)
    file.write_text(pairs.to_json(orient="records", lines=True))
    return str(file)


@pytest.fixture
def written(tmp_path):
    """A function that writes a YAML file and returns its path."""

    def write(text):
        (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
        return tmp_path / "c.yaml"

    return write


@pytest.fixture
def calls(monkeypatch):
    """The settings with which commands were called; the commands do nothing."""
    calls = []
    names = dict.fromkeys(COMMANDS, calls.append)
    monkeypatch.setattr(cli, "import_module", lambda name: SimpleNamespace(**names))
    return calls
