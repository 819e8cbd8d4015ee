"""The package as it is installed: a wheel, outside any clone, has every command, every config and the testbed."""

import shutil
import subprocess
import sys
import tomllib

import pytest

from tests.forked_commands import ENVIRONMENT, PATIENCE, ROOT

pytestmark = pytest.mark.slow
SOURCES = ("evenhand", "docs", "evaluation", "mitigation", "recipes", "pyproject.toml", "README.md", "LICENSE")
# In a process that has imported other packages, but nothing of this project, and does not find the clone.
COMMANDS = """
import sys

sys.path[:] = [{site!r}, *(path for path in sys.path if path not in ("", {clone!r}))]
for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "tools")]:
    del sys.modules[name]

import pkgutil
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import evenhand
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import read_settings
from evenhand.recipes.configs import shipped
from evenhand.recipes.command_settings import COMMANDS

for module in pkgutil.walk_packages(evenhand.__path__, "evenhand."):
    if not module.name.endswith("__main__"):
        assert Path(import_module(module.name).__file__).is_relative_to({site!r}), module.name
for name, file in shipped().items():
    if file.parent.name != "accelerate":
        command = next(line.split()[3] for line in file.read_text().splitlines() if line.startswith("# $ evenhand"))
        read_settings(command, Path(name))
for command in COMMANDS:
    with suppress(SystemExit):
        main([command, "--help"])
flags = ["--report_to", "none", "-q"]
small = "--prompts.descriptors 13 --prompts.answers_per_cell 2 --generation_bias.permutations 19".split()
small += ["--prompts.filters", '{template: ["I like {plural_noun_phrase}."]}']
assert main(["measure", "--config", "testbed", "--output_dir", "styles", *small, *flags]) == 0
assert main(["report", "styles", "-q"]) == 0
assert len(list(Path(evenhand.__path__[0]).glob("notebooks/*.ipynb"))) >= 2
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder that a wheel of this tree was installed into; built from a copy, as building leaves files behind."""
    pytest.importorskip("setuptools", "77", reason="needs setuptools 77 (pip install '.[test]')")
    folder = tmp_path_factory.mktemp("wheel")
    for source in SOURCES:
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / source, folder / "source" / source, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / source, folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "source")], folder
    )
    (wheel,) = folder.glob("*.whl")
    run([*pip, "install", "--no-deps", "--no-compile", "--target", str(folder / "site"), str(wheel)], folder)
    shutil.rmtree(folder / "source")
    return folder / "site"


def run(command, folder, **environment):
    options = {"env": {**ENVIRONMENT, **environment}, "capture_output": True, "text": True, "timeout": PATIENCE}
    done = subprocess.run(command, cwd=folder, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_is_there(site, tmp_path):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    printed = run([site / "bin" / "evenhand", "--version"], tmp_path, PYTHONPATH=str(site))
    assert printed == f"evenhand {version}\n"


def test_commands_configs_and_testbed_need_no_clone(site, commands, tmp_path):
    code = COMMANDS.replace("{site!r}", repr(str(site))).replace("{clone!r}", repr(str(ROOT)))
    commands.run("-c", code, cwd=tmp_path, own=tmp_path)
    assert (tmp_path / "styles" / "report.html").exists()
