"""The command `ablate`: a sweep over settings of the loop, in which equal stages run once, and its report."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import processes
from evenhand.recipes.experiment import run
from evenhand.recipes.plans import Plan, hashed_folders, plan_decodings, refuse_stages_outside
from evenhand.recipes.preflight import METHOD, distinct_points, point_settings, repeated_point
from evenhand.recipes.settings import AblateSettings
from evenhand.recipes.sweep.output import track_point, write_report

STAGES = "stages"


def ablate(settings: AblateSettings) -> None:
    """Run the unfinished stages of all points, then write and print the report.

    A stage that several points share runs once.

    Raises:
        InputError: a setting is unknown, a value is invalid, a point is repeated, or every point was rejected.
    """
    fields: dict[Path, Mapping[str, Any]] = {}
    plans: list[Plan] = []
    for point in distinct_points(settings):
        for seed in settings.seeds:
            for plan in plan_point(settings, point, seed):
                if plan.comparison in fields:
                    raise repeated_point(point)
                fields[plan.comparison] = point
                plans.append(plan)
    if not plans:
        raise InputError(f"sweep: {settings.sweep} has no point; give each setting a value or a list of values.")
    processes.on_rank_zero(lambda: refuse_stages_outside(settings.output_dir, plans))
    refused = run(plans, settings, on_finished=lambda finished: track_point(settings, finished, fields))
    processes.on_rank_zero(lambda: write_report("An ablation", settings, plans, refused, fields))


def plan_point(settings: AblateSettings, point: Mapping[str, Any], seed: int) -> list[Plan]:
    """Return the plans of one point with one seed, one for each decoding.

    Raises:
        InputError: a setting is unknown or has an invalid value.
    """
    loop = point_settings(settings, point, seed)
    return plan_decodings(loop, point[METHOD], hashed_folders(settings.output_dir / STAGES))
