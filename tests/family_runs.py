"""A family of metrics measured into a folder, as the command does it, without the command."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.evaluation.families import FamilyRun, MeasureConfig, comparison_of, measure_of, settings_of
from evenhand.evaluation.results import write_scores
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.tracking import Tracker


def measure_family(folder: Path, name: str, config: MeasureConfig, **own: Any) -> FamilyRun:
    """Return what the family left in the folder; `own` are its settings."""
    settings, measuring = settings_of(name), measure_of(name)
    config = replace(config, settings=settings.Settings(**own))
    run = Run(folder, "a fingerprint", Tracker(), settings.inputs(config))
    write_scores(folder / "scores.json", measuring.measure(run, config))
    return FamilyRun(folder, config)


def compare_family(folder: Path, name: str, before: FamilyRun, after: FamilyRun) -> FamilyRun:
    """Return what a comparison left in the folder."""
    changes = comparison_of(name).differences(Run(folder, "a fingerprint", Tracker()), before, after, None)
    write_scores(folder / "scores.json", changes)
    return FamilyRun(folder)
