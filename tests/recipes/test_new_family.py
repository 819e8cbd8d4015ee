"""A new family of metrics is one folder: all commands that handle families work with it, and no recipe names one."""

import ast
import subprocess
import sys
from pathlib import Path

from evenhand.evaluation import metrics as families
from evenhand.evaluation.score import read_scores
from evenhand.recipes.settings import FAMILY

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
NAME = "vowel_share"
MODULES = {
    "settings": """
from evenhand.evaluation.settings import option, strict_dataclass

@strict_dataclass
class Settings:
    '''Vowels: how many letters of the prompts are vowels?'''

    letters: str = option("aeiou", "letters to count")

@strict_dataclass
class ComparisonSettings:
    '''Vowels: the change.'''

    factor: float = option(100.0, "factor of the change")

def inputs(config):
    return {"dataset": config.prompts.dataset, "model": config.model.name}
""",
    "measure": """
from evenhand.evaluation.score import BiasScore

def measure(run, config):
    share = sum(map(config.model.name.count, config.settings.letters)) / len(config.model.name)
    return [BiasScore("vowel_share", share, None, (0.0, 1.0), 1)]
""",
    "metrics": """
from evenhand.evaluation.report.formats import Format

METRICS = (
    Format("vowel_share", "vowels", "Share of vowels.", decimals=2),
    Format("vowel_share_difference", "change of vowels", "Change of the share of vowels.", decimals=2),
)
""",
    "compare": """
from evenhand.evaluation.score import BiasScore

def differences(run, before, after, config):
    first, second = (side.scores[0].value for side in (before, after))
    return [BiasScore("vowel_share_difference", config.factor * (second - first), None, (-100.0, 100.0), 1)]
""",
    "page": """
from evenhand.evaluation.report.page import Page

def page(run, context):
    return Page("Vowels", "", "today", f"{run.scores[0].value:.2f}", "vowels", f"Notes: {len(context.notes)}.")

def comparison_page(before, after, changes, context):
    return Page("Vowels, compared", "", "today", f"{changes.scores[0].value:.2f}", "change", "It changed.")
""",
}


COMMANDS = """
import sys
from pathlib import Path

from evenhand.evaluation import metrics as families

families.__path__.append(sys.argv[1])
from evenhand.evaluation.metrics import FamilyRun
from evenhand.recipes.cli import main, read_settings
from evenhand.recipes.loop import check_plans, plan_method
from evenhand.recipes.settings import measure_config

quiet = ["--report_to", "none", "--quiet"]
for run, letters in (("before", "e"), ("after", "et")):
    arguments = ["measure", "--model", "testbed", "--metrics", "vowel_share", "--vowel_share.letters", letters]
    assert main([*arguments, "--output_dir", run, *quiet]) == 0
changes = ["--vowel_share.factor", "10", "--output_dir", "changes"]
assert main(["compare", "--before", "before", "--after", "after", *changes, *quiet]) == 0
assert main(["report", "before", "after", "--output_dir", "both", "--quiet"]) == 0
loop = read_settings("loop", Path("loop"), {"measure.metrics": "generation_bias,vowel_share"})
measured = read_settings("measure", overrides={"model": "testbed", "metrics": "vowel_share"})
config = measure_config(measured, "vowel_share")
plan = plan_method(loop, "exchange", lambda name, command, settings: Path("loop") / name)
check_plans(Path("loop"), [plan])
after = next(stage.settings for stage in plan.stages if stage.folder == plan.points[0].after)
assert after.metrics == ["generation_bias", "vowel_share"] and after.vowel_share.letters == "aeiou"
"""


def test_commands_work_with_a_new_family(tmp_path):
    folder = tmp_path / "families" / NAME
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for name, code in MODULES.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-c", COMMANDS, str(folder.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before, after, change = (read_scores(tmp_path / run / "scores.json")[0] for run in ("before", "after", "changes"))
    assert (before.value, after.value) == (2 / 7, 4 / 7)  # of the letters of "testbed"
    assert (change.metric, change.value) == ("vowel_share_difference", 10 * (after.value - before.value))
    for run, title in (("changes", "Vowels, compared"), ("both", "before")):
        assert title in (tmp_path / run / "report.html").read_text(encoding="utf-8")


def test_recipes_name_the_default_family_once_and_no_other():
    named = [
        (file.relative_to(RECIPES).as_posix(), node.value)
        for file in sorted(RECIPES.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in families.names()
    ]
    assert named == [("settings.py", FAMILY)]
    others = {name for name in families.names() if name != FAMILY}
    imports = {
        (file.relative_to(RECIPES).as_posix(), node.module)
        for file in RECIPES.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and others & set(node.module.split("."))
    }
    assert not imports
