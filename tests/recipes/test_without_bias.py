"""A loop whose base shows no bias ends there, before anything is tuned; unless allow_no_bias is set."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import BiasScore, write_scores
from evenhand.recipes.experiment import run
from evenhand.recipes.loop import loop
from evenhand.recipes.plans import Stage, named_folders, plan_method
from evenhand.recipes.settings import Launching, LoopSettings
from tests.testbed_settings import MEASURE

HERE = Launching()
METHODS = ("control_tags", "kto")


def pooled(interval):
    bounds = (-1.0, 2.0)
    return BiasScore("fgb_pooled_corrected", 0.00009, 0.0, bounds, 900, interval, reason=None if interval else "none")


@dataclass
class Started:
    """The folders of the stages that ran, and the interval that each base is found to have."""

    folders: list[Path] = field(default_factory=list)
    intervals: dict[Path, tuple[float, float] | None] = field(default_factory=dict)


@pytest.fixture
def started(monkeypatch):
    found = Started()

    def run_stage(self):
        found.folders.append(self.folder)
        if self.folder in found.intervals:
            self.folder.mkdir(parents=True)
            write_scores(self.folder / "scores.json", [pooled(found.intervals[self.folder])])

    monkeypatch.setattr(Stage, "run", run_stage)
    return found


def plans_of(folder: Path, **settings):
    settings = LoopSettings(measure=MEASURE, output_dir=folder, report_to="none", **settings)
    return [plan_method(settings, method, named_folders(folder)) for method in METHODS]


@pytest.mark.parametrize("interval", [(-0.00012, 0.00031), None])
def test_nothing_is_tuned_where_the_base_shows_no_bias(tmp_path, started, interval):
    plans = plans_of(tmp_path)
    started.intervals = {plans[0].before: interval}
    ended = []
    refused = run(plans, HERE, on_finished=ended.append)
    assert started.folders == [tmp_path / "before"] and ended == plans
    assert {*refused} == {str(plan.comparison) for plan in plans}
    assert all("pooled FGB* is 0.09" in reason for reason in refused.values())
    assert all("--allow_no_bias true" in reason for reason in refused.values())


@pytest.mark.parametrize(("interval", "allowed"), [((0.00002, 0.0002), False), ((-0.00012, 0.00031), True)])
def test_a_significant_bias_is_tuned_and_any_other_if_allowed(tmp_path, started, interval, allowed):
    plans = plans_of(tmp_path, allow_no_bias=allowed)
    started.intervals = {plans[0].before: interval}
    assert run(plans, HERE) == {}
    assert {*started.folders} == ({stage.folder for plan in plans for stage in plan.stages})


def test_the_loop_ends_with_the_reason(tmp_path, started):
    started.intervals = {tmp_path / "before": (-0.00012, 0.00031)}
    with pytest.raises(InputError, match=r"pooled FGB\* is .*--allow_no_bias true"):
        loop(LoopSettings(measure=MEASURE, output_dir=tmp_path, report_to="none", methods=list(METHODS)))


def test_a_point_without_bias_ends_alone(tmp_path, started):
    """Of two points of a sweep the one whose base shows a bias goes on."""
    shown, unshown = (plans_of(tmp_path / name)[0] for name in ("shown", "unshown"))
    started.intervals = {shown.before: (0.001, 0.002), unshown.before: (-0.001, 0.002)}
    assert {*run([unshown, shown], HERE)} == {str(unshown.comparison)}
    assert started.folders == [unshown.before, *(stage.folder for stage in shown.stages)]
