"""What an ablation sends to W&B: settings in the config, results in the summary, and curves over β."""

import csv
import json
import math
from dataclasses import replace

import pytest

from evenhand.evaluation.errors import TuningRejected
from evenhand.evaluation.files import write_json
from evenhand.evaluation.runs.results import RECORD
from evenhand.evaluation.score import write_scores
from evenhand.evaluation.settings import checked
from evenhand.recipes.ablate import distinct_points, swept_points
from evenhand.recipes.sweep.page import page
from evenhand.recipes.sweep.points import point_row, read_sweep, report_so_far, track_point, write_report, write_sweep
from evenhand.recipes.tuning_settings import AblateSettings
from tests.forked_commands import wait_until
from tests.named_scores import named_score
from tests.offline_wandb import offline_runs, read_offline_run

BETAS = {0.001: 0.7, 0.1: 0.2}  # β: share labelled `bias`
LOST = 0.5  # β of the point that is refused
SECRET = "Answer as my lawyer would."
HISTORY = [
    {"step": 2, "loss": 2.0, "learning_rate": 0.01},
    {"step": 2, "eval_loss": 0.0},
    {"step": 4, "loss": 1.0, "learning_rate": 0.0},
    {"step": 4, "eval_loss": math.log(3)},
]


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """The W&B runs of an ablation: two thresholds, a refused one, self-chat; and the rows of the finished points."""
    folder = tmp_path_factory.mktemp("tracked") / "sweep"
    model = {"name": "package:evenhand/recipes/testbed/dialogue_model", "system_prompt": SECRET}
    sweep = [{"method": "control_tags", "label.beta": [*BETAS, LOST]}, {"method": "self_chat"}]
    loop = {"measure": {"model": model, "generation_bias": {"style_classifier": "go_emotions"}}}
    loop |= {"measure_without_tag": False, "control_tags": {"targets": "labels"}}
    settings = checked(AblateSettings, {"loop": loop, "sweep": sweep, "output_dir": str(folder)}, "test")
    points = [point for values in distinct_points(settings) for point in swept_points(settings, values, 0)]
    finished = [point for point in points if point.swept.get("label.beta") != LOST]
    refused = {
        point.comparison: TuningRejected("learning_rate", "it burnt") for point in points if point not in finished
    }
    for point in points:
        write_stages(point)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        for point in finished:
            track_point(settings, point)
        write_report("An ablation", settings, points, refused)
    wait_until(lambda: len(offline_runs(folder)) == len(points) + 1)
    return offline_runs(folder), [point_row(point, folder) for point in finished], folder


def write_stages(point) -> None:
    """Write the files of a point's stages that the report reads."""
    write_scores(point.before.output_dir / "scores.json", levels(0.04))
    write_scores(point.after.output_dir / "scores.json", levels(point.swept.get("label.beta", 0.02)))
    reduction = named_score("fgb_pooled_corrected_reduction", 0.5, None, (-9, 1), 9, interval=(0.4, 0.6))
    write_scores(point.comparison / "scores.json", [reduction])
    if point.tune is None:
        return
    point.tune.output_dir.mkdir(parents=True, exist_ok=True)
    (point.tune.output_dir / RECORD).write_text(json.dumps({"seconds": {"total": 90}}))
    state = {"global_step": 4, "log_history": HISTORY}
    write_json(point.tune.output_dir / "checkpoints" / "checkpoint-4" / "trainer_state.json", state)
    beta = point.swept.get("label.beta", 0.05)
    threshold = {"alpha": 0, "beta": beta, "quantile": 0.3, "share_labelled_bias": BETAS.get(beta, 0.5), "n": 9}
    point.label.output_dir.mkdir(parents=True, exist_ok=True)
    (point.label.output_dir / "threshold.json").write_text(json.dumps(threshold))


def levels(value):
    bounds = (0, 1)
    scores = [
        named_score(name, value, 0.0, bounds, 9, interval=(value / 2, value * 2))
        for name in ("fgb", "fgb_corrected", "fgb_pooled_corrected")
    ]
    group = {"cluster": "CARE"}
    scores.append(named_score("scgb", value, 0.0, bounds, 9, interval=(value / 2, value * 2), group=group))
    return scores


def point_runs(tracked):
    """Return the runs of the finished points, by name."""
    runs = tracked[0]
    return {name: run for name, run in runs.items() if name.endswith("seed 0") and str(LOST) not in name}


def test_every_point_has_its_realised_threshold(tracked):
    _, rows, _ = tracked
    names = ("alpha", "beta", "quantile", "share_labelled_bias")
    assert [[row.get(name) for name in names] for row in rows] == [
        [0, 0.001, 0.3, 0.7],
        [0, 0.1, 0.3, 0.2],
        [None] * 4,  # self_chat reads no labels
    ]


def test_the_config_has_settings_alone_and_the_summary_results(tracked):
    runs = point_runs(tracked)
    assert len(runs) == 3
    for run in runs.values():
        settings = {"method", "decoding", "seed", "measure", "train", "label", "tune", "training_curves"}
        threshold = {"alpha", "beta", "quantile", "share_labelled_bias"}
        is_labelled = run.config["method"] == "control_tags"
        expected = settings | (threshold | {"label.beta"} if is_labelled else set())
        assert set(run.config) - {"_wandb"} == expected
        assert run.config["measure"]["generation_bias"]["style_classifier"]["name"] == "go_emotions"
        assert "lora_rank" in run.config["tune"]["training"]
        assert not any(name in ("output_dir", "report_to") for name in run.config["measure"])
        assert run.summary["reduction"] == 0.5 and run.summary["base"] == 0.04 and run.summary["minutes"] == 1.5
        assert run.summary["fgb_low"] == run.summary["fgb"] / 2
        assert not threshold & set(run.summary)


SECRETS = ['You are the bot of ACME Bank. <Never> mention project Falcon, "please".', "Be\nbrief: say no" + "!" * 300]


@pytest.fixture(scope="module", params=["scores", "responses"])
def swept_prompts(request, tmp_path_factory):
    """The folder of a finished ablation over system prompts and instructions, its W&B runs, and `upload`."""
    folder = tmp_path_factory.mktemp("prompts") / "sweep"
    sweep = [
        {"method": "control_tags", "measure.model.system_prompt": SECRETS},
        {"method": "prompt", "prompt.instruction": SECRETS},
        {"method": "self_chat", "measure.prompts.filters": [{"template": "Is ACME Bank's {plural_noun_phrase} kind?"}]},
    ]
    model = {"name": "package:evenhand/recipes/testbed/dialogue_model"}
    values = {"loop": {"measure": {"model": model}, "measure_without_tag": False}, "sweep": sweep}
    settings = checked(AblateSettings, {**values, "output_dir": str(folder), "upload": request.param}, "test")
    points = [point for swept in distinct_points(settings) for point in swept_points(settings, swept, 0)]
    for point in points:
        write_stages(point)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        for point in points:
            track_point(settings, point)
        write_report("An ablation", settings, points, {})
    wait_until(lambda: len(offline_runs(folder)) == len(points) + 1)
    return folder, offline_runs(folder), request.param


def test_swept_texts_leave_the_machine_only_with_the_responses(swept_prompts):
    folder, runs, upload = swept_prompts
    records = json.dumps([vars(run) for run in runs.values()], ensure_ascii=False)
    files = [path for path in (folder / "wandb").rglob("*") if path.is_file()]
    sent = records + "".join(path.read_bytes().decode("utf-8", "replace") for path in files)
    parts = ["ACME Bank", "project Falcon", "brief: say", "brief_say"]  # however they are escaped or shortened
    found = {part for part in parts if part in sent}
    assert found == (set() if upload == "scores" else set(parts[:3]))
    assert len(runs) == 6  # each point is a run of its own, whatever its name loses
    if upload == "scores":
        assert len([name for name in runs if "text 1" in name]) == 2 == len([name for name in runs if "text 2" in name])


def test_the_page_on_this_machine_has_the_texts(swept_prompts):
    folder, _, _ = swept_prompts
    assert "ACME Bank" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("low", "ratio"), [(0.01, 1.5), (-0.01, None)])
def test_bias_without_the_tag_is_divided_by_a_shown_bias_alone(tmp_path, low, ratio):
    loop = {"control_tags": {"targets": "labels"}}
    given = {"loop": loop, "sweep": [{"method": "control_tags"}], "output_dir": str(tmp_path)}
    settings = checked(AblateSettings, given, "test")
    (point,) = swept_points(settings, {"method": "control_tags"}, 0)
    write_stages(point)
    for stage, value in ((point.before, 0.04), (point.after_without_tag, 0.06)):
        pooled = named_score("fgb_pooled_corrected", value, 0.0, (-1, 1), 9, interval=(low, 0.1))
        write_scores(stage.output_dir / "scores.json", [pooled])
    found = point_row(point, tmp_path)["ratio_without_tag"]
    assert found != found if ratio is None else found == pytest.approx(ratio)


def test_no_system_prompt_leaves_the_machine(tracked):
    _, _, folder = tracked
    for path in (folder / "wandb").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_every_point_has_its_training_curves_and_headlines(tracked):
    for run in tracked[0].values():
        if run.name == "sweep-summary":
            continue
        assert run.config["training_curves"] == run.name
        steps = [row for row in run.history if "training/loss" in row]
        assert [(row["training/step"], row["training/loss"], row["training/learning_rate"]) for row in steps] == [
            (2, 2.0, 0.01),
            (4, 1.0, 0.0),
        ]
        assert [row["training/validation_perplexity"] for row in steps] == pytest.approx([1, 3])  # e^loss
        assert run.axes["training/loss"] == "training/step"
    for run in point_runs(tracked).values():
        (panels,) = [row for row in run.history if "reduction" in row]
        assert {name for name in panels if not name.startswith("_")} == {"fgb_pooled_corrected", "reduction"}


def test_a_refused_point_is_a_failed_run_with_its_reason(tracked):
    runs = tracked[0]
    (lost,) = [run for name, run in runs.items() if f"label.beta {LOST}" in name]
    assert lost.exit_code == 1 and "it burnt" in lost.summary["refused"]
    assert all(run.exit_code == 0 for run in runs.values() if run is not lost)


def test_the_files_are_written_after_each_point(tmp_path):
    values = {"loop": {"control_tags": {"targets": "labels"}, "measure_without_tag": False}, "report_to": "none"}
    sweep = [{"method": "control_tags", "label.beta": [*BETAS]}]
    settings = checked(AblateSettings, {**values, "sweep": sweep, "output_dir": str(tmp_path)}, "test")
    first, last = [point for swept in distinct_points(settings) for point in swept_points(settings, swept, 0)]
    write_so_far = report_so_far("An ablation", settings, [first, last])
    write_stages(first)
    stale = [tmp_path / name for name in ("thresholds_2.png", "table_10.csv", "table_of_mine.csv")]
    for path in stale:  # of an earlier sweep in this folder, and of the user
        path.touch()
    write_so_far(first)
    sweep = read_sweep(tmp_path)
    assert (len(sweep.points), sweep.n_points) == (1, 2)
    assert any("1 of 2 points" in warning for warning in page(sweep).warnings)
    assert {"report.html", "table_8.tex"} <= {path.name for path in tmp_path.iterdir()}
    assert [path.exists() for path in stale] == [False, False, True]
    (tmp_path / "report.html").unlink()
    write_stages(last)
    write_so_far(last)  # `write_report` follows
    assert not (tmp_path / "report.html").exists()


def test_a_point_is_tracked_once_there_is_a_tracker_and_again_once_it_is_finished(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    values = {"sweep": [{"method": "prompt"}], "output_dir": str(tmp_path)}
    untracked = checked(AblateSettings, values | {"report_to": "none"}, "test")
    settings = checked(AblateSettings, values, "test")
    (point,) = swept_points(settings, {"method": "prompt"}, 0)
    write_stages(point)
    track_point(untracked, point)
    lost = TuningRejected("model", "the base model shows no bias")
    for refused in (lost, lost, None, None):
        track_point(settings, point, refused)
    wait_until(lambda: sum(run.is_complete for run in map(read_offline_run, tmp_path.rglob("*.wandb"))) == 2)
    runs = sorted(map(read_offline_run, tmp_path.rglob("*.wandb")), key=lambda run: -run.exit_code)
    assert [(run.exit_code, run.summary["refused"]) for run in runs] == [(1, str(lost)), (0, "")]
    assert runs[1].summary["reduction"] == 0.5
    assert len([*(tmp_path / "wandb").glob("*.id")]) == 1  # both are one run of W&B


def test_pages_and_captions_name_what_differs_between_points(tmp_path):
    """The second model has fewer answers than the first."""
    models = {"a/small": 9, "a/large": 8}
    given = {"sweep": [{"method": "prompt", "measure.model": [*models]}], "output_dir": str(tmp_path)}
    settings = checked(AblateSettings, given, "test")
    points = [swept_points(settings, values, 0)[0] for values in distinct_points(settings)]
    for point, n in zip(points, models.values(), strict=True):
        write_stages(point)
        write_scores(point.before.output_dir / "scores.json", [replace(score, n=n) for score in levels(0.04)])
    write_sweep("An ablation", settings, points, {}, len(points))
    sweep = read_sweep(tmp_path)
    assert page(sweep).subtitle == "several base models · 2 tuned models"
    assert (sweep.base_model, sweep.classifier, list(sweep.n)) == ("", "go_emotions", [8, 9])
    names = [f"base model, model {model}, seed 0, sample" for model in models]
    assert [note.partition(":")[0] for note in sweep.notes] == [f"The {name}" for name in names]
    assert [link.text for link in sweep.links[2:]] == names
    # The folder of a plan, of a sweep that was moved.
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert read_sweep(moved).base_folder == str(moved / points[0].before.output_dir.relative_to(tmp_path))


def test_a_refused_point_has_the_scores_of_its_base(tmp_path):
    settings = checked(AblateSettings, {"sweep": [{"method": "prompt"}], "output_dir": str(tmp_path)}, "test")
    (point,) = swept_points(settings, {"method": "prompt"}, 0)
    assert "base" not in point_row(point, tmp_path, "it burnt")  # its base is not measured either
    write_stages(point)
    row = point_row(point, tmp_path, "it burnt")
    assert (row["base"], row["base_scgb: CARE_high"]) == (0.04, 0.08) and "fgb" not in row


def test_a_tuning_that_two_points_share_is_logged_once(tmp_path):
    loop = {"second_decoding": {"preset": "paper"}, "measure_without_tag": False}
    values = {"loop": loop, "sweep": [{"method": "exchange"}], "output_dir": str(tmp_path)}
    settings = checked(AblateSettings, values, "test")
    points = swept_points(settings, {"method": "exchange"}, 0)
    assert points[0].tune == points[1].tune
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "offline")
        for point in points:
            write_stages(point)
            track_point(settings, point)
    wait_until(lambda: len(offline_runs(tmp_path)) == 2)
    runs = offline_runs(tmp_path)
    logged = [any("training/loss" in row for row in runs[point.title].history) for point in points]
    assert logged == [True, False]
    assert {run.config["training_curves"] for run in runs.values()} == {points[0].title}


def test_the_page_has_a_chart_of_bias_without_a_click(tracked):
    run = tracked[0]["sweep-summary"]
    curve = "thresholds/control_tags_beta_set_fgb"
    axis = "thresholds/share_labelled_bias"
    assert run.axes[curve] == run.axes["thresholds/control_tags_beta_set_scgb_CARE"] == axis
    rows = [row for row in run.history if curve in row]
    assert [(row[axis], row[curve], row[f"{curve}_high"]) for row in rows] == [(0.2, 100.0, 200.0), (0.7, 1.0, 2.0)]
    assert [row["thresholds/beta"] for row in rows] == [0.1, 0.001]
    logged = {name.partition(".")[0] for name in run.summary}
    assert {"points", "table_8", "table_9", "thresholds", "report"} <= logged  # tables, figure and report


def test_the_tables_of_the_tracker_are_the_files(tracked):
    _, _, folder = tracked
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert {"thresholds.png", "thresholds.pdf", "table_8.csv", "table_8.tex", "table_9.csv", "table_9.tex"} <= names
    (logged,) = (folder / "wandb").rglob("files/media/table/table_8_*.table.json")
    with (folder / "table_8.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    table = json.loads(logged.read_text(encoding="utf-8"))
    assert table["columns"] == header and [row[0] for row in table["data"]] == [row[0] for row in rows]
    refused = header.index("refused_because")
    assert ["it burnt" in str(row[refused]) for row in table["data"]].count(True) == 1
