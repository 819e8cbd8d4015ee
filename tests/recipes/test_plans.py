"""Plans: their stages, settings and folders, and the order in which stages run."""

from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.settings import checked
from evenhand.mitigation.methods import prompt
from evenhand.recipes.experiment import run
from evenhand.recipes.plans import Stage, hashed_folders, named_folders, plan_decodings, plan_method
from evenhand.recipes.settings import Launching, LoopSettings
from tests.testbed_settings import with_testbed


def loop(tmp_path, **settings):
    return checked(LoopSettings, with_testbed({"output_dir": str(tmp_path), **settings}, "measure"), "test")


def plan(loop, method, folder):
    return plan_method(loop, method, named_folders(folder))


def test_the_second_round_starts_from_the_tuned_model_of_the_first(tmp_path):
    stages = plan(loop(tmp_path, rounds=2), "kto", tmp_path).stages
    folders = [str(stage.folder.relative_to(tmp_path)) for stage in stages]
    assert folders == [
        *("before", "train", "label", "kto/tune"),
        *("kto/round_2/train", "kto/round_2/label", "kto/round_2/tune"),
        *("kto/after", "kto/compare"),
    ]
    by_folder = dict(zip(folders, stages, strict=True))
    assert by_folder["kto/round_2/train"].settings.model.name == str(tmp_path / "kto" / "tune" / "adapter")
    assert by_folder["kto/after"].settings.model.name == str(tmp_path / "kto" / "round_2" / "tune" / "adapter")


def test_second_decodings(tmp_path):
    settings = loop(tmp_path, second_decoding={"preset": "paper"})
    first, second = plan_decodings(settings, "control_tags", named_folders(tmp_path))
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
    assert len(plan_decodings(loop(tmp_path, second_decoding=None), "kto", named_folders(tmp_path))) == 1
    (only,) = plan_decodings(settings, "resample", named_folders(tmp_path))  # beam search has no candidates
    assert only.decoding == "sample"
    settings = loop(tmp_path, second_decoding={"preset": "sample", "arguments": {"temperature": 0.7}})
    assert len(plan_decodings(settings, "resample", named_folders(tmp_path))) == 2


def test_responses_are_scored_by_the_base_alone(tmp_path):
    (single,) = plan_decodings(loop(tmp_path), "control_tags", named_folders(tmp_path))
    scored = {stage.folder.name: stage.settings.generation_bias.relevance for stage in single.stages[:2]}
    scored |= {stage.folder.name: stage.settings.generation_bias.relevance for stage in single.stages[4:6]}
    assert scored == {"before": True, "train": False, "after": False, "untagged": False}
    assert single.stages[-1].settings.generation_bias.relevance
    measured = [stage for stage in single.stages if stage.command == "measure"]
    assert [it.folder.name for it in measured if it.settings.generation_bias.for_comparisons] == ["before"]
    settings = loop(tmp_path)
    unscored = replace(settings.measure.generation_bias, relevance=False)
    settings = replace(settings, measure=replace(settings.measure, generation_bias=unscored))
    (single,) = plan_decodings(settings, "kto", named_folders(tmp_path))
    assert single.stages[0].settings.generation_bias.relevance is False
    assert single.stages[-1].settings.generation_bias.relevance is False


def test_strengths_share_the_tuning(tmp_path):
    whole, half = (
        plan_method(loop(tmp_path, adapter_strength=strength), "exchange", hashed_folders(tmp_path))
        for strength in (None, 0.5)
    )
    assert half.tunings == whole.tunings and half.before == whole.before and half.after != whole.after
    strengths = [it.settings.model.adapter_strength for it in half.stages if it.command == "measure"]
    assert strengths == [None, None, 0.5]
    with pytest.raises(InputError, match=r"adapter_strength: tune\.training\.lora is false"):
        loop(tmp_path, adapter_strength=0.5, tune={"training": {"lora": False}})
    with pytest.raises(InputError, match=r"adapter_strength: with 2 rounds"):
        loop(tmp_path, adapter_strength=0.5, rounds=2)
    with pytest.raises(InputError, match=r"adapter_strength: control_tags also changes embeddings"):
        plan(loop(tmp_path, adapter_strength=0.5), "control_tags", tmp_path)


def test_the_method_prompt_neither_labels_nor_tunes(tmp_path):
    planned = plan(loop(tmp_path), "prompt", tmp_path)
    before, after, compare = planned.stages
    assert [stage.folder.relative_to(tmp_path).as_posix() for stage in planned.stages] == [
        *("before", "prompt/after", "prompt/compare")
    ]
    assert (before.settings.model.system_prompt, after.settings.model.system_prompt) == (None, prompt.INSTRUCTION)
    assert after.settings.model.name == before.settings.model.name
    assert (compare.settings.labels, compare.settings.tuning, planned.labels, planned.tunings) == (None, None, None, ())
    assert after.needs == (before.folder,)  # if the base has no bias, the instruction is not measured


def test_the_method_resample_labels_and_does_not_tune(tmp_path):
    measure = {"metrics": ["generation_bias", "sentence_pairs"]}
    planned = plan(loop(tmp_path, measure=measure, candidates=6, instruction="Be even."), "resample", tmp_path)
    assert [stage.folder.relative_to(tmp_path).as_posix() for stage in planned.stages] == [
        *("before", "train", "label", "resample/after", "resample/compare")
    ]
    before, _, label, after, compare = planned.stages
    assert after.settings.model == before.settings.model and after.settings.metrics == ["generation_bias"]
    resampling = after.settings.generation_bias.resampling
    assert (resampling.exponents, resampling.candidates) == (label.folder / "exponents.parquet", 6)
    assert after.needs == (label.folder,)
    assert (compare.settings.labels, compare.settings.tuning) == (label.folder, None)
    assert before.settings.generation_bias.resampling.exponents is None


def test_an_instruction_follows_the_system_prompt(tmp_path):
    measure = {"model": {"system_prompt": "You are terse."}, "metrics": ["generation_bias"]}
    settings = loop(tmp_path, measure=measure, instruction="Be even.")
    after = plan(settings, "prompt", tmp_path).stages[1].settings
    assert after.model.system_prompt == "You are terse.\nBe even."
    *_, tuned, _ = plan(settings, "kto", tmp_path).stages
    assert tuned.settings.model.system_prompt == "You are terse."


def test_only_generation_bias_is_measured_with_an_instruction(tmp_path):
    metrics = ["generation_bias", "sentence_pairs"]
    before, after, _ = plan(loop(tmp_path, measure={"metrics": metrics}), "prompt", tmp_path).stages
    assert (before.settings.metrics, after.settings.metrics) == (metrics, ["generation_bias"])
    with pytest.raises(InputError, match="model.system_prompt: sentence_pairs "):
        loop(tmp_path, measure={"metrics": metrics, "model": {"system_prompt": "Be even."}})


def test_responses_to_label_are_scored_by_the_first_classifier_alone(tmp_path):
    own = {"offensiveness": {"name": "judge", "label": "bad"}, "permutations": 9}
    measure = {"metrics": ["generation_bias", "sentence_pairs"], "generation_bias": own, "prompts": {"per_cell": 8}}
    before, train, *_, untagged, _ = plan(loop(tmp_path, measure=measure), "control_tags", tmp_path).stages
    assert before.settings.metrics == ["generation_bias", "sentence_pairs"] and before.settings.split == "measure"
    assert before.settings.generation_bias.second_style_classifier is not None
    settings = train.settings
    assert (settings.split, settings.metrics, settings.prompts.per_cell) == ("train", ["generation_bias"], 4)
    assert settings.generation_bias.second_style_classifier is None
    assert (settings.generation_bias.permutations, settings.generation_bias.offensiveness.name) == (0, None)
    assert untagged.settings.generation_bias.control_tag == "" and untagged.settings.metrics == ["generation_bias"]


def test_hashed_folders_depend_on_settings_not_places(tmp_path, monkeypatch):
    def first_folder(settings):
        return plan_method(settings, "kto", hashed_folders(tmp_path)).stages[0].folder

    first, second = first_folder(loop(tmp_path / "a")), first_folder(loop(tmp_path / "b"))
    other = first_folder(loop(tmp_path, measure={"prompts": {"per_cell": 8}}))
    assert first == second != other
    monkeypatch.chdir(tmp_path)
    names, settings = [], loop(tmp_path, rounds=2, measure={"model": "a/stages/model"})
    for folder in (tmp_path / "stages", tmp_path / "moved" / "deeper" / "stages", Path("stages"), Path("a/stages")):
        stages = plan_method(settings, "control_tags", hashed_folders(folder)).stages
        names.append([stage.folder.name for stage in stages])
    assert names[0] == names[1] == names[2] != names[3]  # the last holds the model itself
    assert len(set(names[0])) == len(names[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"measure": {"split": "train"}}, "measure.split: "),
        ({"tune": {"method": "kto"}}, "tune.method: "),
        ({"tune": {"training": {"seed": 3}}}, "tune.training.seed: 3 cannot be used"),
        ({"measure": {"prompts": {"file": "p.csv"}}}, "measure.prompts.file: .*train_file, or"),
        (
            {"measure": {"metrics": ["sentence_pairs", "generation_bias"]}},
            "measure.metrics: .* must begin with generation_bias",
        ),
    ],
)
def test_settings_that_the_loop_sets_cannot_be_given(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        plan(loop(tmp_path, **settings), "kto", tmp_path)


def test_capabilities_are_scored_before_and_after_tuning_alone(tmp_path):
    settings = loop(tmp_path, measure={"capabilities": ["arc_easy"]}, second_decoding={"preset": "paper"})
    plans = plan_decodings(settings, "control_tags", named_folders(tmp_path))
    stages = [stage for plan in plans for stage in plan.stages]
    measured = [stage for stage in stages if stage.command == "measure" and stage.settings.capabilities]
    asked = {str(stage.folder.relative_to(tmp_path)) for stage in measured}
    assert asked == {"before", "control_tags/after"}


HERE = Launching()


def two_plans(tmp_path):
    settings = loop(tmp_path, allow_no_bias=True)  # the stages of these tests write no scores
    return [plan_method(settings, method, named_folders(tmp_path)) for method in ("control_tags", "kto")]


@pytest.fixture
def ran(monkeypatch):
    """The stages that ran, by their folders; a stage of a folder in `refusing` is refused."""
    names, refusing = [], set()

    def run_it(stage: Stage) -> None:
        assert all(str(need) in names for need in stage.needs)
        names.append(str(stage.folder))
        if stage.folder in refusing:
            raise TuningRejected("spoiled")

    monkeypatch.setattr(Stage, "run", run_it)
    return names, refusing


def test_shared_stages_run_once_and_before_the_stages_that_need_them(tmp_path, ran):
    names, _ = ran
    plans = two_plans(tmp_path)
    assert run(plans, HERE) == {}
    assert [str(Path(name).relative_to(tmp_path)) for name in names] == [
        *("before", "train", "label"),
        *(f"control_tags/{name}" for name in ("tune", "after", "untagged", "compare")),
        *(f"kto/{name}" for name in ("tune", "after", "compare")),
    ]


def test_refusals_end_a_plan_and_errors_all(tmp_path, ran, monkeypatch):
    names, refusing = ran
    plans = two_plans(tmp_path)
    refusing.add(tmp_path / "control_tags" / "tune")
    finished = []
    assert run(plans, HERE, on_finished=finished.append) == {str(tmp_path / "control_tags" / "compare"): "spoiled"}
    assert str(tmp_path / "kto" / "compare") in names
    assert not any("control_tags" in name for name in names if not name.endswith("tune"))
    assert finished == plans

    def fail(stage):
        raise InputError("wrong")

    monkeypatch.setattr(Stage, "run", fail)
    with pytest.raises(InputError, match="wrong"):
        run([plan_method(loop(tmp_path), "kto", named_folders(tmp_path))], HERE)
