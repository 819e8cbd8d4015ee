"""An ablation on the testbed, small: shared stages run once, a kill repeats nothing, points are what they say."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from evaluation.errors import InputError
from evaluation.results import find_score, read_scores
from recipes.ablate import plan_of, points
from recipes.config import AblateConfig, checked

SETTINGS = """
loop:
  measure:
    descriptors: 26
    per_cell: 2
    unseen_by: descriptor
    permutations: 0
    filters:
      noun_phrase_type: [descriptor_noun]
      template: ["I'm {noun_phrase}.", "It's hard being {noun_phrase}."]
  label: {quantile: 0.7}
  tune:
    training: {epochs: 3, batch_size: 16, evaluations_per_epoch: 2, max_rows: 100, largest_perplexity_rise: 9}
    measure_every: 0
sweep:
  - method: [exchange, control_tags]
  - method: exchange
    rounds: 2
"""
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
NUMBERS = ["method", "rounds", "reduction", "perplexity_change", "distinct_2_change", "untagged_ratio"]


def command(folder: Path, *arguments: str) -> list[str]:
    config = str(folder.parent / "ablate.yaml")
    return [sys.executable, "-m", "recipes", "ablate", "--config", config, "--output_dir", str(folder), *arguments]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ablate")
    (folder / "ablate.yaml").write_text(SETTINGS)
    done = subprocess.run(command(folder / "run"), env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "run", done.stdout


def stages(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("stages/*/run.json"))


def test_what_points_have_in_common_is_run_once(finished):
    """Two points of one round share before, train and label; the second round goes on from the first's exchange."""
    commands = [name.rpartition("-")[0] for name in stages(finished[0])]
    counts = {name: commands.count(name) for name in set(commands)}
    # before, train, the second round's train, after three points, control tags without the tag
    assert counts == {"measure": 7, "label": 2, "tune": 3, "compare": 3}


def test_the_table_has_what_the_comparisons_have(finished):
    folder, printed = finished
    table = pd.read_parquet(folder / "points.parquet")
    assert table["method"].tolist() == ["exchange", "control_tags", "exchange"]
    assert table["rounds"].isna().tolist() == [True, True, False]
    for row in table.itertuples():
        scores = read_scores(Path(row.folder) / "scores.json")
        for name, group in (
            ("reduction", {}),
            ("reduction_seen", {"seen": "yes"}),
            ("reduction_unseen", {"seen": "no"}),
        ):
            value = find_score(scores, "fgb_pooled_corrected_reduction", **group).value
            assert getattr(row, name) == value or value != value
    assert table["predicted_left"].notna().tolist() == [True, True, False]  # the plan is of the base's responses
    assert printed.strip().splitlines()[-1] == f"Report: {folder / 'report.html'}"


def test_one_wandb_run_for_each_point_and_one_for_the_summary(finished):
    assert len(list((finished[0] / "wandb").glob("offline-run-*/*.wandb"))) == 4
    assert len(list((finished[0] / "tracked").iterdir())) == 3


def test_a_new_point_runs_alone_and_two_jobs_give_the_numbers_of_one(finished, tmp_path):
    (tmp_path / "ablate.yaml").write_text(SETTINGS)
    folder = tmp_path / "run"
    process = subprocess.Popen(command(folder, "--jobs", "2"), env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while not list(folder.glob("stages/compare-*/run.json")):  # in the middle of a point, with another one finished
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(2)  # the workers see that their parent is gone
    before = {path: path.stat().st_mtime_ns for path in folder.glob("stages/*/run.json")}
    subprocess.run(command(folder, "--jobs", "2"), env=ENVIRONMENT, capture_output=True, check=True)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert stages(folder) == stages(finished[0]) or len(stages(folder)) == len(stages(finished[0]))
    ours, theirs = (pd.read_parquet(run / "points.parquet")[NUMBERS] for run in (folder, finished[0]))
    pd.testing.assert_frame_equal(ours, theirs)


def config(**changes):
    return checked(AblateConfig, {"sweep": [{"method": "kto"}], **changes}, "test")


def test_points_are_the_products_of_each_grid():
    grids = [{"method": ["kto", "dpo"], "label.quantile": [0.7, 0.9]}, {"method": "self_chat"}]
    assert list(points(config(sweep=grids))) == [
        {"method": "kto", "label.quantile": 0.7},
        {"method": "kto", "label.quantile": 0.9},
        {"method": "dpo", "label.quantile": 0.7},
        {"method": "dpo", "label.quantile": 0.9},
        {"method": "self_chat"},
    ]


def test_a_seed_is_of_every_stage():
    plan = plan_of(config(), {"method": "kto"}, 7)
    by_command = {stage.command: stage.config for stage in plan.stages}
    assert by_command["measure"].seed == by_command["label"].seed == by_command["tune"].training.seed == 7


def test_a_threshold_changes_what_depends_on_it_alone():
    low, high = (plan_of(config(), {"method": "kto", "label.quantile": q}, 0) for q in (0.7, 0.9))
    shared = [stage.folder == other.folder for stage, other in zip(low.stages, high.stages, strict=True)]
    assert shared == [True, True, False, False, False, False]  # before, train; label, tune, after, compare


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"method": "ktoo"}, "method: 'ktoo' is unknown; did you mean 'kto'"),
        ({"label.quantile": 0.5}, "has no `method`"),
        ({"label.quantil": 0.5}, "sweep: key: 'label.quantil' is unknown; did you mean 'label.quantile'"),
        ({"labels.quantile": 0.5}, "'labels.quantile' is no field of the loop"),
        ({"label.quantile": 1.5}, "label.quantile: 1.5 cannot be used"),
        ({"label.seed": 3}, "label.seed: it is set by itself"),
    ],
)
def test_a_mistake_in_a_point_is_one_error(point, message):
    with pytest.raises(InputError, match=message):
        plan_of(config(), point if "has no" in message else {"method": "kto", **point}, 0)
