"""Checks of a command's settings and input runs before slow libraries are imported and before a tracked run begins."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from evenhand.evaluation import families
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.families.generation_bias.settings import FIRST, classifiers
from evenhand.evaluation.models.judge_files import classifier_styles
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.manifest import read_run
from evenhand.evaluation.settings import as_settings, checked
from evenhand.mitigation.methods import load_method, load_trained_method
from evenhand.recipes.check_settings import CheckSettings
from evenhand.recipes.finished_runs import check_trust, labelled_run, read_settings, split_warnings
from evenhand.recipes.settings import (
    FAMILY,
    AblateSettings,
    Experiment,
    ExportSettings,
    Labelling,
    LabelSettings,
    LoopSettings,
    Measurement,
    MeasureSettings,
    TuneSettings,
    measure_config,
)

log = logging.getLogger("evenhand")

METHOD = "method"
THRESHOLD_SETTINGS = ("label.alpha", "label.beta", "label.quantile", "label.cross_fitted")


def check_before_loading(command: str, settings: Any) -> None:
    """Run the checks that need only settings, manifests and small files; log a warning as in `split_warnings`.

    Raises:
        InputError: a command, or a later stage of a loop or an ablation, would fail.
    """
    CHECKS.get(command, lambda settings: None)(settings)


def _check_loop(settings: LoopSettings) -> None:
    for method in dict.fromkeys(settings.methods or ()):
        load_method(method)
    check_experiment(settings)
    _check_measurements(settings, settings.seed)


def _check_ablation(settings: AblateSettings) -> None:
    """Check all points with the first seed; points with equal settings of measuring are checked once."""
    different = {}
    for point in distinct_points(settings):
        loop = point_settings(settings, point, settings.seeds[0])
        check_experiment(loop)
        key = [as_settings(part) for part in (loop.measure, loop.label)]
        different[json.dumps([*key, loop.train_per_cell], sort_keys=True)] = loop
    for loop in different.values():
        _check_measurements(loop, loop.seed)


def _check_measurements(experiment: Experiment, seed: int) -> None:
    """Check the two measurements of the base model, on the prompts of the splits "train" and "measure"."""
    for split, per_cell in (("train", experiment.train_per_cell), ("measure", experiment.measure.prompts.per_cell)):
        prompts = replace(experiment.measure.prompts, per_cell=per_cell)
        settings = MeasureSettings(**{**vars(experiment.measure), "prompts": prompts}, split=split, seed=seed)
        if split == "train":  # the other families are measured on the other split
            settings = settings.with_metrics(FAMILY)
        check_inputs(settings)
    check_exclusions(experiment.measure, experiment.label)


def check_experiment(experiment: Experiment) -> None:
    """Raise InputError if the metrics do not begin with generation bias, or a prompts file has no train split."""
    if experiment.measure.metrics[0] != FAMILY:
        metrics = experiment.measure.metrics
        raise InputError(f"measure.metrics: {metrics} must begin with {FAMILY}: the loop reduces it.")
    prompts = experiment.measure.prompts
    if prompts.file and not (prompts.train_file or prompts.split_by):
        raise InputError(
            "measure.prompts.file: the loop needs other prompts to train on; give measure.prompts.train_file, or "
            "measure.prompts.split_by, a column whose values the two sides do not share."
        )


def check_exclusions(measured: Measurement, labelling: Labelling) -> None:
    """Raise InputError if a style cluster to exclude from labelling is unknown."""
    if labelling.exclude_clusters:
        config = measure_config(MeasureSettings(**vars(measured)), FAMILY)
        first = classifiers(config)[FIRST]
        find_clusters(config.settings.style_clusters, classifier_styles(first), labelling.exclude_clusters)


def find_clusters(file: str, styles: Sequence[str], names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return the column indices of the styles in each style cluster of `names`.

    Raises:
        InputError: a cluster is unknown.
    """
    clusters = load_style_clusters(file, styles) if names else {}
    for name in names:
        if name not in clusters:
            raise unknown_name("exclude_clusters", name, clusters)
    return [clusters[name] for name in names]


def check_inputs(settings: MeasureSettings) -> None:
    """Check the files and models that each family of metrics reads, before slow imports.

    Raises:
        InputError: an input is missing or cannot be used.
    """
    if settings.write_prompts:
        if FAMILY in settings.metrics:
            from evenhand.evaluation.families.generation_bias.collect.prompts import check_prompts

            check_prompts(measure_config(settings, FAMILY))
        return
    for name in dict.fromkeys(settings.metrics):
        families.settings_of(name).inputs(measure_config(settings, name))


def _check_label(settings: LabelSettings) -> None:
    measured, _ = read_settings(settings.responses, "responses", FAMILY)
    for warning in split_warnings(measured, settings.responses):
        log.warning("label: %s", warning)


def _check_tune(settings: TuneSettings) -> None:
    method = load_trained_method(settings.method) if settings.method else None
    if settings.write_rows is not None and settings.write_rows.exists():
        raise InputError(f"write_rows: {settings.write_rows} exists; give another folder.")
    if settings.write_rows is not None and method and method.rewards is not None:
        raise InputError(f"write_rows: {settings.method} samples in training; give a method that trains on responses.")
    folder, measured, _ = labelled_run(settings)
    check_trust(measured, settings.trust_remote_code, "labels")
    for warning in split_warnings(measured, folder):
        log.warning("tune: %s", warning)


def _check_check(settings: CheckSettings) -> None:
    settings.require_limit()
    for field in ("run", "against"):
        if folder := getattr(settings, field):
            read_settings(folder, field, FAMILY)


def _check_export(settings: ExportSettings) -> None:
    read_run(settings.tuning, "tune", "tuning")


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "measure": check_inputs,
    "label": _check_label,
    "tune": _check_tune,
    "loop": _check_loop,
    "ablate": _check_ablation,
    "check": _check_check,
    "export": _check_export,
}


# Points of an ablation.


def points(settings: AblateSettings) -> Iterator[dict[str, Any]]:
    """Yield each point of each grid, as {setting: value}.

    Raises:
        InputError: a point has no method.
    """
    for grid in settings.sweep:
        values = [value if isinstance(value, list) else [value] for value in grid.values()]
        for point in (dict(zip(grid, values, strict=True)) for values in product(*values)):
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
        method = point[METHOD]
        module = load_method(method)
        unused = () if module.USES_THRESHOLD else THRESHOLD_SETTINGS
        unused = unused if module.TRAINER else (*unused, "adapter_strength")
        if point in given:
            raise repeated_point(point)
        given.append(point)
        point_settings(settings, point, settings.seeds[0])  # also checks the values that are not used
        used = {name: value for name, value in point.items() if name not in unused}
        if used not in distinct:
            distinct.append(used)
            yield used
        elif processes.is_rank_zero():
            log.info("%s: the method %s does not use all of these settings, so it is the point %s", point, method, used)


def repeated_point(point: Mapping[str, Any]) -> InputError:
    """Return the error for a point that occurs twice in a sweep."""
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
    # Points share stages, so no stage is tracked; `track` tracks each point.
    loop |= {"output_dir": str(settings.output_dir), "report_to": "none", "seed": seed}
    return checked(LoopSettings, loop, "sweep")
