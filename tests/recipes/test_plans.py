"""Plans: their stages, settings and folders, and what is refused before the first stage runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.score import BiasScore, write_scores
from evenhand.evaluation.settings import checked
from evenhand.mitigation.methods import load_method
from evenhand.recipes import loop as module
from evenhand.recipes.ablate import ablate, hashed_folders
from evenhand.recipes.loop import loop, plan_method, run_plans
from evenhand.recipes.settings import AblateSettings, LoopSettings
from evenhand.recipes.stages import Stage
from tests.testbed_settings import MODEL, with_testbed

METHODS = ("control_tags", "rejection")


def settings(tmp_path, **values):
    given = {"output_dir": str(tmp_path), "report_to": "none", **values}
    given["measure"] = {"prompts": {"descriptors": 26}, **given.get("measure", {})}
    return checked(LoopSettings, with_testbed(given, "measure"), "test")


def with_strength(strength):
    return {"measure": {"model": {"name": MODEL.name, "adapter_strength": strength}}}


def plan(loop, method, folder):
    return plan_method(loop, method, lambda name, command, of_stage: folder / name)


def names(stages, folder):
    return [stage.folder.relative_to(folder).as_posix() for stage in stages]


def test_second_decodings_share_labels_and_tuning(tmp_path):
    given = settings(tmp_path, second_decoding={"preset": "paper"}, measure={"capabilities": ["arc_easy"]})
    planned = plan(given, "control_tags", tmp_path)
    assert names(planned.stages, tmp_path) == [
        *("before", "train", "label", "control_tags/tune"),
        *("control_tags/after", "control_tags/untagged", "control_tags/compare", "second_decoding/before"),
        *("control_tags/second_decoding/after", "control_tags/second_decoding/compare"),
    ]
    presets = {stage.folder: stage.settings.decoding.preset for stage in planned.stages if stage.command == "measure"}
    first, second = planned.points
    assert (first.decoding, second.decoding) == ("sample", "paper") and first.tuning == second.tuning
    assert [presets[point.before] for point in planned.points] == ["sample", "paper"]
    assert {stage.folder for stage in planned.stages if getattr(stage.settings, "capabilities", None)} == {
        *(first.before, first.after)  # capabilities are scored before and after tuning alone
    }
    assert len(plan(given, "nearest_style", tmp_path).points) == 1  # beam search has no candidates
    sampling = {"preset": "sample", "arguments": {"temperature": 0.7}}
    assert len(plan(settings(tmp_path, second_decoding=sampling), "nearest_style", tmp_path).points) == 2


def test_responses_are_scored_by_the_base_alone(tmp_path):
    stages = plan(settings(tmp_path), "control_tags", tmp_path).stages
    scored = {stage.folder.name: stage.settings.generation_bias for stage in stages if stage.command == "measure"}
    relevance = {name: family.relevance for name, family in scored.items()}
    assert relevance == {"before": True, "train": False, "after": False, "untagged": False}
    assert [stage.folder.name for stage in stages if stage.for_comparisons] == ["before"]
    assert stages[-1].settings.generation_bias.relevance


def test_strengths_share_the_tuning(tmp_path):
    whole, half = (
        plan_method(settings(tmp_path, **with_strength(strength)), "exchange", hashed_folders(tmp_path))
        for strength in (None, 0.5)
    )
    (one,), (other,) = whole.points, half.points
    assert other.tuning == one.tuning and other.before == one.before and other.after != one.after
    strengths = [it.settings.model.adapter_strength for it in half.stages if it.command == "measure"]
    assert strengths == [None, None, 0.5]
    with pytest.raises(InputError, match=r"adapter_strength: without tune\.training\.lora"):
        settings(tmp_path, **with_strength(0.5), tune={"training": {"lora": False}})
    with pytest.raises(InputError, match=r"adapter_strength: control_tags also changes embeddings"):
        plan(settings(tmp_path, **with_strength(0.5)), "control_tags", tmp_path)


def test_the_method_prompt_neither_labels_nor_tunes(tmp_path):
    metrics = ["generation_bias", "sentence_pairs"]
    planned = plan(settings(tmp_path, measure={"metrics": metrics}), "prompt", tmp_path)
    assert names(planned.stages, tmp_path) == ["before", "prompt/after", "prompt/compare"]
    before, after, compare = planned.stages
    assert (before.settings.model.system_prompt, after.settings.model.system_prompt) == (
        None,
        load_method("prompt").instruction,
    )
    assert (before.settings.metrics, after.settings.metrics) == (metrics, ["generation_bias"])
    assert after.settings.model.name == before.settings.model.name
    assert (compare.settings.labels, compare.settings.tuning) == (None, None)
    assert after.needs == (before.folder,) and before.must_show_bias
    terse = {"model": {"system_prompt": "You are terse."}}
    stages = plan(settings(tmp_path, measure=terse, instruction="Be even."), "prompt", tmp_path).stages
    assert stages[1].settings.model.system_prompt == "You are terse.\nBe even."


def test_methods_that_train_nothing_are_measured_with_their_settings(tmp_path):
    given = {"nearest_style": 6, "borrowed_opening": 8}  # not for the base
    measure = {"metrics": ["generation_bias", "sentence_pairs"], "generation_bias": given}
    planned = plan(settings(tmp_path, measure=measure), "nearest_style", tmp_path)
    assert names(planned.stages, tmp_path) == ["before", "nearest_style/after", "nearest_style/compare"]
    before, after, compare = (stage.settings for stage in planned.stages)
    assert (before.generation_bias.nearest_style, after.generation_bias.nearest_style) == (None, 6)
    assert (before.generation_bias.borrowed_opening, after.generation_bias.borrowed_opening) == (None, 8)
    assert after.model == before.model
    assert after.metrics == ["generation_bias"]
    assert (compare.labels, compare.tuning) == (None, None)


@pytest.mark.parametrize(
    ("method", "opening", "candidates"), [("borrowed_opening", 4, None), ("nearest_style", None, 4)]
)
def test_methods_that_train_nothing_have_defaults(tmp_path, method, opening, candidates):
    _, after, _ = plan(settings(tmp_path), method, tmp_path).stages
    assert after.settings.generation_bias.borrowed_opening == opening
    assert after.settings.generation_bias.nearest_style == candidates


def test_responses_to_label_are_scored_by_the_first_classifier_alone(tmp_path):
    own = {"offensiveness": {"name": "judge", "label": "bad"}, "permutations": 9}
    measure = {
        "metrics": ["generation_bias", "sentence_pairs"],
        "generation_bias": own,
        "prompts": {"answers_per_cell": 8},
    }
    before, train, *_, untagged, _ = plan(settings(tmp_path, measure=measure), "control_tags", tmp_path).stages
    assert before.settings.metrics == ["generation_bias", "sentence_pairs"] and before.settings.split == "measure"
    assert before.settings.generation_bias.second_style_classifier is not None
    of_train = train.settings
    assert (of_train.split, of_train.metrics, of_train.prompts.answers_per_cell) == ("train", ["generation_bias"], 4)
    assert of_train.generation_bias.second_style_classifier is None
    assert (of_train.generation_bias.permutations, of_train.generation_bias.offensiveness.name) == (0, None)
    assert untagged.settings.generation_bias.control_tag == "" and untagged.settings.metrics == ["generation_bias"]


def test_hashed_folders_depend_on_settings_not_places(tmp_path, monkeypatch):
    def first_folder(given):
        return plan_method(given, "rejection", hashed_folders(tmp_path)).stages[0].folder

    other = settings(tmp_path, measure={"prompts": {"answers_per_cell": 8}})
    assert first_folder(settings(tmp_path / "a")) == first_folder(settings(tmp_path / "b")) != first_folder(other)
    monkeypatch.chdir(tmp_path)
    found, given = [], settings(tmp_path, measure={"model": "a/stages/model"})
    for folder in (tmp_path / "stages", tmp_path / "moved" / "deeper" / "stages", Path("stages"), Path("a/stages")):
        stages = plan_method(given, "control_tags", hashed_folders(folder)).stages
        found.append([stage.folder.name for stage in stages])
    assert found[0] == found[1] == found[2] != found[3]  # the last holds the model itself
    assert len(set(found[0])) == len(found[0])


@pytest.fixture
def ran(monkeypatch):
    """The names of the stages that ran, and {name: interval of the base's bias, or the error of the stage}."""
    folders, outcomes = [], {}

    def run_command(stage):
        folder = stage.folder
        folders.append(folder)
        outcome = outcomes.get(folder.name)
        if isinstance(outcome, Exception):
            raise outcome
        folder.mkdir(parents=True)
        interval = outcome if folder.name in outcomes else (0.001, 0.002)
        reason = None if interval else "none"
        score = BiasScore("fgb_pooled_corrected", 0.00009, 0.0, (-1.0, 2.0), 900, interval, reason=reason)
        write_scores(folder / "scores.json", [score])

    monkeypatch.setattr(Stage, "run_command", run_command)
    monkeypatch.setattr(module, "check_plans", lambda *_: None)
    return folders, outcomes


def plans_of(tmp_path, **values):
    return [plan(settings(tmp_path, **values), method, tmp_path) for method in METHODS]


@pytest.mark.parametrize("error", [TuningRejected("model", "spoiled"), InputError("model", "wrong")])
def test_an_error_of_a_method_does_not_end_the_others(tmp_path, ran, error):
    folders, outcomes = ran
    plans, finished = plans_of(tmp_path), []
    outcomes["untagged"] = error
    (tagged,), (untagged,) = (plan.points for plan in plans)
    if isinstance(error, TuningRejected):
        assert run_plans(plans[0].loop, plans, finished.append) == {tagged.comparison: error}
    else:
        with pytest.raises(InputError, match="wrong"):
            run_plans(plans[0].loop, plans, finished.append)
    assert untagged.comparison in folders and tagged.comparison not in folders and finished == [untagged]


@pytest.mark.parametrize("interval", [(-0.00012, 0.00031), None])
def test_nothing_is_tuned_where_the_base_shows_no_bias(tmp_path, ran, interval):
    folders, outcomes = ran
    outcomes["before"] = interval
    plans = plans_of(tmp_path)
    refused = run_plans(plans[0].loop, plans)
    assert folders == [tmp_path / "before"]
    assert {*refused} == {point.comparison for plan in plans for point in plan.points}
    assert all(
        "pooled FGB* is 0.09" in reason.problem and "--allow_no_bias true" in reason.problem
        for reason in refused.values()
    )
    plans = plans_of(tmp_path / "again", allow_no_bias=True)
    assert run_plans(plans[0].loop, plans) == {}


# What is refused before the first stage.


def training(**fields):
    return {"tune": {"training": fields}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["swap"]}, "method: 'swap' is unknown"),
        (training(peft={"use_dora": True}) | with_strength(0.5), r"adapter_strength: "),
        ({"second_decoding": {"arguments": {"temperatur": 1}}}, "'temperatur' is unknown"),
        ({"measure": {"prompts": {"descriptors": 8}}}, "descriptors: 8"),
        ({"measure": {"generation_bias": {"second_style_classifier": "/absent"}}}, "/absent"),
        (
            {"measure": {"metrics": ["generation_bias", "sentence_pairs"], "sentence_pairs": {"pairs": "/absent"}}},
            "/absent",
        ),
    ],
)
def test_a_setting_of_a_later_stage_is_refused_before_the_first(given, message, tmp_path, monkeypatch):
    monkeypatch.setattr(Stage, "run", lambda stage, errors: pytest.fail(f"{stage.folder} ran"))
    with pytest.raises(InputError, match=message):
        loop(settings(tmp_path / "run", **{"methods": ["rejection"], **given}))
    assert not (tmp_path / "run").exists()


def test_a_wrong_point_of_an_ablation_is_refused_before_any_and_equal_tunings_are_checked_once(tmp_path, monkeypatch):
    monkeypatch.setattr(Stage, "run", lambda stage, errors: pytest.fail(f"{stage.folder} ran"))
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
    trusted = replace(given, measure=replace(given.measure, model=replace(given.measure.model, trust_remote_code=True)))
    for one, expected in ((given, False), (trusted, True)):
        stages = plan(one, "rejection", tmp_path).stages
        assert {it.settings.trust_remote_code for it in stages if it.command in ("tune", "compare")} == {expected}
