"""The examples of docs/extending.md run as they stand on the page."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.score import read_scores
from evenhand.mitigation import methods
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.training_rows import training_rows
from evenhand.mitigation.tune import tune
from tests.mitigation.trainers.test_preference import tiny_base

PAGE = Path(__file__).resolve().parents[1] / "docs" / "extending.md"
FAMILY = "prompt_length"
COMMAND = """
import sys
from evenhand.evaluation import metrics as families
families.__path__.append(sys.argv[1])
from evenhand.recipes.cli import main
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


def run_evenhand(packages, *arguments):
    command = [sys.executable, "-c", COMMAND, str(packages), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_family_of_the_page_measures_and_reports(packages, tmp_path):
    run = tmp_path / "run"
    arguments = ["measure", "--model", "m", "--metrics", FAMILY, "--prompts.descriptors", "20", "--output_dir", run]
    done = run_evenhand(packages, *arguments, "--report_to", "none", "--prompt_length.min_words", "3")
    assert done.returncode == 0, done.stderr
    (score,) = read_scores(run / "scores.json")
    assert score.metric == FAMILY and score.value > 3
    assert f"A prompt has {score.value:.1f} words." in done.stdout
    assert (run / "prompts.parquet").exists() and (run / "report.html").exists()


def test_its_settings_are_listed_and_a_mistyped_one_is_refused(packages, tmp_path):
    assert "--prompt_length.min_words" in run_evenhand(packages, "measure", "--metrics", FAMILY, "--help").stdout
    done = run_evenhand(packages, "measure", "--metrics", FAMILY, "--prompt_length.min_word", "3")
    assert done.returncode == 2 and "prompt_length.min_word" in done.stderr


def test_the_method_of_the_page_tunes_a_model(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n# (?:\w+/)+shortest\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (tmp_path / "shortest.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    assert code.count("\n") <= 15
    method = methods.load_method("shortest")
    assert (method.trainer, method.defaults["max_rows"]) == ("sft", 2000)
    labelled = pd.DataFrame({"prompt_id": list("abcdef"), "text": list("abcdef"), "persona": ""})
    labelled["response"] = ["red sun", "red sun blue sky", "blue sky", "sun", "blue", "red sun blue sky"]
    labelled["label"] = ["no_bias", "no_bias", "bias", "no_bias", "bias", "no_bias"]
    base = tiny_base()
    rows = training_rows("shortest", labelled, partial(render_contexts, base), validation_fraction=0.5)
    # Of four unbiased responses, with 7, 16, 3 and 16 characters, two are at most as long as the median, 11.5.
    assert sorted([*rows.train["completion"], *rows.validation["completion"]]) == ["red sun", "sun"]
    settings = TuningSettings(epochs=1, batch_size=1, learning_rate=0.1, max_perplexity_increase=100.0)
    settings = settings.with_method_defaults(method)
    result = tune(base, rows, settings, tmp_path / "tuning")
    assert result.n_train == result.n_validation == 1
    assert result.change.outputs_changed and (result.path / "adapter_model.safetensors").exists()
