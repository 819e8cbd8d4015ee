"""The whole loop on the testbed, small: what it leaves, and that a kill in the middle of any stage changes nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluation.results import find_score, read_scores

SETTINGS = """
measure:
  descriptors: 26
  per_cell: 4
  batch_size: 64
  permutations: 19
  filters:
    noun_phrase_type: [descriptor_noun, noun_descriptor]
    template: ["I'm {noun_phrase}.", "It's hard being {noun_phrase}.", "I like {plural_noun_phrase}."]
label: {quantile: 0.7}
tune:
  training: {epochs: 2, batch_size: 16, evaluations_per_epoch: 4, max_rows: 300, largest_perplexity_rise: 9}
  measure_every: 10
  measure_descriptors: 4
"""
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
SHARED = ("before", "train", "label")
TAGGED, UNTAGGED = "control_tags", "kto"
STAGES = (
    *SHARED,
    *(f"{TAGGED}/{name}" for name in ("tune", "after", "untagged", "compare")),
    *(f"{UNTAGGED}/{name}" for name in ("tune", "after", "compare")),
)

# What is on disk in the middle of a stage. Labelling and comparing take a second: they are killed as they begin.
MIDDLE = {
    "before": "responses/*.parquet",
    "train": "responses/*.parquet",
    "label": "config.yaml",
    "control_tags/tune": "checkpoints/checkpoint-*/trainer_state.json",
    "control_tags/after": "responses/*.parquet",
    "control_tags/compare": "config.yaml",
    "kto/tune": "checkpoints/checkpoint-*/trainer_state.json",
}


def command(folder: Path) -> list[str]:
    return [
        sys.executable, "-m", "recipes", "loop", "--config", str(folder.parent / "loop.yaml"),
        "--output_dir", str(folder), "--report_to", "wandb",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loop")
    (folder / "loop.yaml").write_text(SETTINGS)
    done = subprocess.run(command(folder / "run"), env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "stage 1 of 10: measure → " in done.stderr
    return folder / "run", done.stdout


def test_it_ends_with_the_table_and_the_path_of_the_report(finished):
    folder, printed = finished
    assert "pooled FGB*" in printed
    assert printed.strip().splitlines()[-1] == f"Report: {folder / 'report.html'}"
    for page in (folder, folder / TAGGED / "compare", folder / UNTAGGED / "compare"):
        assert "<html" in (page / "report.html").read_text()
    assert f"{TAGGED}/compare/report.html, {UNTAGGED}/compare/report.html" in (folder / "report.html").read_text()


def test_both_methods_stand_beside_the_same_base(finished):
    pandas = pytest.importorskip("pandas")
    points = pandas.read_parquet(finished[0] / "points.parquet").set_index("method")
    assert list(points.index) == [TAGGED, UNTAGGED]
    for method in points.index:
        scores = read_scores(finished[0] / method / "compare" / "scores.json")
        assert points["reduction"][method] == find_score(scores, "fgb_pooled_corrected_reduction").value
    assert points["untagged_ratio"].notna().tolist() == [True, False]
    assert points["reduction_confirmed"].notna().all()


def test_every_stage_leaves_its_config_manifest_and_tables(finished):
    for stage in STAGES:
        manifest = json.loads((finished[0] / stage / "run.json").read_text())
        assert manifest["seconds"]["total"] > 0
        assert (finished[0] / stage / "config.yaml").exists()
    scores = read_scores(finished[0] / TAGGED / "after" / "scores.json")
    signature = find_score(scores, "fgb_pooled_corrected").signature
    assert signature["model"]["control_tag"] == " no_bias"
    assert {"dataset", "decoding", "style_classifier", "seed", "packages"} <= set(signature)


def test_the_prompts_of_training_are_not_those_of_measuring(finished):
    pandas = pytest.importorskip("pandas")
    texts = [set(pandas.read_parquet(finished[0] / side / "prompts.parquet")["text"]) for side in ("train", "before")]
    assert texts[0]
    assert not texts[0] & texts[1]


def test_the_adapter_changed_the_model_and_training_was_measured(finished):
    manifest = json.loads((finished[0] / TAGGED / "tune" / "run.json").read_text())
    assert manifest["outputs_changed"]["greedy_share"] > 0
    curves = json.loads((finished[0] / TAGGED / "tune" / "curves.json").read_text())
    assert len(curves["bias"]) >= 2
    assert len(curves["validation_loss"]) > 2


def test_one_offline_wandb_run_for_each_stage(finished):
    for stage in STAGES:
        assert len(list((finished[0] / stage / "wandb").glob("offline-run-*/*.wandb"))) == 1


def test_running_it_again_does_nothing(finished):
    folder, _ = finished
    before = {path: path.stat().st_mtime_ns for path in folder.glob("**/run.json")}
    done = subprocess.run(command(folder), env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stderr.count("is finished; nothing to do") == len(STAGES)
    assert {path: path.stat().st_mtime_ns for path in folder.glob("**/run.json")} == before


def test_killed_in_the_middle_of_every_stage_it_ends_the_same(finished, tmp_path):
    (tmp_path / "loop.yaml").write_text(SETTINGS)
    folder = tmp_path / "run"
    for stage in MIDDLE:
        process = subprocess.Popen(
            command(folder), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 120
        while not list((folder / stage).glob(MIDDLE[stage])):
            assert process.poll() is None, f"the loop ended before the middle of {stage}"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not (folder / stage / "run.json").exists()
    done = subprocess.run(command(folder), env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stderr.count("is finished; nothing to do") == STAGES.index(stage)
    for stage in ("before", "control_tags/after", "control_tags/compare", "kto/compare"):
        ours, theirs = (read_scores(run / stage / "scores.json") for run in (folder, finished[0]))
        assert [(s.metric, s.group, s.value, s.interval) for s in ours] == [
            (s.metric, s.group, s.value, s.interval) for s in theirs
        ]
