"""Fixtures of the tests of the recipes."""

from types import SimpleNamespace

import pytest

from evenhand.recipes import cli
from evenhand.recipes.command_settings import COMMANDS


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
