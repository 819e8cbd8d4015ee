"""The command `ablate`: a sweep over settings of the loop, in which equal stages run once, and its report."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import json_sha256
from evenhand.evaluation.runs import processes
from evenhand.evaluation.settings import as_settings, checked, identity_of
from evenhand.mitigation.labels import DIVERGENCE
from evenhand.mitigation.methods import JOIN, Method, load_method
from evenhand.mitigation.methods import names as method_names
from evenhand.recipes.automatic import with_precision
from evenhand.recipes.loop import run_points
from evenhand.recipes.point import Point, StageFolder, StageSettings, plan_points
from evenhand.recipes.settings import settings_of_methods
from evenhand.recipes.sweep.foretold import log_foretold_curve
from evenhand.recipes.sweep.points import report_so_far, track_point, write_report
from evenhand.recipes.sweep.summary import METHOD
from evenhand.recipes.sweep.thresholds import QUANTILE
from evenhand.recipes.tuning_settings import AblateSettings, Experiment, LoopSettings

TITLE = "An ablation"  # of the report
STAGES = "stages"
MODEL = "measure.model"
PRECISION = f"{MODEL}.dtype"
STRENGTH = f"{MODEL}.adapter_strength"
DIRECTIONS = "label.directions"


def ablate(settings: AblateSettings) -> None:
    """Run the unfinished stages of all points; write the report after each point, and print it at the end.

    A stage that several points share runs once.

    Raises:
        InputError: a setting is unknown, a value is invalid, a point is repeated, or every point was rejected.
    """
    points: list[Point] = []
    for values in distinct_points(settings):
        for seed in settings.seeds:
            points += swept_points(settings, values, seed)
    comparisons = [point.comparison for point in points]
    repeated = [point.swept for point in points if comparisons.count(point.comparison) > 1]
    if repeated:
        raise InputError("sweep", f"the points {repeated} are equal; leave one of them out.")
    foretells = any(point.label is not None and point.label.value == DIVERGENCE for point in points)
    write_so_far = report_so_far(TITLE, settings, points)

    def on_finished(point: Point) -> None:
        track_point(settings, point)
        write_so_far(point)

    refused = run_points(
        points,
        settings,
        on_finished=on_finished,
        on_labelled=(lambda: log_foretold_curve(points)) if foretells else None,
    )
    processes.on_rank_zero(lambda: write_report(TITLE, settings, points, refused))


def swept_points(settings: AblateSettings, values: Mapping[str, object], seed: int) -> list[Point]:
    """Return the points of the loop with the values of the swept settings and one seed: one for each decoding."""
    loop = point_settings(settings, values, seed)
    points = plan_points(loop, str(values[METHOD]), hashed_folders(settings.output_dir / STAGES))
    return [replace(point, swept=values) for point in points]


def hashed_folders(folder: Path) -> StageFolder:
    """Return a function that returns the folder of a stage, named by the stage's command and a hash of its settings.

    Equal stages have the same folder. Paths inside `folder` are hashed relative to it, so that it can be moved.
    """

    def relative(value: object) -> object:
        if isinstance(value, dict):
            return {key: relative(item) for key, item in value.items()}
        if isinstance(value, str) and Path(value).is_relative_to(folder):
            return f"./{Path(value).relative_to(folder)}"
        return value

    def stage_folder(name: str, command: str, settings: StageSettings) -> Path:
        identity = [command, relative(identity_of(settings, with_paths=True))]
        return folder / f"{command}-{json_sha256(identity)[:12]}"

    return stage_folder


def distinct_points(settings: AblateSettings) -> list[dict[str, object]]:
    """Return each point of each grid, as {setting: value}, without settings that its method does not use, once.

    Raises:
        InputError: a grid has no method, a value is invalid, or no point of a grid uses one of its settings.
    """
    distinct: list[dict[str, object]] = []
    for grid in settings.sweep:
        if METHOD not in grid or [] in grid.values():
            raise InputError(
                "sweep", f"{grid} has no `method` or no value; give a method, and a value to each setting."
            )
        points = [used_settings(settings, point) for point in grid_points(grid)]
        unused = sorted(set(grid).difference(*points))
        if unused:
            raise InputError(
                "sweep",
                f"no method of {grid} uses {', '.join(unused)}, with the other settings as they are; leave it out, or "
                "change those: thresholds need control_tags.targets labels, or distill.only_bias.",
            )
        for point in points:
            if point not in distinct:
                distinct.append(point)
    return distinct


def used_settings(settings: AblateSettings, point: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a point of a grid on which its result depends; all values are checked."""
    loop = point_settings(settings, point, settings.seeds[0])
    method = load_method(str(point[METHOD]), settings_of_methods(loop))
    used = {name: value for name, value in point.items() if is_used(name, method)}
    if loop.label.beta is not None or loop.label.share is not None:
        used.pop(QUANTILE, None)
    return used


def is_used(setting: str, method: Method) -> bool:
    """Return whether a method's result depends on a setting, given by its dotted name."""
    group = setting.partition(".")[0]
    if group in method_names():
        return group in method.name.split(JOIN)
    trained = method.training_part
    if group == "tune" or setting in (STRENGTH, "train_answers_per_cell"):
        return trained is not None
    if setting == "measure_without_tag":
        return trained is not None and trained.control_tag != "" and not trained.is_activated
    if setting == DIRECTIONS and trained is not None and trained.reads_bias_values:
        return True
    if group == "label":
        return trained is not None and trained.reads_labels
    return True


def _values(grid: Mapping[str, object], name: str) -> list[object]:
    """Return the values of a setting in a grid; [] if it has none."""
    values = grid.get(name, [])
    return values if isinstance(values, list) else [values]


def grid_points(grid: Mapping[str, object]) -> list[dict[str, object]]:
    """Return all combinations of the values of several settings, each as a dictionary {setting: value}.

    >>> grid_points({"model": ["a", "b"], "seed": 1})
    [{'model': 'a', 'seed': 1}, {'model': 'b', 'seed': 1}]
    """
    lists = [_values(grid, name) for name in grid]
    return [dict(zip(grid, combination, strict=True)) for combination in product(*lists)]


def point_settings(settings: AblateSettings, point: Mapping[str, object], seed: int) -> LoopSettings:
    """Return the settings of the loop at a point of an ablation."""
    loop = as_settings(settings.loop)
    for name, value in point.items():
        if name == METHOD:
            continue
        if name.partition(".")[0] not in Experiment.model_fields:
            raise InputError(
                "sweep",
                f"{name!r} is not a setting in use: points have settings of `loop`, and `seeds` has their seeds.",
            )
        _set_value(loop, name, value)
    # Points share stages, so no stage is tracked; `track_point` tracks each point.
    loop |= {"output_dir": str(settings.output_dir), "report_to": "none", "seed": seed}
    settings_of_point = checked(LoopSettings, loop, "sweep")
    if any(sets_precision(grid) for grid in settings.sweep):
        # `auto` is what suits this device: a measurement on disk may have the precision of another point.
        return settings_of_point.replaced(measure=with_precision(settings_of_point.measure, None))
    return settings_of_point


def sets_precision(grid: Mapping[str, object]) -> bool:
    """Return whether a grid gives the precision of the model in any of its points.

    >>> sets_precision({"measure.model.dtype": ["float32", "bfloat16"]}), sets_precision({"measure.model": "gpt2"})
    (True, False)
    """
    return PRECISION in grid or any(isinstance(model, dict) and "dtype" in model for model in _values(grid, MODEL))


def _set_value(settings: dict[str, Any], name: str, value: object) -> None:
    """Set a value in nested settings of a loop by its dotted name."""
    *parents, last = name.split(".")
    group = settings
    for parent in parents:
        inner = group.get(parent)
        if inner is None and parent in method_names():  # settings of a method that the loop does not mention
            inner = group[parent] = {}
        if not isinstance(inner, dict):
            raise InputError("sweep", f"{name!r} is not a setting in use; see `evenhand loop --help`.")
        group = inner
    group[last] = value
