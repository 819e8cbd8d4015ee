"""Ablate: sweep fields of the loop over shared stages → one row a point, the Pareto front, the plan put to the test."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from evaluation.errors import InputError
from recipes.config import AblateConfig, LoopConfig, as_settings, checked
from recipes.experiment import Plan, by_content, plan, run
from recipes.summary import Summary

STAGES = "stages"
METHOD = "method"


def ablate(config: AblateConfig) -> None:
    """Run every point that is not finished yet, what points have in common once; end with the table and the plots.

    Raises:
        InputError: an unknown field, a value that cannot be used, or a point that is there twice; every point was
            refused.
    """
    fields: dict[str, Mapping[str, Any]] = {}
    plans: list[Plan] = []
    for point in points(config):
        for seed in config.seeds:
            planned = plan_of(config, point, seed)
            if str(planned.comparison) in fields:
                raise InputError(f"sweep: {point} is there twice; leave one of them out.")
            fields[str(planned.comparison)] = point
            plans.append(planned)
    if not plans:
        raise InputError(f"sweep: {config.sweep} has no point; give each field a value, or a list of some.")
    swept = list(dict.fromkeys(name for point in fields.values() for name in point if name != METHOD))
    summary = Summary("An ablation", config, plans, swept=swept, fields=fields)
    summary.refused |= run(plans, config.jobs, on_finished=summary.track)
    summary.report()


def points(config: AblateConfig) -> Iterator[dict[str, Any]]:
    """Yield each point of each grid, as {field: value}."""
    for grid in config.sweep:
        values = [value if isinstance(value, list) else [value] for value in grid.values()]
        for chosen in product(*values):
            yield dict(zip(grid, chosen, strict=True))


def plan_of(config: AblateConfig, point: Mapping[str, Any], seed: int) -> Plan:
    """Return the plan of one point with one seed.

    Raises:
        InputError: a field is unknown or has a value that cannot be used.
    """
    settings = as_settings(config.loop)
    if METHOD not in point:
        raise InputError(f"sweep: {dict(point)} has no `method`; every grid names one, or a list of them.")
    for name in ("methods", "report_to", "output_dir", "seed"):
        if getattr(config.loop, name) != getattr(LoopConfig(), name):
            raise InputError(f"loop.{name}: the ablation sets it by itself; leave it out.")
    for name, value in point.items():
        if name == METHOD:
            continue
        *parents, last = name.split(".")
        target = settings
        for parent in parents:
            target = target.get(parent)
            if not isinstance(target, dict):
                raise InputError(f"sweep: {name!r} is no field of the loop; see `evenhand loop --help`.")
        target[last] = value
    # Stages are shared by points, and each point is a run of its own.
    settings |= {"output_dir": str(config.output_dir), "report_to": "none", "seed": seed}
    of_point = checked(LoopConfig, settings, "sweep")
    return plan(of_point, point[METHOD], by_content(config.output_dir / STAGES))
