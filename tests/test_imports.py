"""evaluation ← mitigation ← recipes: the instrument must not know the treatment. No circles; imports are light.

Imports inside functions and dynamic imports (`import_module`, and `load_class`, `load_module` and `module_names`, which
import modules of a package by their names) count like those at the top. A dynamic import must have a name, or the
beginning of one, that this test can read: a literal, or a constant of a module.
"""

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from evenhand.evaluation import metrics
from evenhand.evaluation.runs.record import PACKAGES as RECORDED

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("evaluation", "mitigation", "recipes")
FORBIDDEN = {"evaluation": {"mitigation", "recipes"}, "mitigation": {"recipes"}, "recipes": set()}
FILES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
HEAVY = {"torch", "transformers", "datasets", "peft", "trl", "accelerate", "matplotlib", "wandb", "krippendorff"}
OF_EXTRAS = {"sacrebleu", "sentencepiece", "sentence_transformers", "starlette", "uvicorn", "openai", "ray", "gguf"}
FAMILIES = metrics.names()
IMPORTERS = ("import_module", "__import__")
LOADERS = ("load_class", "load_module", "module_names")  # of evaluation/plugins.py: the package is the first argument
PLUGINS = "evenhand.evaluation.plugins"
# The registry of formats imports the families that declare them, and their pages import the registry.
FORMATS = "evenhand.evaluation.report.formats"
STILL_A_CIRCLE = {FORMATS: {"evenhand.evaluation.metrics", "evenhand.evaluation.rating.metrics"}}


def module_name(file: Path) -> str:
    """Return the module that a file is; a package for its __init__."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(["evenhand", *parts]).removesuffix(".__init__")


@cache
def parsed_modules() -> dict[str, ast.Module]:
    """Return module name → syntax tree."""
    return {module_name(file): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


def constants(tree: ast.Module) -> dict[str, str]:
    """Return the texts that a module assigns to names at its top level."""
    found = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        names = [node.targets[0]]
        values = [node.value]
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            names = node.targets[0].elts
            values = node.value.elts
        for name, value in zip(names, values, strict=True):
            if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[name.id] = value.value
    return found


def known_texts(module: str) -> dict[str, str]:
    """Return the texts that names stand for in a module: constants of its own and imported ones, and its name."""
    tree = parsed_modules()[module]
    found = {"__name__": module}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in parsed_modules():
            there = constants(parsed_modules()[node.module])
            for alias in node.names:
                if alias.name in there:
                    found[alias.asname or alias.name] = there[alias.name]
    return found | constants(tree)


def beginning(node: ast.expr, texts: dict[str, str]) -> tuple[str, bool] | None:
    """Return the known beginning of a text and whether it is the whole text; None if nothing is known."""
    if isinstance(node, ast.Constant):
        return str(node.value), True
    if isinstance(node, ast.Name) and node.id in texts:
        return texts[node.id], True
    if isinstance(node, ast.JoinedStr):
        known = ""
        for part in node.values:
            found = beginning(part.value if isinstance(part, ast.FormattedValue) else part, texts)
            if found is None:
                return (known, False) if known else None
            known += found[0]
        return known, True
    return None


def modules_in(package: str) -> set[str]:
    """Return the modules and packages that stand directly in a package."""
    return {module for module in parsed_modules() if module.rpartition(".")[0] == package}


def dynamic_imports(module: str, node: ast.Call) -> set[str]:
    """Return the modules that a call may import by name."""
    function = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if function not in (*IMPORTERS, *LOADERS):
        return set()
    if module == PLUGINS:
        return set()  # what evaluation/plugins.py imports counts for its callers
    found = beginning(node.args[0], known_texts(module))
    assert found, f"{module}:{node.lineno}: nobody can read what this imports; begin the name with a constant"
    text, is_whole = found
    if function in LOADERS:
        return modules_in(text)
    return {text} if is_whole else modules_in(text.rstrip("."))


def imported(module: str) -> set[str]:
    """Return all names of ours that a module imports: at the top, in functions, under TYPE_CHECKING and by name."""
    found = set()
    for node in ast.walk(parsed_modules()[module]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in parsed_modules() else node.module)
        elif isinstance(node, ast.Call):
            found |= dynamic_imports(module, node)
    return {name for name in found if name.split(".")[0] == "evenhand"}


@pytest.mark.parametrize("package", ["evaluation", "mitigation"])
def test_no_package_imports_one_that_stands_on_it(package):
    modules = [module for module in parsed_modules() if f"{module}.".startswith(f"evenhand.{package}.")]
    targets = {module: {name.split(".")[1] for name in imported(module) if "." in name} for module in modules}
    assert {module: wrong for module in modules if (wrong := targets[module] & FORBIDDEN[package])} == {}
    assert any(package in names for names in targets.values())  # what is ours is seen at all


def test_no_modules_import_each_other():
    """A module may import the packages that it stands in, and a package may load its modules by name."""
    graph = {}
    for module in parsed_modules():
        others = {name for name in imported(module) if name in parsed_modules()} - STILL_A_CIRCLE.get(module, set())
        graph[module] = {name for name in others if not f"{module}.".startswith(f"{name}.")}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import_module('evenhand.evaluation.score')", {"evenhand.evaluation.score"}),
        ("import_module(GENERATION_BIAS)", {"evenhand.evaluation.metrics.offensiveness"}),
        ("import_module(f'evenhand.mitigation.{name}')", modules_in("evenhand.mitigation")),
        ("import_module(f'{GENERATION_BIAS}')", {"evenhand.evaluation.metrics.offensiveness"}),
        ("load_class('evenhand.mitigation.methods', name, Base, 'methods')", modules_in("evenhand.mitigation.methods")),
    ],
)
def test_dynamic_imports_are_counted(source, expected, monkeypatch):
    text = f"GENERATION_BIAS = 'evenhand.evaluation.metrics.offensiveness'\n{source}"
    monkeypatch.setitem(parsed_modules(), "evenhand.evaluation.invented", ast.parse(text))
    assert imported("evenhand.evaluation.invented") == expected != set()


def test_a_dynamic_import_that_nobody_can_read_is_an_error(monkeypatch):
    monkeypatch.setitem(parsed_modules(), "evenhand.evaluation.invented", ast.parse("import_module(name)"))
    with pytest.raises(AssertionError, match=r"evenhand\.evaluation\.invented:1"):
        imported("evenhand.evaluation.invented")


def test_imports_of_ours_are_absolute_and_by_the_name_that_is_installed():
    for module, tree in parsed_modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}:{node.lineno}: a relative import"
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            assert not {name.split(".")[0] for name in names} & {*PACKAGES}, f"{module}:{node.lineno}"


@pytest.mark.parametrize(
    "statement",
    [
        "import evenhand; dir(evenhand)",
        "import evenhand.recipes.cli",
        "from evenhand.evaluation import metrics as f; [f.load_family(name).Settings() for name in f.names()]",
        "from evenhand.recipes.command_line import read_settings; read_settings('ablate')",
    ],
)
def test_settings_and_the_command_line_import_nothing_heavy(statement):
    assert printed_by(f"import sys; {statement}; print(sorted({HEAVY | OF_EXTRAS!r} & set(sys.modules)))") == "[]\n"


def test_a_program_that_reads_runs_imports_no_pytorch():
    assert printed_by("import sys; from evenhand import Run; print('torch' in sys.modules)") == "False\n"


def printed_by(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def heavy_by_family():
    """What is imported of HEAVY and OF_EXTRAS where a family is parsed, by its name.

    A process has the settings of all families, which takes a second, and forks one for each family.
    """
    lines = printed_by(f"""
import os, sys
from evenhand.recipes.command_line import parse
parse(["measure"])
for name in {FAMILIES!r}:
    if os.fork() == 0:
        parse(["measure", f"--metrics={{name}}"])
        print(name, *sorted({HEAVY | OF_EXTRAS!r} & set(sys.modules)), flush=True)
        os._exit(0)
    os.wait()
""")
    return {name: heavy for name, *heavy in map(str.split, lines.splitlines())}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_command_line_of_a_family_imports_nothing_heavy(heavy_by_family, name):
    """Families are parsed with the settings of all others, whose code is light: what is slow is imported when used."""
    assert heavy_by_family[name] == []


def test_data_and_settings_know_nothing_of_models_and_metrics():
    """What is read and what is set stand below what answers and what measures."""
    below = [ROOT / "evaluation" / "settings.py", *sorted((ROOT / "evaluation" / "data").rglob("*.py"))]
    above = ("evenhand.evaluation.models", "evenhand.evaluation.metrics", "evenhand.evaluation.report")
    for file in below:
        assert not [name for name in imported(module_name(file)) if name.startswith(above)], file


def test_every_package_whose_version_a_run_records_is_imported():
    imported = set()
    for tree in parsed_modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
    assert set(RECORDED) <= imported
