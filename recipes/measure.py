"""Measure: a model and what it is measured on → scores and a report for each family of metrics that is named."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.evaluation import families
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import FamilyRun, MeasureConfig
from evenhand.evaluation.report.files import present
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.results import BiasScore, display_name, write_scores
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.manifest import read_run
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.settings import as_settings
from evenhand.recipes.checking import checked, settings_of_run
from evenhand.recipes.family_settings import recomputable_tables
from evenhand.recipes.responses import LINK, write_responses
from evenhand.recipes.settings import FAMILY, MeasureSettings, measure_config
from evenhand.recipes.testbed.known import known, known_scores
from evenhand.recipes.tuned_on import tuned_on_warnings

log = logging.getLogger("evenhand")

SCORES = "scores.json"


def measure(settings: MeasureSettings) -> None:
    """Measure one model by every family of metrics that is asked for, or write what is to be answered elsewhere."""
    if settings.write_prompts:
        (name,) = settings.metrics
        config, write_prompts = measure_config(settings, name), families.measure_of(name).write_prompts
        n = processes.on_rank_zero(lambda: write_prompts(settings.write_prompts, config))
        log.info("measure: %s prompts to be answered are in %s", f"{n:,}", settings.write_prompts)
        return
    names = list(dict.fromkeys(settings.metrics))
    config = {name: measure_config(settings, name) for name in names}
    inputs = processes.on_rank_zero(lambda: {name: families.settings_of(name).inputs(config[name]) for name in names})
    with stage("measure", settings, inputs, recomputable_tables(names)) as run:
        scores: dict[str, list[BiasScore]] = {}
        for name in names if run is not None else ():
            of_family = replace(run, inputs=inputs[name], family=name)
            scores[name] = families.measure_of(name).measure(of_family, config[name])
        processes.on_rank_zero(lambda: _finish(settings, run, config, scores))


def _finish(
    settings: MeasureSettings,
    run: Run | None,
    config: Mapping[str, MeasureConfig],
    scores: Mapping[str, list[BiasScore]],
) -> None:
    """Write the scores and the report, where they are not there yet, and show the report."""
    if run is not None:
        every = []
        for name, found in scores.items():
            every += [*found, *known_scores(name, FamilyRun(run.folder, config[name]), found)]
        write_scores(run.folder / SCORES, every)
        run.tracker.log_scores(every)
    if run is None and not settings.show:
        return
    files = present(settings.output_dir, pages(settings), write=run is not None, show=settings.show)
    if run is not None:
        show_responses(settings)
        run.tracker.log_report(files)
        rows = sorted(run.folder.glob("*.parquet"))
        run.tracker.log_artifact("responses" if FAMILY in settings.metrics else "rows", "dataset", *rows)
        run.tracker.log_artifact("measurement", "report", run.folder / SCORES, *files)


def pages(settings: MeasureSettings) -> dict[str, Page]:
    """Return the report of a finished run by each of its families of metrics."""
    found = {}
    for name in dict.fromkeys(settings.metrics):
        measured = FamilyRun(settings.output_dir, measure_config(settings, name))
        found[name] = families.page_of(name).page(measured, known(name, measured))
    if FAMILY in found:
        warnings = tuned_on_warnings(settings.output_dir, settings.model.name)
        page = found[FAMILY]
        found[FAMILY] = replace(page, warnings=[*page.warnings, *warnings], links=[*page.links, LINK])
    return found


def show_responses(settings: MeasureSettings) -> None:
    """Write the page of all responses of a finished run, if generation bias was measured."""
    if FAMILY in settings.metrics:
        write_responses(settings.output_dir, display_name(settings.model.name), settings.output_dir)


def read_settings(folder: Path, field_name: str, family: str | None = None) -> tuple[MeasureSettings, dict[str, Any]]:
    """Return the settings and the manifest of a finished measuring run, by `family` among others if one is given.

    Raises:
        InputError: the folder holds no such run.
    """
    config, manifest = read_run(folder, "measure", field_name)
    settings = checked(MeasureSettings, settings_of_run(config), str(folder))
    if family is not None and family not in settings.metrics:
        metrics = ", ".join(settings.metrics)
        raise InputError(f"{field_name}: {folder} has the metrics {metrics}; give a run with --metrics {family}.")
    return settings, manifest


def models_with_code(settings: Any) -> list[str]:
    """Return the names of the models and classifiers in settings whose trust_remote_code is true."""
    groups = [settings] if isinstance(settings, Mapping) else []
    for group in groups:  # which grows
        groups += [value for value in group.values() if isinstance(value, Mapping)]
    return [str(group["name"]) for group in groups if group.get("trust_remote_code") and "name" in group]


def check_trust(measured: MeasureSettings, trusted: bool, field_name: str) -> None:
    """Check that the user of a later stage trusts the models whose code a measuring run would have it run.

    The run may come from somebody else, whose trust is not that of the user.

    Raises:
        InputError: the run was measured with trust_remote_code, and this command without.
    """
    if not trusted and (names := models_with_code(as_settings(measured))):
        raise InputError(
            f"{field_name}: the run was measured with trust_remote_code, so that code of {names[0]!r} would be run; if "
            "you trust it, give --trust_remote_code true."
        )
