"""Optional packages: everything else works without them, and what needs them names the command that installs them."""

import tomllib
from importlib.util import find_spec

import pytest

from evenhand.evaluation.errors import InputError, require_extra
from tests.forked_commands import ROOT
from tests.gendered_references import written_references

# Imports every module without the packages, and prints the errors of the commands that need them.
WITHOUT = """
import pkgutil
import sys

for name in ("starlette", "uvicorn", "sacrebleu", "sentencepiece", "sentence_transformers", "shtab"):
    sys.modules[name] = None  # as if it were not installed

from importlib import import_module

import evenhand
from evenhand.recipes.cli import main

for module in pkgutil.walk_packages(evenhand.__path__, "evenhand."):
    if not module.name.endswith(("__main__", "rating.server")):
        import_module(module.name)
references = {references!r}
for arguments in (
    ["rate", "runs/a", "runs/b"],
    ["measure", "--metrics", "translation_bias", "--model", "m", "--references", references],
    ["measure", "--metrics", "embedding_bias", "--model", "m", "--references", references],
    ["--print_completion", "bash"],
):
    assert main([*arguments, *(["--report_to", "none"] if len(arguments) > 2 else [])]) == 2
"""


def test_what_needs_an_extra_names_it_and_all_else_is_imported_without(commands, tmp_path):
    code = WITHOUT.replace("{references!r}", repr(str(written_references(tmp_path))))
    done = commands.run("-c", code, cwd=tmp_path, own=tmp_path)
    errors = [line for line in done.stderr.splitlines() if "pip install" in line]
    extras = ("rate", "translation", "translation", "completion")
    assert len(errors) == len(extras), errors
    assert all(f"'evenhand[{extra}]'" in line for line, extra in zip(errors, extras, strict=True)), errors


def test_an_extra_that_is_installed_raises_nothing():
    require_extra("test", "pytest", field="a setting")
    with pytest.raises(InputError, match=r"^a setting: the package absent_1 .* 'evenhand\[some\]'"):
        require_extra("some", "pytest", "absent_1", field="a setting")
    assert find_spec("absent_1") is None


def test_what_the_tests_need_of_the_extras_is_in_the_extra_test():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for name in ("completion", "gguf", "quantization", "rate", "ray", "server", "translation"):
        assert set(extras[name]) <= set(extras["test"]), name
