"""An ablation on the testbed, small: what is shared runs once, a kill or a move repeats nothing, points are right."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.settings import checked
from evenhand.recipes.ablate import distinct_points, swept_points
from evenhand.recipes.tuning_settings import AblateSettings
from tests.forked_commands import wait_until
from tests.recorded_runs import write_run
from tests.testbed_settings import CLASSIFIERS, NEUTRAL_DIALOGUE

pytestmark = pytest.mark.slow

SETTINGS = """
loop:
  allow_no_bias: true  # which so few responses cannot show
  measure:
    prompts:
      descriptors: 14
      answers_per_cell: 2
      untuned_by: descriptor
      filters:
        noun_phrase_type: [descriptor_noun]
        template: ["I'm {noun_phrase}.", "It's hard being {noun_phrase}."]
    model: package:evenhand/recipes/testbed/dialogue_model
    generation_bias: {CLASSIFIERS, permutations: 0, outcomes: [], neutral_dialogue: NEUTRAL}
  label: {quantile: 0.7}
  tune:
    training: {epochs: 1, batch_size: 16, evaluations_per_epoch: 1, max_rows: 48, max_perplexity_rise: 900}
    measure_every: 0
sweep:
  - method: [exchange, prompt]
  - method: exchange
    measure.model.adapter_strength: 0.5
    measure.metrics: [[generation_bias]]  # a value that is a list, and the default
"""


def arguments(file: Path, folder: Path | str, *further: str) -> list[str]:
    return ["ablate", "--config", str(file), "--output_dir", str(folder), *further]


@dataclass
class Ablation:
    """A finished ablation: its folder, what the last command printed and logged, and the stages before the kill."""

    folder: Path
    printed: str
    log: str
    done_before: dict[Path, int]  # run.json: when it was written


@pytest.fixture(scope="module")
def finished(tmp_path_factory, commands):
    """An ablation that was killed, moved and continued."""
    base = tmp_path_factory.mktemp("ablate")
    (base / "ablate.yaml").write_text(SETTINGS.replace("NEUTRAL", NEUTRAL_DIALOGUE).replace("CLASSIFIERS", CLASSIFIERS))
    running = commands.start(*arguments(base / "ablate.yaml", base / "first", "--report_to", "none"))
    # In the middle of a point, with another one finished.
    wait_until(lambda: finished_in(base / "first", "compare-*") or running.status() is not None)
    assert running.status() is None, running.stderr
    running.kill()
    (base / "deeper").mkdir()
    folder = (base / "first").rename(base / "deeper" / "run")
    done_before = {path: path.stat().st_mtime_ns for path in finished_in(folder)}
    done = commands.run(*arguments(base / "ablate.yaml", folder))
    return Ablation(folder, done.stdout, done.stderr, done_before)


def finished_in(folder: Path, stage: str = "*") -> list[Path]:
    """The records of the finished stages of an ablation."""
    records = folder.glob(f"stages/{stage}/run.json")
    return [path for path in records if json.loads(path.read_text())["state"] == "finished"]


def stages(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("stages/*/run.json"))


def test_what_points_have_in_common_is_run_once(finished):
    """All points share before, train and label; both strengths of exchange share its tuning."""
    commands = [name.rpartition("-")[0] for name in stages(finished.folder)]
    counts = {name: commands.count(name) for name in set(commands)}
    # before, train, after three points
    assert counts == {"measure": 5, "label": 1, "tune": 1, "compare": 3}


def test_the_table_has_what_the_comparisons_have(finished):
    folder = finished.folder
    table = pd.read_parquet(folder / "points.parquet")
    assert table["method"].tolist() == ["exchange", "prompt", "exchange"]
    assert table["measure.model.adapter_strength"].isna().tolist() == [True, True, False]
    for row in table.itertuples():
        scores = read_scores(folder / row.folder / "scores.json")
        for name, group in (
            ("reduction", {}),
            ("reduction_tuned", {"tuned": "yes"}),
            ("reduction_untuned", {"tuned": "no"}),
        ):
            value = find_score(scores, "fgb", "pooled_corrected", "reduction", **group).value
            assert getattr(row, name) == value or value != value
    assert finished.printed.strip().splitlines()[-1] == f"Report: {folder / 'report.html'}"


def test_no_stage_is_repeated_after_a_kill_and_a_move(finished):
    before = finished.done_before
    assert 0 < len(before) < len(stages(finished.folder))
    assert finished.log.count("is finished; nothing to do") == len(before)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_finished_ablation_that_was_moved_is_found_finished_from_anywhere(finished, tmp_path, commands):
    moved = tmp_path / "elsewhere"
    shutil.copytree(finished.folder, moved, ignore=shutil.ignore_patterns("wandb"))
    before = {path: path.stat().st_mtime_ns for path in moved.rglob("run.json")}
    points = (moved / "points.parquet").read_bytes()
    done = commands.run(*arguments(finished.folder.parents[1] / "ablate.yaml", "elsewhere"), cwd=tmp_path)
    assert done.stderr.count("is finished; nothing to do") == len(stages(finished.folder)) == len(before)
    assert {path: path.stat().st_mtime_ns for path in moved.rglob("run.json")} == before
    assert (moved / "points.parquet").read_bytes() == points
    # Points are not tracked again: the one W&B run is the summary's.
    assert len(list((moved / "wandb").glob("offline-run-*/*.wandb"))) == 1


def settings(**changes):
    loop = {"control_tags": {"targets": "labels"}}
    return checked(AblateSettings, {"sweep": [{"method": "rejection"}], "loop": loop, **changes}, "test")


def test_points_are_products_and_share_their_stages():
    grids = [{"method": ["rejection", "control_tags"], "label.quantile": [0.7, 0.9]}, {"method": "self_chat"}]
    assert distinct_points(settings(sweep=grids)) == [
        {"method": "rejection", "label.quantile": 0.7},
        {"method": "rejection", "label.quantile": 0.9},
        {"method": "control_tags", "label.quantile": 0.7},
        {"method": "control_tags", "label.quantile": 0.9},
        {"method": "self_chat"},
    ]
    (point,) = swept_points(settings(), {"method": "rejection"}, 7)
    assert point.before.seed == point.after.seed == point.tune.seed == 7
    (low,), (high,) = (swept_points(settings(), {"method": "rejection", "label.quantile": q}, 0) for q in (0.7, 0.9))
    shared = [stage.output_dir == other.output_dir for stage, other in zip(low.stages, high.stages, strict=True)]
    assert shared == [True, True, False, False, False, False]  # before, train; label, tune, after, compare


def test_points_that_differ_only_in_a_threshold_that_the_method_does_not_use_are_one():
    grid = {"method": ["exchange", "rejection"], "label.quantile": [0.7, 0.9], "train_answers_per_cell": [2, 4]}
    distinct = distinct_points(settings(sweep=[grid]))
    assert [point for point in distinct if point["method"] == "exchange"] == [
        {"method": "exchange", "train_answers_per_cell": 2},
        {"method": "exchange", "train_answers_per_cell": 4},
    ]
    assert len(distinct) == 2 + 4
    grid = {"method": ["prompt", "borrowed_opening+nearest_style"], "nearest_style.candidates": [2, 3]}
    assert distinct_points(settings(sweep=[grid])) == [
        {"method": "prompt"},
        {"method": "borrowed_opening+nearest_style", "nearest_style.candidates": 2},
        {"method": "borrowed_opening+nearest_style", "nearest_style.candidates": 3},
    ]


def test_preferences_depend_on_the_order_of_bias_values_and_on_no_threshold():
    grid = {"label.quantile": [0.7, 0.9], "label.directions": ["raw", "shrunk"]}
    with pytest.raises(InputError, match=r"uses label\.quantile"):
        distinct_points(settings(sweep=[{"method": "preference", **grid}]))
    both = {"method": ["preference", "distill"], "distill.only_bias": [True], **grid}
    distinct = distinct_points(settings(sweep=[both]))
    assert [point for point in distinct if point["method"] == "preference"] == [
        {"method": "preference", "label.directions": directions} for directions in ("raw", "shrunk")
    ]
    assert len([point for point in distinct if point["method"] == "distill"]) == 4


def test_control_tags_use_the_threshold_and_a_run_without_the_tag_where_they_learn_labels():
    grid = {"method": "control_tags", "control_tags.targets": ["labels", "predictions"]}
    grid |= {"label.quantile": [0.7, 0.9], "measure_without_tag": [False, True]}
    distinct = distinct_points(settings(sweep=[grid]))
    of_labels = [point for point in distinct if point["control_tags.targets"] == "labels"]
    assert len(of_labels) == 4
    assert [point for point in distinct if point not in of_labels] == [
        {"method": "control_tags", "control_tags.targets": "predictions"}
    ]


def test_settings_of_tuning_are_used_by_methods_that_train_alone():
    grid = {"method": ["exchange", "prompt"], "tune.training.learning_rate": [1e-3, 4e-3]}
    assert distinct_points(settings(sweep=[grid])) == [
        {"method": "exchange", "tune.training.learning_rate": 1e-3},
        {"method": "exchange", "tune.training.learning_rate": 4e-3},
        {"method": "prompt"},
    ]
    for name, values, trained in (
        ("train_answers_per_cell", [2, 4], "exchange"),
        ("measure_without_tag", [False, True], "control_tags"),
    ):
        points = distinct_points(settings(sweep=[{"method": [trained, "nearest_style"], name: values}]))
        assert points == [*({"method": trained, name: value} for value in values), {"method": "nearest_style"}]


def test_a_quantile_beside_a_beta_is_not_used():
    grid = {"method": "rejection", "label.beta": [None, 0.01], "label.quantile": [0.7, 0.9]}
    by_quantile = [{"method": "rejection", "label.beta": None, "label.quantile": q} for q in (0.7, 0.9)]
    assert distinct_points(settings(sweep=[grid])) == [*by_quantile, {"method": "rejection", "label.beta": 0.01}]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [("measure.model.dtype", ["auto", "float32"], "bfloat16"), ("measure.metrics", [["generation_bias"]], "float16")],
)
def test_a_resumed_sweep_has_the_precisions_that_it_had(name, values, expected, tmp_path, monkeypatch):
    """`auto` is the precision of an earlier measurement, but not of one whose precision or metrics are another point's.

    Here one with other metrics, which `auto` measures in float32, is on disk first, and then one in float16.
    """
    monkeypatch.setattr("evenhand.recipes.automatic._device_precision", lambda device: "bfloat16")
    for folder, metrics, dtype in (("0", ["generation_bias", "likelihood_bias"], "float32"), ("1", None, "float16")):
        recorded = {"metrics": metrics or ["generation_bias"], "split": "measure", "method": None}
        write_run(tmp_path / "stages" / f"measure-{folder}", "measure", **recorded, model={"dtype": dtype})
    found = settings(
        loop={"measure": {"model": "m"}}, sweep=[{"method": "exchange", name: values}], output_dir=tmp_path
    )
    (point,) = swept_points(found, {"method": "exchange", name: values[0]}, 0)
    assert point.before.model.dtype == expected


@pytest.mark.parametrize(
    ("loop", "grid"),
    [
        ({"label": {"beta": 0.01}}, {"method": "rejection", "label.quantile": [0.7, 0.9]}),
        ({"control_tags": {"targets": "predictions"}}, {"method": "control_tags", "label.alpha": [0, 1, 2]}),
        ({}, {"method": ["exchange", "prompt"], "label.quantile": 0.9}),
    ],
)
def test_a_setting_that_no_method_of_its_grid_uses_is_refused(loop, grid):
    with pytest.raises(InputError, match=f"uses {list(grid)[1]}, "):
        distinct_points(settings(sweep=[grid], loop=loop))


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({"label.quantile": 0.5}, "has no `method`"),
        ({"labels.quantile": 0.5}, "'labels.quantile' is not a setting in use"),
        ({"label.quantile": 1.5}, "label.quantile: 1.5 cannot be used"),
        ({"seed": 5}, "'seed' is not a setting in use: .* `seeds`"),
        ({"output_dir": "runs/elsewhere"}, "'output_dir' is not a setting in use"),
    ],
)
def test_a_mistake_in_a_point_is_one_error(point, message):
    with pytest.raises(InputError, match=message):
        distinct_points(settings(sweep=[point if "has no" in message else {"method": "rejection", **point}]))
