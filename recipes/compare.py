"""The command `compare`: score differences between two runs over the same rows, with intervals, and their report."""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import FACTS, Facts
from evenhand.evaluation.files import read_json
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.compared_runs import compared_responses, on_common_prompts
from evenhand.evaluation.metrics.generation_bias.decision import MEASURE_MORE
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.models.revisions import BaseChanged, model_revision
from evenhand.evaluation.report.numbers import before_after
from evenhand.evaluation.report.output import REPORT, present
from evenhand.evaluation.report.page import Link, Page
from evenhand.evaluation.runs.record import FinishedRecord, read_run, run_sha256
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import ModelSettings
from evenhand.mitigation.labels import bias_values_along, cross_fitted_bias_values, mean_bias_values
from evenhand.mitigation.page import tag_note, training_section, tuned_on_warnings, tuning_method
from evenhand.recipes.finished_runs import MODEL_CODE, check_same_precision, permitted_measurement, read_measurement
from evenhand.recipes.label import LabelRecord
from evenhand.recipes.measure import LINK, finish, write_responses
from evenhand.recipes.plan import narrower_text
from evenhand.recipes.received import Permissions
from evenhand.recipes.settings import FAMILIES, GENERATION_BIAS, CompareSettings, MeasureSettings, family_config

log = logging.getLogger("evenhand")


def compare(settings: CompareSettings, *, show: bool = True) -> None:
    """Write the score differences between `before` and `after` for every common family of metrics, and the report.

    Args:
        show: print the report.

    Raises:
        InputError: the runs have no comparable family in common, or their settings or prompts differ.
    """
    runs, records = _family_runs(settings)
    with stage("compare", settings, _inputs(settings, list(runs), records)) as store:
        changes = []
        if store is not None:
            runs, _ = _family_runs(settings, Permissions(code=settings.trust_remote_code))
            _check_base(read_measurement(settings.after, "after")[0].model)
            changes = [score for name, both in runs.items() for score in _differences(store, settings, name, both)]
        finish("comparison", store, settings, changes, facts_of, report, show=show)
    if show and GENERATION_BIAS in runs:
        decided = read_json(settings.output_dir / FACTS, "output_dir")["families"][GENERATION_BIAS]["decision"]
        if decided["advice"] == MEASURE_MORE:
            with suppress(InputError):  # a run without an interval can plan nothing
                print(narrower_text(settings.before))


def _check_base(model: ModelSettings) -> None:
    """Raise InputError if the tuned model is an adapter whose base has changed; a base that is away is no reason."""
    try:
        model_revision(model.name, model.revision, model.base)
    except BaseChanged as error:
        raise InputError("after", f"{error}") from None
    except InputError:
        log.debug("compare: the base of %s cannot be checked", model.name, exc_info=True)


def facts_of(settings: CompareSettings) -> dict[str, Facts]:
    """Return what each family found in a finished comparison, by the family's name."""
    facts = {}
    for name, both in _family_runs(settings)[0].items():
        changes = FamilyRun(settings.output_dir, getattr(settings, name, None))
        facts[name] = FAMILIES[name].comparison_facts(both["before"], both["after"], changes)
    return facts


def report(settings: CompareSettings, *, write: bool, show: bool) -> dict[Path, Page]:
    """Write and print the reports of a finished comparison, and write the page of responses; return them by path."""
    runs, _ = _family_runs(settings)
    if write and GENERATION_BIAS in runs:
        names = (run.config.model.name for run in runs[GENERATION_BIAS].values())
        write_responses(settings.output_dir, before_after(*names), settings.before, settings.after)
    pages = {name: _page(settings, name, both) for name, both in runs.items()}
    return present(settings.output_dir, pages, write=write, show=show)


def _family_runs(
    settings: CompareSettings, permissions: Permissions | None = None
) -> tuple[dict[str, dict[str, FamilyRun]], dict[str, FinishedRecord]]:
    """Return {family: {"before": run, "after": run}} for families of metrics of both runs, and both records.

    With `permissions`, the model of `before` can be loaded; without, nothing that the records name can act.
    """
    sides: dict[str, MeasureSettings] = {}
    records: dict[str, FinishedRecord] = {}
    for side in ("before", "after"):
        sides[side], records[side] = read_measurement(getattr(settings, side), side)
    if permissions is not None:
        sides["before"], _ = permitted_measurement(settings.before, "before", permissions, [MODEL_CODE])
    if settings.server is not None:
        sides["before"].model = sides["before"].model.replaced(server=settings.server)
    check_same_precision(sides["before"], sides["after"], "after")
    metrics = [measured.metrics for measured in sides.values()]
    names = [name for name in metrics[0] if name in metrics[1] and FAMILIES[name].compare]
    if not names:
        comparable = [name for name, family in FAMILIES.items() if family.compare]
        raise InputError(
            "after",
            f"the runs ({metrics[0]} and {metrics[1]}) have no comparable metrics in common; measure both with "
            f"one of {', '.join(comparable)}.",
        )

    def family_run(name: str, side: str) -> FamilyRun:
        return FamilyRun(getattr(settings, side), family_config(sides[side], name))

    return {name: {side: family_run(name, side) for side in sides} for name in names}, records


def _inputs(settings: CompareSettings, names: list[str], records: dict[str, FinishedRecord]) -> dict[str, Json]:
    """Return the fingerprints of the runs, of the other folders in the settings, and of the inputs of each family."""
    inputs: dict[str, Json] = {side: run_sha256(record) for side, record in records.items()}
    for name, command in (("labels", "label"), ("tuning", "tune"), ("after_without_tag", "measure")):
        if (folder := getattr(settings, name)) is not None:
            inputs[name] = run_sha256(read_run(folder, command, name)[1])
    for name in names:
        inputs |= FAMILIES[name].comparison_inputs(getattr(settings, name, None))
    return inputs


def _differences(store: Store, settings: CompareSettings, name: str, both: Mapping[str, FamilyRun]) -> list[BiasScore]:
    """Return a family's differences between the runs `before` and `after`; of generation bias, write bias values."""
    before = both["before"]
    after = both["after"]
    if name == GENERATION_BIAS:  # bias values belong to the package `mitigation`, which `evaluation` may not import
        responses = [compared_responses(side) for side in on_common_prompts(before, after)[:2]]
        store.table("bias_values", lambda: _bias_values(settings.labels, responses[0], responses[1]))
    return FAMILIES[name].compare(store, before, after, getattr(settings, name, None))


def _bias_values(labels: Path | None, before: Answers, after: Answers) -> pd.DataFrame:
    """Return a table of each descriptor's mean bias value before and after tuning.

    The bias directions are computed from the responses of the labelling run. If `labels` is None, they are computed
    from `before`, and the table has no values after tuning.
    """
    if labels is None:
        return mean_bias_values(before.table, before=cross_fitted_bias_values(before.table, before.values))
    config, record = read_run(labels, "label", "labels")
    labelled = read_answers(Path(config["run"]))
    alpha = int(cast(LabelRecord, record)["threshold"]["alpha"])

    def along(responses: Answers) -> np.ndarray:
        return bias_values_along(
            labelled.table, labelled.values, before.table[columns.DESCRIPTOR], responses.values, alpha
        )

    return mean_bias_values(before.table, before=along(before), after=along(after))


def _page(settings: CompareSettings, name: str, both: Mapping[str, FamilyRun]) -> Page:
    """Return a family's page; of generation bias with the method, the control tag, the training and all responses."""
    before = both["before"]
    after = both["after"]
    page = FAMILIES[name].comparison_page(before, after, FamilyRun(settings.output_dir, getattr(settings, name, None)))
    if name != GENERATION_BIAS:
        return page
    model = after.config.model.name
    strength = after.config.model.adapter_strength
    note = tag_note(model)
    notes = list(page.notes)
    if settings.after_without_tag is not None:
        without_tag = FamilyRun(settings.after_without_tag)
        note = tag_note(model, find_headline(without_tag.scores), find_headline(before.scores))
    if note:
        notes.append(note)
    method = read_measurement(settings.after, "after")[0].method or tuning_method(model)
    parts = [page.subtitle, method]
    if strength is not None:
        parts.append(f"strength {strength:g}")
    *first_sections, samples = page.sections
    sections = [training_section(settings.tuning)] if settings.tuning else []
    folder = settings.output_dir.resolve()
    folders = {side: os.path.relpath(getattr(settings, side).resolve(), folder) for side in ("before", "after")}
    return replace(
        page,
        subtitle=", ".join(filter(None, parts)),
        warnings=[*page.warnings, *tuned_on_warnings(after.folder, model, settings.labels, settings.tuning)],
        notes=notes,
        sections=[*first_sections, *sections, samples],
        links=[LINK, *(Link(f"{side} alone", f"{folder}/{REPORT}.html") for side, folder in folders.items())],
    )
