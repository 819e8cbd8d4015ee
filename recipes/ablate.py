"""The command `ablate`: a sweep over settings of the loop, in which equal stages run once, and its report."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import json_sha256
from evenhand.evaluation.settings import as_settings, checked, identity_of
from evenhand.mitigation.methods import load_method
from evenhand.recipes.loop import Plan, StageFolders, plan_method, run_plans
from evenhand.recipes.settings import AblateSettings, LoopSettings
from evenhand.recipes.sweep.grid import grid_points, set_point
from evenhand.recipes.sweep.points import track_point, write_report

METHOD = "method"
STAGES = "stages"
STRENGTH = "measure.model.adapter_strength"
THRESHOLD_SETTINGS = ("label.alpha", "label.beta", "label.quantile")


def ablate(settings: AblateSettings) -> None:
    """Run the unfinished stages of all points, then write and print the report.

    A stage that several points share runs once.

    Raises:
        InputError: a setting is unknown, a value is invalid, a point is repeated, or every point was rejected.
    """
    plans = [plan_point(settings, values, seed) for values in distinct_points(settings) for seed in settings.seeds]
    points = [point for plan in plans for point in plan.points]
    comparisons = [point.comparison for point in points]
    if repeated := [point.swept for point in points if comparisons.count(point.comparison) > 1]:
        raise InputError("sweep", f"the points {repeated} are equal; leave one of them out.")
    refused = run_plans(settings, plans, lambda point: track_point(settings, point))
    processes.on_rank_zero(lambda: write_report("An ablation", settings, points, refused))


def plan_point(settings: AblateSettings, values: Mapping[str, Any], seed: int) -> Plan:
    """Return the plan of the loop with the settings of one point and one seed."""
    loop = point_settings(settings, values, seed)
    plan = plan_method(loop, values[METHOD], hashed_folders(settings.output_dir / STAGES))
    return replace(plan, points=[replace(point, swept=values) for point in plan.points])


def hashed_folders(folder: Path) -> StageFolders:
    """Return a function that returns the folder of a stage, named by the stage's command and a hash of its settings.

    Equal stages have the same folder. Paths inside `folder` are hashed relative to it, so that it can be moved.
    """

    def relative(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: relative(item) for key, item in value.items()}
        is_inside = isinstance(value, str) and Path(value).is_relative_to(folder)
        return f"./{Path(value).relative_to(folder)}" if is_inside else value

    def stage_folder(name: str, command: str, settings: Any) -> Path:
        identity = [command, relative(identity_of(settings, with_paths=True))]
        return folder / f"{command}-{json_sha256(identity)[:12]}"

    return stage_folder


def distinct_points(settings: AblateSettings) -> list[dict[str, Any]]:
    """Return each point of each grid, as {setting: value}, without settings that its method does not use, once."""
    distinct: list[dict[str, Any]] = []
    for grid in settings.sweep:
        if METHOD not in grid or [] in grid.values():
            raise InputError(
                "sweep", f"{grid} has no `method` or no value; give a method, and a value to each setting."
            )
        for point in grid_points([grid]):
            point_settings(settings, point, settings.seeds[0])  # also checks the values that are not used
            method = load_method(point[METHOD])
            unused = () if method.uses_threshold else THRESHOLD_SETTINGS
            unused += () if method.trainer else (STRENGTH,)
            used = {name: value for name, value in point.items() if name not in unused}
            if used not in distinct:
                distinct.append(used)
    return distinct


def point_settings(settings: AblateSettings, point: Mapping[str, Any], seed: int) -> LoopSettings:
    """Return the settings of the loop at a point of an ablation."""
    loop = as_settings(settings.loop)
    set_point(loop, {name: value for name, value in point.items() if name != METHOD})
    # Points share stages, so no stage is tracked; `track_point` tracks each point.
    loop |= {"output_dir": str(settings.output_dir), "report_to": "none", "seed": seed}
    return checked(LoopSettings, loop, "sweep")
