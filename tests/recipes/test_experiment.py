"""Plans run stage by stage: in order, what is shared once, a refusal ending its own plan and no other."""

from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.evaluation.errors import InputError, Refused
from evenhand.mitigation.methods import prompt
from evenhand.recipes import experiment
from evenhand.recipes.checking import checked
from evenhand.recipes.experiment import Stage, by_content, by_name, plan, plans, run
from evenhand.recipes.settings import Launching, LoopSettings

HERE = Launching()


def loop(tmp_path, **settings):
    return checked(LoopSettings, {"output_dir": str(tmp_path), **settings}, "test")


@pytest.fixture
def ran(monkeypatch):
    """The stages that ran, by their folders; a stage of a folder in `refusing` is refused."""
    names, refusing = [], set()

    def run_it(stage: Stage) -> None:
        assert all(str(need) in names for need in stage.needs)
        names.append(str(stage.folder))
        if stage.folder in refusing:
            raise Refused("spoiled")

    monkeypatch.setattr(Stage, "run", run_it)
    return names, refusing


def test_what_two_methods_share_runs_once_and_before_what_needs_it(tmp_path, ran):
    names, _ = ran
    told = loop(tmp_path, allow_no_bias=True)  # these stages leave no scores
    plans = [plan(told, method, by_name(tmp_path)) for method in ("control_tags", "kto")]
    assert run(plans, HERE) == {}
    assert [str(Path(name).relative_to(tmp_path)) for name in names] == [
        *("before", "train", "label"),
        *(f"control_tags/{name}" for name in ("tune", "after", "untagged", "compare")),
        *(f"kto/{name}" for name in ("tune", "after", "compare")),
    ]


def test_a_refused_tuning_ends_its_own_plan_alone(tmp_path, ran):
    names, refusing = ran
    told = loop(tmp_path, allow_no_bias=True)  # these stages leave no scores
    plans = [plan(told, method, by_name(tmp_path)) for method in ("control_tags", "kto")]
    refusing.add(tmp_path / "control_tags" / "tune")
    finished = []
    assert run(plans, HERE, on_finished=finished.append) == {str(tmp_path / "control_tags" / "compare"): "spoiled"}
    assert str(tmp_path / "kto" / "compare") in names
    assert not any("control_tags" in name for name in names if not name.endswith("tune"))
    assert finished == plans


def test_any_other_mistake_ends_everything(tmp_path, ran, monkeypatch):
    def mistaken(stage):
        raise InputError("wrong")

    monkeypatch.setattr(experiment.Stage, "run", mistaken)
    with pytest.raises(InputError, match="wrong"):
        run([plan(loop(tmp_path), "kto", by_name(tmp_path))], HERE)


def test_the_second_round_answers_labels_and_tunes_what_the_first_left(tmp_path):
    stages = plan(loop(tmp_path, rounds=2), "kto", by_name(tmp_path)).stages
    folders = [str(stage.folder.relative_to(tmp_path)) for stage in stages]
    assert folders == [
        *("before", "train", "label", "kto/tune"),
        *("kto/round_2/train", "kto/round_2/label", "kto/round_2/tune"),
        *("kto/after", "kto/compare"),
    ]
    by_folder = dict(zip(folders, stages, strict=True))
    assert by_folder["kto/round_2/train"].settings.model.name == str(tmp_path / "kto" / "tune" / "adapter")
    assert by_folder["kto/after"].settings.model.name == str(tmp_path / "kto" / "round_2" / "tune" / "adapter")


def test_a_second_decoding_measures_the_same_tuned_model_again(tmp_path):
    told = loop(tmp_path, second_decoding={"preset": "paper"})
    first, second = plans(told, "control_tags", by_name(tmp_path))
    shared = [stage for stage in second.stages if stage in first.stages]
    assert [stage.folder.name for stage in shared] == ["train", "label", "tune"]
    others = [stage for stage in second.stages if stage not in shared]
    assert [str(stage.folder.relative_to(tmp_path)) for stage in others] == [
        "second_decoding/before",
        "control_tags/second_decoding/after",
        "control_tags/second_decoding/compare",
    ]
    assert [stage.settings.decoding.preset for stage in others[:2]] == ["paper", "paper"]
    assert {stage.settings.decoding.preset for stage in first.stages if stage.command == "measure"} == {"sample"}
    assert (first.decoding, second.decoding) == ("sample", "paper")
    assert len(plans(loop(tmp_path, second_decoding=None), "kto", by_name(tmp_path))) == 1  # null is none


def test_the_base_alone_scores_its_own_responses(tmp_path):
    (found,) = plans(loop(tmp_path), "control_tags", by_name(tmp_path))
    scored = {stage.folder.name: stage.settings.generation_bias.relevance for stage in found.stages[:2]}
    scored |= {stage.folder.name: stage.settings.generation_bias.relevance for stage in found.stages[4:6]}
    assert scored == {"before": True, "train": False, "after": False, "untagged": False}
    assert found.stages[-1].settings.generation_bias.relevance


def test_where_the_base_does_not_score_its_responses_it_scores_nobodys(tmp_path):
    told = loop(tmp_path)
    own = replace(told.measure.generation_bias, relevance=False)
    (found,) = plans(replace(told, measure=replace(told.measure, generation_bias=own)), "kto", by_name(tmp_path))
    assert found.stages[0].settings.generation_bias.relevance is False
    assert found.stages[-1].settings.generation_bias.relevance is False


def test_a_prompt_is_measured_beside_the_base_and_nothing_is_labelled_or_tuned(tmp_path):
    planned = plan(loop(tmp_path), "prompt", by_name(tmp_path))
    before, after, compare = planned.stages
    assert [stage.folder.relative_to(tmp_path).as_posix() for stage in planned.stages] == [
        *("before", "prompt/after", "prompt/compare")
    ]
    assert (before.settings.model.system_prompt, after.settings.model.system_prompt) == (None, prompt.INSTRUCTION)
    assert after.settings.model.name == before.settings.model.name
    assert (compare.settings.labels, compare.settings.tuning, planned.labels, planned.tunings) == (None, None, None, ())
    assert after.needs == (before.folder,)  # where the base has no bias, nothing is asked for


def test_an_instruction_is_the_users_own_and_follows_what_the_model_is_told_already(tmp_path):
    measure = {"model": {"system_prompt": "You are terse."}, "metrics": ["generation_bias"]}
    told = loop(tmp_path, measure=measure, instruction="Be even.")
    after = plan(told, "prompt", by_name(tmp_path)).stages[1].settings
    assert after.model.system_prompt == "You are terse.\nBe even."
    *_, tuned, _ = plan(told, "kto", by_name(tmp_path)).stages
    assert tuned.settings.model.system_prompt == "You are terse."


def test_only_generation_bias_is_measured_with_an_instruction(tmp_path):
    metrics = ["generation_bias", "sentence_pairs"]
    before, after, _ = plan(loop(tmp_path, measure={"metrics": metrics}), "prompt", by_name(tmp_path)).stages
    assert (before.settings.metrics, after.settings.metrics) == (metrics, ["generation_bias"])
    with pytest.raises(InputError, match="model.system_prompt: sentence_pairs "):
        loop(tmp_path, measure={"metrics": metrics, "model": {"system_prompt": "Be even."}})


def test_what_the_loop_is_told_of_the_model_is_so_of_the_tuned_one_but_for_name_and_revision(tmp_path):
    model = {"name": "some/model", "revision": "abc", "dtype": "bfloat16", "device": "cpu"}
    before, *_, after, _ = plan(loop(tmp_path, measure={"model": model}), "kto", by_name(tmp_path)).stages
    assert (before.settings.model.name, before.settings.model.revision) == ("some/model", "abc")
    assert (after.settings.model.revision, after.settings.model.dtype) == (None, "bfloat16")
    assert after.settings.model.device == "cpu"


def test_what_is_labelled_is_measured_by_the_first_classifier_alone(tmp_path):
    own = {"offensiveness": {"name": "judge", "label": "bad"}, "permutations": 9}
    measure = {"metrics": ["generation_bias", "sentence_pairs"], "generation_bias": own, "prompts": {"per_cell": 8}}
    before, train, *_, untagged, _ = plan(loop(tmp_path, measure=measure), "control_tags", by_name(tmp_path)).stages
    assert before.settings.metrics == ["generation_bias", "sentence_pairs"] and before.settings.split == "measure"
    assert before.settings.generation_bias.second_style_classifier.name == "auto"
    told = train.settings
    assert (told.split, told.metrics, told.prompts.per_cell) == ("train", ["generation_bias"], 4)
    assert told.generation_bias.second_style_classifier is None
    assert (told.generation_bias.permutations, told.generation_bias.offensiveness.name) == (0, None)
    assert untagged.settings.generation_bias.control_tag == "" and untagged.settings.metrics == ["generation_bias"]


def test_a_folder_by_content_follows_every_setting_but_where_it_is_written(tmp_path):
    place = by_content(tmp_path)
    first, second = (plan(loop(folder), "kto", place).stages[0].folder for folder in (tmp_path / "a", tmp_path / "b"))
    other = plan(loop(tmp_path, measure={"prompts": {"per_cell": 8}}), "kto", place).stages[0].folder
    assert first == second != other


def test_folders_by_content_have_the_same_names_wherever_they_lie(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, told = [], loop(tmp_path, rounds=2, measure={"model": "a/stages/model"})
    for folder in (tmp_path / "stages", tmp_path / "moved" / "deeper" / "stages", Path("stages"), Path("a/stages")):
        names.append([stage.folder.name for stage in plan(told, "control_tags", by_content(folder)).stages])
    assert names[0] == names[1] == names[2] != names[3]  # the last holds the model itself
    assert len(set(names[0])) == len(names[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"measure": {"split": "train"}}, "measure.split: "),
        ({"measure": {"seed": 3}}, "measure.seed: "),
        ({"label": {"responses": "runs/train"}}, "label.responses: "),
        ({"tune": {"method": "kto"}}, "tune.method: "),
        ({"tune": {"training": {"seed": 3}}}, "'tune.training.seed' is unknown; did you mean 'seed'"),
        (
            {"measure": {"prompts": {"file": "p.csv"}}},
            "measure.prompts.file: .*train on besides; give .*train_file, or",
        ),
        ({"measure": {"metrics": ["sentence_pairs"]}}, "measure.metrics: .* must begin with generation_bias"),
    ],
)
def test_what_the_loop_sets_cannot_be_given(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        plan(loop(tmp_path, **settings), "kto", by_name(tmp_path))


def test_capabilities_are_asked_before_and_after_tuning_alone(tmp_path):
    told = loop(tmp_path, measure={"capabilities": ["arc_easy"]}, second_decoding={"preset": "paper"})
    stages = [stage for one in plans(told, "control_tags", by_name(tmp_path)) for stage in one.stages]
    measured = [stage for stage in stages if stage.command == "measure" and stage.settings.capabilities]
    asked = {str(stage.folder.relative_to(tmp_path)) for stage in measured}
    assert asked == {"before", "control_tags/after"}
