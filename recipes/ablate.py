"""Ablate: sweep fields of the loop over shared stages → one row a point, the Pareto front, the plan put to the test."""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import processes
from evenhand.evaluation.settings import as_settings
from evenhand.recipes.checking import checked
from evenhand.recipes.experiment import Plan, by_content, plans, refuse_stages_outside, run
from evenhand.recipes.settings import AblateSettings, LoopSettings
from evenhand.recipes.sweep.present import summarise_and_present, track

STAGES = "stages"
METHOD = "method"


def ablate(settings: AblateSettings) -> None:
    """Run every point that is not finished yet, what points have in common once; end with the table and the plots.

    Raises:
        InputError: an unknown field, a value that cannot be used, or a point that is there twice; every point was
            refused.
    """
    fields: dict[Path, Mapping[str, Any]] = {}
    planned: list[Plan] = []
    for point in points(settings):
        for seed in settings.seeds:
            for plan in plans_of(settings, point, seed):
                if plan.comparison in fields:
                    raise InputError(f"sweep: {point} is there twice; leave one of them out.")
                fields[plan.comparison] = point
                planned.append(plan)
    if not planned:
        raise InputError(f"sweep: {settings.sweep} has no point; give each field a value, or a list of some.")
    processes.on_rank_zero(lambda: refuse_stages_outside(settings.output_dir, planned))
    refused = run(planned, settings, on_finished=lambda finished: track(settings, finished, fields))
    processes.on_rank_zero(lambda: summarise_and_present("An ablation", settings, planned, refused, fields))


def points(settings: AblateSettings) -> Iterator[dict[str, Any]]:
    """Yield each point of each grid, as {field: value}."""
    for grid in settings.sweep:
        values = [value if isinstance(value, list) else [value] for value in grid.values()]
        for chosen in product(*values):
            yield dict(zip(grid, chosen, strict=True))


def plans_of(settings: AblateSettings, point: Mapping[str, Any], seed: int) -> list[Plan]:
    """Return the plans of one point with one seed, one for each decoding.

    Raises:
        InputError: a field is unknown or has a value that cannot be used.
    """
    if METHOD not in point:
        raise InputError(f"sweep: {dict(point)} has no `method`; every grid names one, or a list of them.")
    told = as_settings(settings.loop)
    for name, value in point.items():
        if name == METHOD:
            continue
        *parents, last = name.split(".")
        group = told
        for parent in parents:
            group = group.get(parent)
            if not isinstance(group, dict):
                raise InputError(f"sweep: {name!r} is no field of the loop; see `evenhand loop --help`.")
        group[last] = value
    # Stages are shared by points, and each point is a run of its own.
    told |= {"output_dir": str(settings.output_dir), "report_to": "none", "seed": seed}
    return plans(checked(LoopSettings, told, "sweep"), point[METHOD], by_content(settings.output_dir / STAGES))
