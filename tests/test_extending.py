"""The examples of docs/extending.md run as they stand on the page."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from evenhand.evaluation.results import read_scores
from evenhand.mitigation import methods

PAGE = Path(__file__).resolve().parents[1] / "docs" / "extending.md"
FAMILY = "prompt_length"
COMMAND = """
import sys
from evenhand.evaluation import families
families.__path__.append(sys.argv[1])
from evenhand.recipes.command_line import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with the family of the page."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / FAMILY).mkdir()
    (folder / FAMILY / "__init__.py").touch()
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
        (folder / FAMILY / name).write_text(code, encoding="utf-8")
    return folder


def evenhand(packages, *arguments):
    command = [sys.executable, "-c", COMMAND, str(packages), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_family_of_the_page_measures_and_reports(packages, tmp_path):
    run = tmp_path / "run"
    arguments = ["measure", "--metrics", FAMILY, "--prompts.descriptors", "20", "--output_dir", run]
    done = evenhand(packages, *arguments, "--report_to", "none", "--prompt_length.min_words", "3")
    assert done.returncode == 0, done.stderr
    (score,) = read_scores(run / "scores.json")
    assert score.metric == FAMILY and score.value > 3
    assert f"A prompt has {score.value:.1f} words." in done.stdout
    assert (run / "prompts.parquet").exists() and (run / "report.html").exists()


def test_its_settings_are_listed_and_a_mistyped_one_is_refused(packages, tmp_path):
    assert "--prompt_length.min_words" in evenhand(packages, "measure", "--metrics", FAMILY, "--help").stdout
    done = evenhand(packages, "measure", "--metrics", FAMILY, "--prompt_length.min_word", "3")
    assert done.returncode == 2 and "did you mean 'prompt_length.min_words'" in done.stderr


def test_a_module_that_lacks_something_is_named_before_anything_runs(packages, tmp_path):
    broken = tmp_path / "families" / FAMILY
    broken.mkdir(parents=True)
    for file in (packages / FAMILY).glob("*.py"):
        (broken / file.name).write_text("" if file.name == "settings.py" else file.read_text(encoding="utf-8"))
    done = evenhand(tmp_path / "families", "measure", "--metrics", FAMILY)
    assert done.returncode != 0 and "Settings is missing; inputs(config) is missing" in done.stderr


def test_the_method_of_the_page_makes_rows_of_labelled_responses(tmp_path):
    (code,) = re.findall(r"```python\n# (?:\w+/)+shortest\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (tmp_path / "shortest.py").write_text(code, encoding="utf-8")
    method = ModuleType("shortest")
    vars(method).update(runpy.run_path(str(tmp_path / "shortest.py")))
    declared = {name for name in methods.Method.__annotations__ if name != "INSTRUCTION"}
    assert declared <= set(vars(method))
    responses = ["Yes.", "I would rather not say.", "No.", "Perhaps."]
    labelled = pd.DataFrame({"prompt_id": list("abcd"), "text": "Hi!", "persona": "", "response": responses})
    labelled["label"] = ["no_bias", "no_bias", "bias", "no_bias"]
    rows = method.rows(labelled, lambda texts, personas, tag: [f"{text}{tag}" for text in texts])
    assert {len(column) for column in rows.to_dict().values()} == {
        2
    }  # 3 are unbiased, 2 of them are no longer than the median
