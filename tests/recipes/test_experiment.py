"""Plans run stage by stage: in order, what is shared once, a refusal ending its own plan and no other."""

from pathlib import Path

import pytest

from evaluation.errors import InputError
from mitigation.checks import Refused
from recipes import experiment
from recipes.config import LoopConfig, checked
from recipes.experiment import Stage, by_content, by_name, plan, run


def config(tmp_path, **settings):
    return checked(LoopConfig, {"output_dir": str(tmp_path), **settings}, "test")


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
    plans = [plan(config(tmp_path), method, by_name(tmp_path)) for method in ("control_tags", "kto")]
    assert run(plans) == {}
    assert [str(Path(name).relative_to(tmp_path)) for name in names] == [
        *("before", "train", "label"),
        *(f"control_tags/{name}" for name in ("tune", "after", "untagged", "compare")),
        *(f"kto/{name}" for name in ("tune", "after", "compare")),
    ]


def test_a_refused_tuning_ends_its_own_plan_alone(tmp_path, ran):
    names, refusing = ran
    plans = [plan(config(tmp_path), method, by_name(tmp_path)) for method in ("control_tags", "kto")]
    refusing.add(tmp_path / "control_tags" / "tune")
    finished = []
    assert run(plans, on_finished=finished.append) == {str(tmp_path / "control_tags" / "compare"): "spoiled"}
    assert str(tmp_path / "kto" / "compare") in names
    assert not any("control_tags" in name for name in names if not name.endswith("tune"))
    assert finished == plans


def test_any_other_mistake_ends_everything(tmp_path, ran, monkeypatch):
    def mistaken(stage):
        raise InputError("wrong")

    monkeypatch.setattr(experiment.Stage, "run", mistaken)
    with pytest.raises(InputError, match="wrong"):
        run([plan(config(tmp_path), "kto", by_name(tmp_path))])


def test_the_second_round_answers_labels_and_tunes_what_the_first_left(tmp_path):
    stages = plan(config(tmp_path, rounds=2), "kto", by_name(tmp_path)).stages
    folders = [str(stage.folder.relative_to(tmp_path)) for stage in stages]
    assert folders == [
        *("before", "train", "label", "kto/tune"),
        *("kto/round_2/train", "kto/round_2/label", "kto/round_2/tune"),
        *("kto/after", "kto/compare"),
    ]
    by_folder = dict(zip(folders, stages, strict=True))
    assert by_folder["kto/round_2/train"].config.model == str(tmp_path / "kto" / "tune" / "adapter")
    assert by_folder["kto/after"].config.model == str(tmp_path / "kto" / "round_2" / "tune" / "adapter")


def test_the_second_classifier_never_sees_what_is_labelled(tmp_path):
    _, train, *_ = plan(config(tmp_path), "kto", by_name(tmp_path)).stages
    assert train.config.split == "train" and train.config.second_style_classifier is None


def test_a_folder_by_content_follows_every_setting_but_where_it_is_written(tmp_path):
    place = by_content(tmp_path)
    first, second = (plan(config(folder), "kto", place).stages[0].folder for folder in (tmp_path / "a", tmp_path / "b"))
    other = plan(config(tmp_path, measure={"per_cell": 8}), "kto", place).stages[0].folder
    assert first == second != other


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"measure": {"split": "train"}}, "measure.split: it is set by itself"),
        ({"tune": {"method": "kto"}}, "tune.method: it is set by itself"),
        ({"tune": {"training": {"seed": 3}}}, "tune.training.seed: it is set by itself"),
        ({"measure": {"prompts_file": "p.csv"}}, "measure.prompts_file: the loop needs prompts to train on"),
    ],
)
def test_what_the_loop_sets_cannot_be_given(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        plan(config(tmp_path, **settings), "kto", by_name(tmp_path))
