"""The command `measure`: scores of a model and a report for each family of metrics."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.evaluation import processes
from evenhand.evaluation.manifest import MANIFEST
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.report.files import present
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.score import BiasScore, display_name, write_scores
from evenhand.evaluation.store import Store, stage
from evenhand.mitigation.page import tuned_on_warnings
from evenhand.recipes.family_settings import FAMILIES, recomputable_tables
from evenhand.recipes.responses import LINK, write_responses
from evenhand.recipes.settings import FAMILY, CompareSettings, MeasureSettings, measure_config

log = logging.getLogger("evenhand")

SCORES = "scores.json"


def measure(settings: MeasureSettings) -> None:
    """Measure a model with each family of metrics, or write the prompts for another program to answer."""
    if settings.write_prompts:
        (name,) = settings.metrics
        config, write_prompts = measure_config(settings, name), FAMILIES[name].write_prompts
        n = processes.on_rank_zero(lambda: write_prompts(settings.write_prompts, config))
        log.info("measure: %s prompts are in %s", f"{n:,}", settings.write_prompts)
        return
    names = list(dict.fromkeys(settings.metrics))
    config = {name: measure_config(settings, name) for name in names}
    inputs = processes.on_rank_zero(lambda: read_inputs(settings))
    if not (settings.output_dir / MANIFEST).exists():  # a finished run imports no slow library
        config[names[0]].open_model().check()
    with stage("measure", settings, inputs, recomputable_tables(names)) as run:
        scores: dict[str, list[BiasScore]] = {}
        for name in names if run is not None else ():
            of_family = replace(run, inputs=inputs[name], family=name)
            scores[name] = FAMILIES[name].measure(of_family, config[name])
        processes.on_rank_zero(lambda: _finish(settings, run, [score for found in scores.values() for score in found]))


def read_inputs(settings: MeasureSettings) -> dict[str, dict[str, Any]]:
    """Return the fingerprints of the inputs of each family, by the family's name.

    Raises:
        InputError: an input is missing or cannot be used.
    """
    names = dict.fromkeys(settings.metrics)
    return {name: FAMILIES[name].inputs(measure_config(settings, name)) for name in names}


def _finish(settings: MeasureSettings, run: Store | None, scores: Sequence[BiasScore]) -> None:
    """Write the scores and reports of a run, and print the reports; `run` is None if the run is finished already."""
    files = write_results(run, settings, scores, pages, show_responses)
    if run is not None:
        rows = sorted(run.folder.glob("*.parquet"))
        run.tracker.log_artifact("responses" if FAMILY in settings.metrics else "rows", "dataset", *rows)
        run.tracker.log_artifact("measurement", "report", run.folder / SCORES, *files)


def write_results(
    run: Store | None,
    settings: MeasureSettings | CompareSettings,
    scores: Sequence[BiasScore],
    pages: Callable[[Any], dict[str, Page]],
    show_responses: Callable[[Any], None],
) -> list[Path]:
    """Write a run's scores, reports and page of responses; print the reports; return the paths of the reports.

    Args:
        run: None if the run is finished; its reports are printed if `settings.show`.
        pages, show_responses: functions of the settings that return the reports and write the page of responses.
    """
    if run is not None:
        write_scores(run.folder / SCORES, scores)
        run.tracker.log_scores(scores)
    elif not settings.show:
        return []
    files = present(settings.output_dir, pages(settings), write=run is not None, show=settings.show)
    if run is not None:
        show_responses(settings)
        run.tracker.log_report(files)
    return files


def pages(settings: MeasureSettings) -> dict[str, Page]:
    """Return the report of each family of metrics in a finished run, by the family's name."""
    reports = {}
    for name in dict.fromkeys(settings.metrics):
        reports[name] = FAMILIES[name].page(FamilyRun(settings.output_dir, measure_config(settings, name)))
    if FAMILY in reports:
        warnings = tuned_on_warnings(settings.output_dir, settings.model.name)
        page = reports[FAMILY]
        reports[FAMILY] = replace(page, warnings=[*page.warnings, *warnings], links=[*page.links, LINK])
    return reports


def show_responses(settings: MeasureSettings) -> None:
    """Write the page of all responses of a finished run, if generation bias was measured."""
    if FAMILY in settings.metrics:
        write_responses(settings.output_dir, display_name(settings.model.name), settings.output_dir)
