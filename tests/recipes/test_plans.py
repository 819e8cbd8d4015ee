"""Points of a loop: the settings and folders of their stages, and what is refused before the first stage runs."""

from pathlib import Path

import pytest

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.runs.lock import RunLocked, run_lock
from evenhand.evaluation.score import write_scores
from evenhand.evaluation.settings import checked
from evenhand.recipes import loop as module
from evenhand.recipes.ablate import ablate, hashed_folders
from evenhand.recipes.loop import loop, run_points
from evenhand.recipes.point import plan_points
from evenhand.recipes.tuning_settings import AblateSettings, LoopSettings
from tests.named_scores import named_score
from tests.testbed_settings import MODEL, with_testbed

METHODS = ("control_tags", "rejection")


def settings(tmp_path, **values):
    given = {"output_dir": str(tmp_path), "report_to": "none", "control_tags": {"targets": "labels"}, **values}
    given["measure"] = {"prompts": {"descriptors": 26}, **given.get("measure", {})}
    return checked(LoopSettings, with_testbed(given, "measure"), "test")


def with_strength(strength):
    return {"measure": {"model": {"name": MODEL.name, "adapter_strength": strength}}}


def plan(loop, method, folder):
    return plan_points(loop, method, lambda name, command, stage: folder / name)


def names(point, folder):
    return [stage.output_dir.relative_to(folder).as_posix() for stage in point.stages]


def test_second_decodings_share_labels_and_tuning(tmp_path):
    given = settings(tmp_path, second_decoding={"preset": "paper"}, measure={"capabilities": ["arc_easy"]})
    first, second = plan(given, "control_tags", tmp_path)
    shared = ["train", "label", "control_tags/tune"]
    assert names(first, tmp_path) == [
        *("before", *shared, "control_tags/after", "control_tags/untagged", "control_tags/compare")
    ]
    folder = "control_tags/second_decoding"
    assert names(second, tmp_path) == ["second_decoding/before", *shared, f"{folder}/after", f"{folder}/compare"]
    assert (first.decoding, second.decoding) == ("sample", "paper") and first.tune == second.tune
    assert [point.before.decoding.preset for point in (first, second)] == ["sample", "paper"]
    scored = [stage for point in (first, second) for stage in point.stages if getattr(stage, "capabilities", None)]
    assert scored == [first.before, first.after]  # capabilities are scored before and after tuning alone
    assert len(plan(given, "nearest_style", tmp_path)) == 1  # beam search has no candidates
    sampling = {"preset": "sample", "arguments": {"temperature": 0.7}}
    assert len(plan(settings(tmp_path, second_decoding=sampling), "nearest_style", tmp_path)) == 2


def test_a_tag_that_switches_the_adapter_on_is_not_left_out_and_has_a_strength_and_no_beams(tmp_path):
    predictions = {"control_tags": {"targets": "predictions"}}
    given = settings(tmp_path, second_decoding={"preset": "paper"}, **predictions, **with_strength(0.5))
    (point,) = plan(given, "control_tags", tmp_path)
    assert point.after_without_tag is None  # it would be the base
    assert point.after.model.adapter_strength == 0.5
    beams = settings(tmp_path, measure={"decoding": {"preset": "paper"}}, **predictions)
    with pytest.raises(InputError, match=r"^decoding\.num_beams: \d+"):
        run_points(plan(beams, "control_tags", tmp_path), beams)


def test_responses_are_scored_by_the_base_alone(tmp_path):
    (point,) = plan(settings(tmp_path), "control_tags", tmp_path)
    measurements = (point.before, point.train, point.after, point.after_without_tag)
    assert [stage.generation_bias.relevance for stage in measurements] == [True, False, False, False]
    assert point.compare.generation_bias.relevance


def test_strengths_share_the_tuning(tmp_path):
    (whole,), (half,) = (
        plan_points(settings(tmp_path, **with_strength(strength)), "exchange", hashed_folders(tmp_path))
        for strength in (None, 0.5)
    )
    assert half.tune == whole.tune and half.before == whole.before
    assert half.after.output_dir != whole.after.output_dir
    strengths = [stage.model.adapter_strength for stage in (half.before, half.train, half.after)]
    assert strengths == [None, None, 0.5]
    with pytest.raises(InputError, match=r"adapter_strength: .*tune\.training\.lora"):
        settings(tmp_path, **with_strength(0.5), tune={"training": {"lora": False}})
    with pytest.raises(InputError, match=r"adapter_strength: control_tags "):
        plan(settings(tmp_path, **with_strength(0.5)), "control_tags", tmp_path)


@pytest.mark.parametrize("method", ["prompt", "borrowed_opening", "nearest_style", "borrowed_opening+nearest_style"])
def test_methods_that_train_nothing_neither_label_nor_tune(tmp_path, method):
    metrics = ["generation_bias", "sentence_pairs"]
    (point,) = plan(settings(tmp_path, measure={"metrics": metrics}), method, tmp_path)
    assert names(point, tmp_path) == ["before", f"{method}/after", f"{method}/compare"]
    assert (point.before.metrics, point.after.metrics) == (metrics, ["generation_bias"])
    assert (point.before.method, point.after.method) == (None, method)
    assert point.after.model == point.before.model and point.must_show_bias
    assert (point.compare.labels, point.compare.tuning) == (None, None)


def test_a_stage_has_the_settings_of_its_methods_alone(tmp_path):
    given = settings(
        tmp_path,
        methods=["distill+nearest_style", "prompt"],
        distill={"first_tokens": 2},
        nearest_style={"candidates": 6},
        prompt={"instruction": "Be even."},
    )
    (point,) = plan(given, "distill+nearest_style", tmp_path)
    assert point.tune.method == "distill" and point.tune.distill.first_tokens == 2
    assert point.after.nearest_style.candidates == 6 and point.after.prompt is None
    assert point.before.nearest_style is None and point.tune.nearest_style is None
    assert point.after.model.name == str(point.tune.output_dir / "adapter")


def test_responses_to_label_are_scored_by_the_first_classifier_alone(tmp_path):
    measure = {"metrics": ["generation_bias", "sentence_pairs"], "generation_bias": {"permutations": 9}}
    measure["offensive_classifier"] = {"name": "judge", "label": "bad"}
    measure["prompts"] = {"answers_per_cell": 8}
    (point,) = plan(settings(tmp_path, measure=measure), "control_tags", tmp_path)
    before, train, untagged = point.before, point.train, point.after_without_tag
    assert before.metrics == ["generation_bias", "sentence_pairs"] and before.split == "measure"
    assert before.generation_bias.second_style_classifier is not None
    assert (train.split, train.metrics, train.prompts.answers_per_cell) == ("train", ["generation_bias"], 4)
    assert train.generation_bias.second_style_classifier is None
    assert train.generation_bias.permutations == 0
    assert (before.offensive_classifier.name, train.offensive_classifier.name) == ("judge", None)
    assert before.sentences is not None and train.sentences is None
    assert untagged.generation_bias.control_tag == "" and untagged.metrics == ["generation_bias"]


def test_hashed_folders_depend_on_settings_not_places(tmp_path, monkeypatch):
    def first_folder(given):
        return plan_points(given, "rejection", hashed_folders(tmp_path))[0].before.output_dir

    other = settings(tmp_path, measure={"prompts": {"answers_per_cell": 8}})
    assert first_folder(settings(tmp_path / "a")) == first_folder(settings(tmp_path / "b")) != first_folder(other)
    monkeypatch.chdir(tmp_path)
    found, given = [], settings(tmp_path, measure={"model": "a/stages/model"})
    for folder in (tmp_path / "stages", tmp_path / "moved" / "deeper" / "stages", Path("stages"), Path("a/stages")):
        (point,) = plan_points(given, "control_tags", hashed_folders(folder))
        found.append([stage.output_dir.name for stage in point.stages])
    assert found[0] == found[1] == found[2] != found[3]  # the last holds the model itself
    assert len(set(found[0])) == len(found[0])


@pytest.fixture
def ran(monkeypatch):
    """The folders of the stages that ran, and {name: interval of the base's bias, or the error of the stage}."""
    folders, outcomes = [], {}

    def run_command(settings, **options):
        folder = settings.output_dir
        folders.append(folder)
        outcome = outcomes.get(folder.name)
        if isinstance(outcome, Exception):
            raise outcome
        folder.mkdir(parents=True)
        interval = outcome if folder.name in outcomes else (0.001, 0.002)
        reason = None if interval else "none"
        score = named_score("fgb_pooled_corrected", 0.00009, 0.0, (-1.0, 2.0), 900, interval, reason=reason)
        write_scores(folder / "scores.json", [score])

    for command in ("measure", "label", "tune", "compare"):
        monkeypatch.setattr(module, command, run_command)
    monkeypatch.setattr(module, "check_points", lambda *_: None)
    return folders, outcomes


def points_of(given):
    return [point for method in METHODS for point in plan(given, method, given.output_dir)]


@pytest.mark.parametrize("error", [TuningRejected("tuning", "spoiled"), InputError("tuning", "wrong")])
def test_an_error_of_a_method_does_not_end_the_others(tmp_path, ran, error):
    folders, outcomes = ran
    given, finished = settings(tmp_path), []
    outcomes["untagged"] = error
    tagged, untagged = points_of(given)
    if isinstance(error, TuningRejected):
        assert run_points([tagged, untagged], given, finished.append) == {tagged.comparison: error}
    else:
        with pytest.raises(InputError, match="wrong"):
            run_points([tagged, untagged], given, finished.append)
    assert untagged.comparison in folders and tagged.comparison not in folders and finished == [untagged]
    assert len(folders) == len(set(folders))


def test_a_second_command_in_the_folder_is_refused_before_any_stage(tmp_path, ran):
    folders, _ = ran
    given = settings(tmp_path)
    with run_lock(tmp_path), pytest.raises(RunLocked, match="at work"):
        run_points(points_of(given), given)
    assert folders == []
    run_points(points_of(given), given)
    assert folders


@pytest.mark.parametrize("interval", [(-0.00012, 0.00031), None])
def test_nothing_is_tuned_where_the_base_shows_no_bias(tmp_path, ran, interval):
    folders, outcomes = ran
    outcomes["before"] = interval
    given = settings(tmp_path)
    points = points_of(given)
    refused = run_points(points, given)
    assert folders == [tmp_path / "before"]
    assert {*refused} == {point.comparison for point in points}
    assert all("--allow_no_bias true" in reason.problem for reason in refused.values())
    given = settings(tmp_path / "again", allow_no_bias=True)
    assert run_points(points_of(given), given) == {}


# What is refused before the first stage.


def training(**fields):
    return {"tune": {"training": fields}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["swap"]}, "method: 'swap' is unknown"),
        ({"methods": ["nearest_style+distill"]}, "method: 'nearest_style.distill': distill trains the model"),
        (training(peft={"use_dora": True}) | with_strength(0.5), r"adapter_strength: "),
        ({"second_decoding": {"arguments": {"temperatur": 1}}}, "'temperatur' is unknown"),
        ({"measure": {"prompts": {"descriptors": 8}}}, "descriptors: 8 is less"),
        ({"measure": {"generation_bias": {"second_style_classifier": "/absent"}}}, "/absent"),
        (
            {"measure": {"metrics": ["generation_bias", "sentence_pairs"], "sentence_pairs": {"pairs": "/absent"}}},
            "/absent",
        ),
    ],
)
def test_a_setting_of_a_later_stage_is_refused_before_the_first(given, message, tmp_path):
    with pytest.raises(InputError, match=message):
        loop(settings(tmp_path / "run", **{"methods": ["rejection"], **given}))
    assert not (tmp_path / "run").exists()


def test_a_wrong_point_of_an_ablation_is_refused_before_any_and_equal_tunings_are_checked_once(tmp_path, monkeypatch):
    checks = []
    monkeypatch.setattr(module, "check_tuning", lambda model, method, training: checks.append(training.lora_rank))
    sweep = [{"method": "rejection", "label.quantile": [0.5, 0.7], "tune.training.lora_rank": [4, 8]}]
    sweep.append(
        {"method": "exchange", "measure.model.adapter_strength": 0.5, "tune.training.peft": [{"use_dora": True}]}
    )
    given = {"sweep": sweep, "seeds": [0, 1], "output_dir": str(tmp_path / "run"), "report_to": "none"}
    with pytest.raises(InputError, match="adapter_strength: "):
        ablate(checked(AblateSettings, with_testbed(given, "loop.measure"), "test"))
    assert checks == [4, 8, 16] and not (tmp_path / "run").exists()


def test_code_that_the_base_trusts_is_trusted_by_the_later_stages(tmp_path):
    given = settings(tmp_path)
    trusted = given.replaced(measure=given.measure.replaced(model=given.measure.model.replaced(trust_remote_code=True)))
    for one, expected in ((given, False), (trusted, True)):
        (point,) = plan(one, "rejection", tmp_path)
        assert {point.tune.trust_remote_code, point.compare.trust_remote_code} == {expected}


@pytest.mark.parametrize("continues", [False, True])
def test_a_loop_from_a_finished_run_without_costs_measures_them(tmp_path, continues):
    given = settings(tmp_path, measure={"generation_bias": {"relevance": False}})
    given = given.replaced(base_run=tmp_path / "run" if continues else None)
    point = plan_points(given, "exchange", hashed_folders(tmp_path))[0]
    assert point.compare.generation_bias.relevance is continues
