"""Every benchmark can be imported and has a command line; documented commands have flags that exist."""

import importlib
import re
import shlex
from pathlib import Path

import pytest

from benchmarks import measuring

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = sorted(file.stem for file in (ROOT / "benchmarks").glob("[a-z]*.py") if file.stem != "measuring")
PAGES = [ROOT / "README.md", ROOT / "Makefile", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [page.read_text(encoding="utf-8") for page in PAGES]
TEXTS += [importlib.import_module(f"benchmarks.{name}").__doc__ for name in BENCHMARKS]
WITHOUT_LINE_BREAKS = "\n".join(TEXTS).replace("\\\n", " ").replace(" $(MAP)", "")
COMMANDS = sorted(set(re.findall(r"python -m benchmarks\.(\w+)([^`#|\n]*)", WITHOUT_LINE_BREAKS)))


class Parsed(Exception):
    """Stops a benchmark after its command line is parsed."""


@pytest.fixture
def parse(monkeypatch):
    """Return a function that parses the command line of a benchmark, which then does not run."""

    def parse_and_stop(*arguments, **options):
        measuring.parse_options(*arguments, **options)
        raise Parsed

    def run(name, arguments):
        module = importlib.import_module(f"benchmarks.{name}")
        monkeypatch.setattr(module, "parse_options", parse_and_stop)
        monkeypatch.setattr("sys.argv", [name, *arguments])
        module.main()

    return run


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_has_help_with_its_command(name, parse, capsys):
    with pytest.raises(SystemExit) as error:
        parse(name, ["--help"])
    assert error.value.code == 0
    assert f"python -m benchmarks.{name}" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "arguments"), COMMANDS)
def test_a_command_is_understood(name, arguments, parse):
    with pytest.raises(Parsed):
        parse(name, shlex.split(arguments))
