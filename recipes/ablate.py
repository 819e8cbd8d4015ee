"""The command `ablate`: a sweep over settings of the loop, in which equal stages run once, and its report."""

import logging
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.settings import as_settings, checked
from evenhand.mitigation.methods import load_method
from evenhand.recipes.loop import Plan, hashed_folders, plan_method, run_plans
from evenhand.recipes.settings import AblateSettings, LoopSettings
from evenhand.recipes.sweep.output import track_point, write_report

log = logging.getLogger("evenhand")

METHOD = "method"
STAGES = "stages"
THRESHOLD_SETTINGS = ("label.alpha", "label.beta", "label.quantile", "label.cross_fitted")


def ablate(settings: AblateSettings) -> None:
    """Run the unfinished stages of all points, then write and print the report.

    A stage that several points share runs once.

    Raises:
        InputError: a setting is unknown, a value is invalid, a point is repeated, or every point was rejected.
    """
    plans, fields = [], {}
    for values in distinct_points(settings):
        for seed in settings.seeds:
            plan = plan_point(settings, values, seed)
            plans.append(plan)
            for point in plan.points:
                if point.comparison in fields:
                    raise _repeated_point(values)
                fields[point.comparison] = values
    if not plans:
        raise InputError(f"sweep: {settings.sweep} has no point; give each setting a value or a list of values.")
    points = [point for plan in plans for point in plan.points]
    refused = run_plans(settings, plans, lambda point: track_point(settings, point, fields))
    processes.on_rank_zero(lambda: write_report("An ablation", settings, points, refused, fields))


def plan_point(settings: AblateSettings, values: Mapping[str, Any], seed: int) -> Plan:
    """Return the plan of the loop with the settings of one point and one seed.

    Raises:
        InputError: a setting is unknown or has an invalid value.
    """
    loop = point_settings(settings, values, seed)
    return plan_method(loop, values[METHOD], hashed_folders(settings.output_dir / STAGES))


def points(settings: AblateSettings) -> Iterator[dict[str, Any]]:
    """Yield each point of each grid, as {setting: value}.

    Raises:
        InputError: a point has no method.
    """
    for grid in settings.sweep:
        lists = [value if isinstance(value, list) else [value] for value in grid.values()]
        for values in product(*lists):
            point = dict(zip(grid, values, strict=True))
            if METHOD not in point:
                raise InputError(f"sweep: {point} has no `method`; give each grid a method or a list of methods.")
            yield point


def distinct_points(settings: AblateSettings) -> Iterator[dict[str, Any]]:
    """Yield the points of an ablation without settings that their method does not use, each only once.

    Raises:
        InputError: a point is repeated, or a setting is unknown or has an invalid value.
    """
    given: list[dict[str, Any]] = []
    distinct: list[dict[str, Any]] = []
    for point in points(settings):
        if point in given:
            raise _repeated_point(point)
        given.append(point)
        point_settings(settings, point, settings.seeds[0])  # also checks the values that are not used
        method = load_method(point[METHOD])
        unused = {*(() if method.uses_threshold else THRESHOLD_SETTINGS)}
        unused |= {*(() if method.trainer else ("adapter_strength",))}
        used = {name: value for name, value in point.items() if name not in unused}
        if used not in distinct:
            distinct.append(used)
            yield used
        elif processes.is_rank_zero():
            log.info("%s: the method does not use all of these settings, so it is the point %s", point, used)


def _repeated_point(point: Mapping[str, Any]) -> InputError:
    return InputError(f"sweep: the point {point} is repeated; leave one of them out.")


def point_settings(settings: AblateSettings, point: Mapping[str, Any], seed: int) -> LoopSettings:
    """Return the settings of the loop at a point of an ablation.

    Raises:
        InputError: a setting is unknown or has an invalid value.
    """
    loop = as_settings(settings.loop)
    for name, value in point.items():
        if name == METHOD:
            continue
        *parents, last = name.split(".")
        group = loop
        for parent in parents:
            group = group.get(parent)
            if not isinstance(group, dict):
                raise InputError(f"sweep: {name!r} is not a setting of the loop; see `evenhand loop --help`.")
        group[last] = value
    # Points share stages, so no stage is tracked; `track_point` tracks each point.
    loop |= {"output_dir": str(settings.output_dir), "report_to": "none", "seed": seed}
    return checked(LoopSettings, loop, "sweep")
