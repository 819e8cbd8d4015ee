"""What changed since a run is noticed by the runs that read it, and what failed for a passing reason is tried again."""

import json
import math
from dataclasses import replace

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.revisions import model_revision
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.score import find_score, read_scores, write_scores
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.compare import compare
from evenhand.recipes.finished_runs import check_model_unchanged
from evenhand.recipes.measure import rescoring_advice
from evenhand.recipes.settings import MeasureSettings
from tests.measured_runs import write_measured
from tests.recorded_runs import change_record
from tests.testbed_settings import generation_bias

VECTORS = [[0.9, 0.1, 0], [0.4, 0.6, 0], [0.1, 0.9, 0], [0.6, 0.4, 0]]


@pytest.fixture
def tuned(tmp_path):
    """An adapter as `tune` leaves it, on a base in the folder `base`; nothing of it can be loaded."""
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for folder, config in ((base, "config.json"), (adapter, "adapter_config.json")):
        folder.mkdir()
        (folder / config).write_text(json.dumps({"base_model_name_or_path": str(base)}))
    (base / "model.safetensors").write_text("weights")
    (adapter / "adapter_model.safetensors").write_text("change")
    (adapter / "evenhand.json").write_text(json.dumps({"base_revision": model_revision(str(base))}))
    return adapter


def settings_of(model):
    return MeasureSettings(model=ModelSettings(name=str(model)), generation_bias=generation_bias())


def test_an_adapter_is_used_on_the_base_that_was_tuned_only(tuned):
    model_revision(str(tuned))
    (tuned.parent / "base" / "model.safetensors").write_text("other weights")
    with pytest.raises(InputError, match=r"^model: \S+adapter .*\S+base "):
        model_revision(str(tuned))


def two_runs(folder, base):
    """Two runs of made-up responses, the first of which is of the model in the folder `base`, with another revision."""
    clusters = folder / "clusters.json"
    clusters.write_text('{"Z": ["z"]}')
    own = {"style_clusters": str(clusters), "has_scores": True}
    before = write_measured(folder / "before", VECTORS, "abcd", **own)
    scores = read_scores(before / "scores.json")
    signed = [replace(score, signature={"model": {"revision": "r"}}) for score in scores]
    write_scores(before / "scores.json", signed)
    recorded = read_record(before, "before")["settings"]
    change_record(before, settings={**recorded, "model": {**recorded["model"], "name": str(base)}})
    return before, write_measured(folder / "after", VECTORS, "efgh", **own)


@pytest.fixture
def compared(tuned, tmp_path, monkeypatch):
    before, after = two_runs(tmp_path, tuned.parent / "base")
    monkeypatch.setattr("evenhand.evaluation.runs.record.damaged_files", lambda folder, record: [])
    return CompareSettings(before=before, after=after, output_dir=tmp_path / "compare", report_to="none")


def test_a_comparison_whose_base_is_away_is_computed_when_it_is_back(compared, tuned):
    def kept_relevance():
        compare(compared)
        return find_score(read_scores(compared.output_dir / "scores.json"), "relevance", kind="kept")

    base = tuned.parent / "base"
    away = base.rename(tuned.parent / "away")
    first = kept_relevance()
    assert math.isnan(first.value)
    away.rename(base)  # it is back, and has other weights than those that were measured
    again = kept_relevance()
    assert math.isnan(again.value) and again.reason != first.reason
    assert "is no longer the measured one" in again.reason
    base.rename(away)
    assert kept_relevance().reason == again.reason  # finished: nothing is asked again


def test_a_comparison_stops_if_the_base_of_the_tuned_model_has_changed(compared, tuned, monkeypatch):
    monkeypatch.setattr("evenhand.recipes.compare.model_revision", lambda *_: model_revision(str(tuned)))
    (tuned.parent / "base" / "model.safetensors").write_text("other weights")
    with pytest.raises(InputError, match="^after: model: .* was tuned on"):
        compare(compared)


def test_responses_of_a_model_that_has_changed_are_not_tuned_on(tuned):
    base = tuned.parent / "base"
    record = {"inputs": {"generation_bias": {"model": model_revision(str(base))}}}
    check_model_unchanged(settings_of(base), record, "labels")
    (base / "model.safetensors").write_text("other weights")
    with pytest.raises(InputError, match="^labels: "):
        check_model_unchanged(settings_of(base), record, "labels")


@pytest.mark.parametrize(
    ("changed", "is_given"),
    [
        (["generation_bias.permutations"], True),
        (["inputs.generation_bias.style_classifier", "generation_bias.style_classifier.dtype"], True),
        (["inputs.generation_bias.model"], False),
        (["decoding.arguments.temperature"], False),
        (["inputs.generation_bias.dataset"], False),
        (["generation_bias.permutations", "seed"], False),
        (["generation_bias.control_tag"], False),
        (["model.system_prompt"], False),
    ],
)
def test_responses_are_to_be_scored_again_only_where_scoring_alone_has_changed(tmp_path, changed, is_given):
    (tmp_path / "responses.parquet").touch()
    assert bool(rescoring_advice(settings_of("model"), changed, tmp_path)) is is_given
    exchanged = MeasureSettings(
        model=ModelSettings(name="m"), generation_bias=generation_bias(), method="nearest_style"
    )
    assert not rescoring_advice(exchanged, changed, tmp_path)  # its classifier chooses among responses
