"""A tiny model of each family goes through measure → label → tune → measure, with its own tokens and template.

What they read is asserted token by token in tests/evaluation/models/test_contexts.py.
"""

import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest
import torch

from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.metrics.generation_bias.settings import Settings
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings, StyleClassifierSettings
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.score import find_score, read_scores
from evenhand.mitigation.settings import TuningSettings
from evenhand.recipes.label import label
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.tune import tune
from evenhand.recipes.tuning_settings import LabelSettings, TuneSettings
from tests import tiny_checkpoints

pytestmark = pytest.mark.slow

FAMILIES = ("thinker", "gguf")  # tests/recipes/test_real_configs.py has the others
METHODS = {"thinker": "exchange", "gguf": None}  # the default for a chat model
N = 2 * 7 * 4  # templates × descriptors × responses


@pytest.fixture(scope="module")
def ruler(tmp_path_factory):
    """The folder of a taxonomy, and of a classifier of few styles with random weights."""
    folder = tmp_path_factory.mktemp("ruler")
    tiny_checkpoints.taxonomy(folder / "taxonomy")
    torch.manual_seed(0)
    tiny_checkpoints.style_classifier(folder / "classifier", styles=["caring", "curious", "sad", "neutral"])
    (folder / "clusters.json").write_text(json.dumps({"CARE": ["caring", "sad"], "CURIOSITY": ["curious"]}))
    return folder


def measured(ruler: Path, model: Path, output_dir: Path) -> dict[str, object]:
    """Measure a model; return its responses, scores and signature."""
    measure(
        MeasureSettings(
            model=ModelSettings(name=str(model)),
            prompts=PromptSettings(dataset=str(ruler / "taxonomy"), descriptors=None, answers_per_cell=4),
            decoding=DecodingSettings(arguments={"max_new_tokens": 8}),
            generation_bias=Settings(
                style_classifier=StyleClassifierSettings(name=str(ruler / "classifier")),
                style_clusters=str(ruler / "clusters.json"),
                neutral_dialogue=None,
                permutations=9,
            ),
            output_dir=output_dir,
            report_to="none",
        )
    )
    scores = read_scores(output_dir / "scores.json")
    responses = pd.read_parquet(output_dir / "responses.parquet")
    return {"scores": scores, "responses": responses, "signature": find_score(scores, "fgb").signature}


@pytest.fixture(scope="module", params=FAMILIES)
def finished(request, ruler, tmp_path_factory):
    """Yield the family, the measurement of its base, the run's folder, and whether the base is unchanged."""
    folder = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    model = getattr(tiny_checkpoints, request.param)(folder / "model")
    files = sorted((folder / "model").iterdir())
    hashes = [sha256_of(file) for file in files]
    base = measured(ruler, model, folder / "before")
    labelled = LabelSettings(run=folder / "before", quantile=0.5, report_to="none", output_dir=folder / "label")
    label(labelled)
    # One direction makes the thinker end its thoughts; at the others' rate it would be unlearned with all else.
    rate = 0.001 if request.param == "thinker" else 0.005
    training = TuningSettings(
        epochs=1,
        batch_size=16,
        learning_rate=rate,
        max_perplexity_rise=1e6,
        evaluations_per_epoch=1,
    )
    settings = {"training": training, "measure_every": 0, "labels": folder / "label", "report_to": "none"}
    tune(TuneSettings(method=METHODS[request.param], output_dir=folder / "tune", **settings))
    return request.param, base, folder, [sha256_of(file) for file in files] == hashes


def test_it_is_measured_tuned_and_measured_again(finished, ruler):
    name, base, folder, as_it_was = finished
    assert as_it_was
    manifest = json.loads((folder / "tune" / "run.json").read_text())
    assert read_record(folder / "tune", "tuning")["settings"]["method"] == (METHODS[name] or "distill")
    assert manifest["outputs_changed"]["max_logit_change"] > 0.01
    after = measured(ruler, folder / "tune" / "adapter", folder / "after")
    for run in (base, after):
        assert math.isfinite(find_score(run["scores"], "fgb", "pooled_corrected").value)
        assert run["signature"]["format"] == base["signature"]["format"]  # the adapter has the base's prompt format
    assert (base["responses"]["response"] != after["responses"]["response"]).mean() > 0.2


def test_what_never_leaves_its_thought_is_counted_and_not_measured(finished):
    name, base, folder, _ = finished
    responses = base["responses"]
    unfinished = responses["left_out"] == UNFINISHED_REASONING
    shares = [score for score in base["scores"] if score.metric == "unfinished_share"]
    if name != "thinker":
        assert not unfinished.any() and not shares and responses["left_out"].isna().all()
        return
    assert 0 < unfinished.sum() < N / 2 and (responses["response"][unfinished] == "").all()
    assert not responses["response"].str.contains("</think>").any()
    assert [(score.value, score.n) for score in shares] == [(unfinished.mean(), N)]
    empty = responses["response"].str.strip() == ""
    overall = find_score(base["scores"], "fgb")
    assert (overall.n, overall.n_left_out) == (N - empty.sum(), empty.sum())
    report = (folder / "before" / "report.html").read_text()
    assert re.search(rf"{100 * unfinished.mean():.1f}\s% of the responses", report)
    assert not set(pd.read_parquet(folder / "label" / "labels.parquet")["prompt_id"]) & set(
        responses["prompt_id"][empty]
    )
