"""The stages of plans run in order, shared stages once; a refused plan ends alone."""

from pathlib import Path

import pytest

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.recipes.checking import checked
from evenhand.recipes.experiment import run
from evenhand.recipes.plans import Stage, named_folders, plan_method
from evenhand.recipes.settings import Launching, LoopSettings

HERE = Launching()


def loop(tmp_path, **settings):
    return checked(LoopSettings, {"output_dir": str(tmp_path), **settings}, "test")


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


def test_a_refused_tuning_ends_only_its_plan(tmp_path, ran):
    names, refusing = ran
    plans = two_plans(tmp_path)
    refusing.add(tmp_path / "control_tags" / "tune")
    finished = []
    assert run(plans, HERE, on_finished=finished.append) == {str(tmp_path / "control_tags" / "compare"): "spoiled"}
    assert str(tmp_path / "kto" / "compare") in names
    assert not any("control_tags" in name for name in names if not name.endswith("tune"))
    assert finished == plans


def test_any_other_error_ends_all_plans(tmp_path, ran, monkeypatch):
    def fail(stage):
        raise InputError("wrong")

    monkeypatch.setattr(Stage, "run", fail)
    with pytest.raises(InputError, match="wrong"):
        run([plan_method(loop(tmp_path), "kto", named_folders(tmp_path))], HERE)
