"""evaluation ← mitigation ← recipes: the instrument must not know the treatment. Files are small, imports light."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("evaluation", "mitigation", "recipes")
FORBIDDEN = {"evaluation": {"mitigation", "recipes"}, "mitigation": {"recipes"}}
FILES = {package: sorted((ROOT / package).rglob("*.py")) for package in PACKAGES}
EVERY = [file for files in FILES.values() for file in files]
HEAVY = {"torch", "transformers", "datasets", "peft", "trl", "matplotlib", "wandb"}


def imported(source: str, module: str) -> set[str]:
    """The absolute names of all that is imported, at the top or in a function, by a file that is the module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # One dot is the package that the module is in, each further one the package around it.
            above = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in ("import_module", "__import__"):
                found.add(str(node.args[0].value))
    return found


def module_of(file: Path) -> str:
    """The module that a file is; a package's __init__ counts as a module in it."""
    return ".".join(["evenhand", *file.relative_to(ROOT).with_suffix("").parts])


def packages(names: set[str]) -> set[str]:
    """Return the elements of PACKAGES that contain the names."""
    return {
        package
        for name in names
        for package in PACKAGES
        if f"{name}.".startswith((f"evenhand.{package}.", f"{package}."))
    }


@pytest.mark.parametrize("package", FORBIDDEN)
def test_nothing_imports_what_stands_on_it(package):
    assert FILES[package]
    found = {
        str(file): packages(imported(file.read_text(encoding="utf-8"), module_of(file))) for file in FILES[package]
    }
    assert not {file: wrong for file, names in found.items() if (wrong := names & FORBIDDEN[package])}
    assert any(package in names for names in found.values())  # what is ours is seen at all


def imported_modules(file: Path) -> set[str]:
    """The modules of ours that a file imports: at the top, in functions and under TYPE_CHECKING."""
    modules = {module_of(each).removesuffix(".__init__"): each for each in EVERY}
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
    return found & modules.keys()


def test_no_modules_import_each_other():
    TopologicalSorter({module_of(file).removesuffix(".__init__"): imported_modules(file) for file in EVERY}).prepare()


def test_imports_of_ours_are_absolute_and_by_the_name_that_is_installed():
    for file in EVERY:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file}:{node.lineno}: a relative import"
                assert node.module.split(".")[0] not in PACKAGES, f"{file}:{node.lineno}: from evenhand.{node.module}"
            elif isinstance(node, ast.Import):
                assert not {alias.name.split(".")[0] for alias in node.names} & {*PACKAGES}, f"{file}:{node.lineno}"


@pytest.mark.parametrize(
    "statement",
    [
        "import evenhand; dir(evenhand)",
        "import evenhand.recipes.cli",
        "from evenhand.evaluation import metrics as f; [f.load_metric(name).Settings() for name in f.names()]",
        "from evenhand.recipes.cli import read_settings; read_settings('ablate')",
    ],
)
def test_settings_and_the_command_line_import_nothing_heavy(statement):
    code = f"import sys; {statement}; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_data_and_settings_know_nothing_of_models_and_metrics():
    """What is read and what is set stand below what answers and what measures."""
    below = [ROOT / "evaluation" / "settings.py", *sorted((ROOT / "evaluation" / "data").rglob("*.py"))]
    above = ("evenhand.evaluation.models", "evenhand.evaluation.metrics", "evenhand.evaluation.report")
    for file in below:
        assert not [name for name in imported_modules(file) if name.startswith(above)], file
