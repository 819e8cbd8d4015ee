"""The method `prompt` on the testbed, small: an instruction, nothing tuned, responses scored by the base."""

import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.costs.relevance import (
    EVEN_LIKELIHOODS,
    LIKELIHOODS,
    TEMPLATE_LIKELIHOODS,
)
from evenhand.evaluation.metrics.generation_bias.styled_responses import read_styled_responses
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.likelihood.tokens import response_perplexity
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.settings import ModelSettings, checked
from evenhand.recipes.cli import main
from evenhand.recipes.compare import compare
from evenhand.recipes.loop import loop
from evenhand.recipes.settings import CompareSettings, LoopSettings
from evenhand.recipes.testbed import DIALOGUE_MODEL
from tests.testbed_settings import with_testbed

INSTRUCTION = "I like music."
SMALL = {"descriptors": 26, "filters": {"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prompt") / "run"
    settings = {
        "measure": {"prompts": SMALL, "generation_bias": {"permutations": 19}},
        "methods": ["prompt"],
        "instruction": INSTRUCTION,
        "report_to": "none",
        "output_dir": str(folder),
    }
    loop(checked(LoopSettings, with_testbed(settings, "measure"), "test"))
    return folder


def test_the_same_model_is_measured_with_and_without_the_instruction(finished):
    assert {path.parent.relative_to(finished).as_posix() for path in finished.rglob("run.json")} == {
        *("before", "prompt/after", "prompt/compare")
    }
    signatures = [
        find_score(read_scores(finished / run / "scores.json"), "fgb_pooled_corrected").signature["model"]
        for run in ("before", "prompt/after")
    ]
    assert [signature["system_prompt"] for signature in signatures] == [None, INSTRUCTION]
    assert signatures[0]["revision"] == signatures[1]["revision"]
    before, after = (pd.read_parquet(finished / run / "responses.parquet") for run in ("before", "prompt/after"))
    assert (before["response"] != after["response"]).any()


def test_costs_are_scored_by_the_model_without_the_instruction(finished):
    likelihoods = pd.read_parquet(finished / "prompt" / "compare" / f"{LIKELIHOODS}_after.parquet")["log_likelihood"][
        :20
    ]
    after = read_styled_responses(finished / "prompt" / "after")
    texts, responses = after.table["text"].tolist()[:20], after.table["response"].tolist()[:20]
    for instruction, alike in ((None, True), (INSTRUCTION, False)):
        model = load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), system_prompt=instruction))
        expected, _ = response_perplexity(model, render_contexts(model, texts, [""] * 20), responses)
        assert (likelihoods.tolist() == pytest.approx(expected.tolist(), abs=1e-3)) == alike


def test_the_reports_contain_the_instruction(finished):
    for page in ("prompt/after", "prompt/compare"):
        assert f"“{INSTRUCTION}”" in (finished / page / "report.html").read_text()
    assert INSTRUCTION not in (finished / "before" / "report.html").read_text()
    point = pd.read_parquet(finished / "points.parquet").iloc[0]
    assert (point["method"], point["minutes"]) == ("prompt", 0)
    assert pd.notna(point["reduction"])


def test_comparisons_read_the_likelihoods_of_the_base_or_compute_the_same(finished, tmp_path):
    of_base = EVEN_LIKELIHOODS, TEMPLATE_LIKELIHOODS
    before, of_loop = tmp_path / "before", finished / "prompt" / "compare"
    assert not any((of_loop / f"{name}.parquet").exists() for name in of_base)
    alone = ["--generation_bias.for_comparisons", "false", "--output_dir", str(before)]
    assert main(["measure", "--config", str(finished / "before" / "config.yaml"), *alone]) == 0
    compare(
        CompareSettings(
            before=before, after=finished / "prompt" / "after", report_to="none", output_dir=tmp_path / "compare"
        )
    )
    assert all((tmp_path / "compare" / f"{name}.parquet").exists() for name in of_base)
    computed, expected = (read_scores(folder / "scores.json") for folder in (tmp_path / "compare", of_loop))
    assert [(it.metric, it.group, it.value, it.interval) for it in computed] == [
        (it.metric, it.group, pytest.approx(it.value, nan_ok=True), it.interval and pytest.approx(it.interval))
        for it in expected
    ]
