"""Families of metrics, measured and compared into folders as the commands do it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.evaluation.metrics import FamilyConfig, FamilyRun, load_family
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.score import write_scores


def measure_tests(folder: Path, name: str, config: FamilyConfig, **settings: Any) -> FamilyRun:
    """Check the inputs of a family, measure it into the folder and return the run.

    `settings` are the family's, or groups that it shares with others.
    """
    family = load_family(name)()
    shared = {group: settings.pop(group) for group in family.SHARED if group in settings}
    config = replace(config, **shared)
    if settings or config.settings is None:
        config = replace(config, settings=family.Settings(**settings))
    run = Store(folder, "a fingerprint", Tracker(), family.inputs(config))
    write_scores(folder / "scores.json", family.score(run, config, family.collect(run, config)))
    return FamilyRun(folder, config)


def compare_family(folder: Path, name: str, before: FamilyRun, after: FamilyRun) -> FamilyRun:
    """Compare two runs of a family into the folder and return the comparison."""
    changes = load_family(name)().compare(Store(folder, "a fingerprint", Tracker()), before, after, None)
    write_scores(folder / "scores.json", changes)
    return FamilyRun(folder)
