"""Compare: two measuring runs over the same rows → differences with intervals → the report of both, side by side."""

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation import families
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import FamilyRun
from evenhand.evaluation.families.generation_bias.collect.rows import StyledRun, has_same_prompts, read_styled_run
from evenhand.evaluation.families.generation_bias.report.report_data import HEADLINE
from evenhand.evaluation.report.files import REPORT, present
from evenhand.evaluation.report.numbers import before_after
from evenhand.evaluation.report.page import Link, Page
from evenhand.evaluation.results import find_score, write_scores
from evenhand.evaluation.runs.manifest import read_run
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.stage import stage
from evenhand.mitigation.labelling.mean_bias_values import bias_value_changes, cross_fitted_bias_values
from evenhand.mitigation.labelling.page import plan_section
from evenhand.mitigation.methods import load_method
from evenhand.mitigation.training.page import tag_note, training_section, tuning_method
from evenhand.recipes.measure import SCORES, check_trust, read_settings
from evenhand.recipes.responses import LINK, write_responses
from evenhand.recipes.settings import FAMILY, CompareSettings, measure_config
from evenhand.recipes.testbed.known import known, known_differences
from evenhand.recipes.tuned_on import tuned_on_warnings


def compare(settings: CompareSettings) -> None:
    """Write the differences of `after` to `before`, by every family of metrics that both have, and the report.

    Raises:
        InputError: the two runs have no family in common, or were not measured alike.
    """
    measured, manifests = _measured(settings)
    with stage("compare", settings, _inputs(settings, list(measured), manifests)) as run:
        if run is not None:
            check_trust(read_settings(settings.before, "before")[0], settings.trust_remote_code, "before")
            changes = [score for name, both in measured.items() for score in _differences(run, settings, name, **both)]
            write_scores(run.folder / SCORES, changes)
            run.tracker.log_scores(changes)
        if run is None and not settings.show:
            return
        files = present(settings.output_dir, pages(settings), write=run is not None, show=settings.show)
        if run is not None:
            show_responses(settings)
            tables = sorted(run.folder.glob("*.parquet"))
            run.tracker.log_report(files)
            run.tracker.log_artifact("comparison", "report", run.folder / SCORES, *files, *tables)


def pages(settings: CompareSettings) -> dict[str, Page]:
    """Return the report of a finished comparison by each family of metrics."""
    return {name: _page(settings, name, **both) for name, both in _measured(settings)[0].items()}


def show_responses(settings: CompareSettings) -> None:
    """Write the page of all responses of both runs, if generation bias was compared."""
    measured, _ = _measured(settings)
    if FAMILY in measured:
        names = (run.config.model.name for run in measured[FAMILY].values())
        write_responses(settings.output_dir, before_after(*names), settings.before, settings.after)


def _measured(settings: CompareSettings) -> tuple[dict[str, dict[str, FamilyRun]], dict[str, dict[str, Any]]]:
    """Return both runs as each family that they have in common sees them, and the manifests of both.

    Raises:
        InputError: they have none in common.
    """
    told, manifests = {}, {}
    for side in ("before", "after"):
        told[side], manifests[side] = read_settings(getattr(settings, side), side)
    names = [name for name in told["before"].metrics if name in told["after"].metrics and families.comparable(name)]
    if not names:
        both = " and ".join(str(told[side].metrics) for side in told)
        those = ", ".join(filter(families.comparable, families.names()))
        raise InputError(
            f"after: the runs ({both}) have no metrics in common that can be compared, which are {those}; "
            "measure both by one of them."
        )
    runs = {
        name: {side: FamilyRun(getattr(settings, side), measure_config(told[side], name)) for side in told}
        for name in names
    }
    return runs, manifests


def _inputs(settings: CompareSettings, names: list[str], manifests: dict[str, Any]) -> dict[str, Any]:
    """Return fingerprints of the runs, and of what each family reads besides."""
    inputs = {side: manifest["fingerprint"] for side, manifest in manifests.items()}
    for name, command in (("labels", "label"), ("tuning", "tune"), ("after_without_tag", "measure")):
        if (folder := getattr(settings, name)) is not None:
            inputs[name] = read_run(folder, command, name)[1]["fingerprint"]
    for name in names:
        inputs |= families.settings_of(name).comparison_inputs(getattr(settings, name, None))
    return inputs


def _differences(run: Run, settings: CompareSettings, name: str, before: FamilyRun, after: FamilyRun) -> list[Any]:
    if name == FAMILY:  # what the treatment knows of the descriptors; the instrument only reads it
        rows = read_styled_run(before.folder), read_styled_run(after.folder)
        if has_same_prompts(*rows):  # others are refused below
            run.table("bias_values", lambda: _bias_values(settings.labels, *rows))
    found = families.comparison_of(name).differences(run, before, after, getattr(settings, name, None))
    return [*found, *known_differences(name, before, after)]


def _bias_values(labels: Path | None, before: StyledRun, after: StyledRun) -> pd.DataFrame:
    """Return each descriptor's mean b: by the directions of the labelled responses, or, without any, by its own."""
    if labels is None:
        return cross_fitted_bias_values(before.shared, before.vectors)
    told, manifest = read_run(labels, "label", "labels")
    labelled = read_styled_run(Path(told["responses"]))
    alpha = manifest["threshold"]["alpha"]
    sides = before.shared, before.vectors, after.vectors
    return bias_value_changes(labelled.shared, labelled.vectors, *sides, alpha)


def _page(settings: CompareSettings, name: str, before: FamilyRun, after: FamilyRun) -> Page:
    changes = FamilyRun(settings.output_dir, getattr(settings, name, None))
    page = families.compared_page_of(name).comparison_page
    if name != FAMILY:
        return page(before, after, changes, known(name, before))
    told, model = known(name, before), after.config.model.name
    without_tag = settings.after_without_tag and FamilyRun(settings.after_without_tag)
    pooled = [find_score(measured.scores, HEADLINE) for measured in (without_tag, before) if without_tag]
    note = tag_note(model, *pooled)
    found = page(before, after, changes, replace(told, notes=[*told.notes, *filter(None, [note])]))
    planned = settings.labels and _planned(settings)
    sections = [plan_section(settings.labels, _left(settings, changes))] if planned else []
    sections += [training_section(settings.tuning)] if settings.tuning else []
    *others, samples = found.sections
    subtitle = ", ".join(filter(None, (found.subtitle, tuning_method(model))))
    warnings = tuned_on_warnings(after.folder, model, settings.labels, settings.tuning)
    return replace(
        found,
        subtitle=subtitle,
        warnings=[*found.warnings, *warnings],
        sections=[*others, *sections, samples],
        links=[LINK, *(_link(settings, side) for side in ("before", "after"))],
    )


def _link(settings: CompareSettings, side: str) -> Link:
    """Return the report of one of the two runs."""
    way = os.path.relpath(getattr(settings, side).resolve(), settings.output_dir.resolve())
    return Link(f"{side} alone", f"{way}/{REPORT}.html")


def _planned(settings: CompareSettings) -> bool:
    """Return whether the threshold plan speaks of the method, if it is known."""
    if settings.tuning is None:
        return True
    return load_method(read_run(settings.tuning, "tune", "tuning")[0]["method"]).THRESHOLD_PLAN_APPLIES


def _left(settings: CompareSettings, changes: FamilyRun) -> float:
    """Return the share of pooled FGB* left by a model that was tuned on these labels alone; NaN of any other."""
    if settings.tuning is None:
        return math.nan
    labels = Path(read_run(settings.tuning, "tune", "tuning")[0]["labels"])
    same = labels.resolve() == settings.labels.resolve()  # a second round is tuned on labels of its own
    return 1 - find_score(changes.scores, f"{HEADLINE}_reduction").value if same else math.nan
