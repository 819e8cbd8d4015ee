"""The command `compare`: score differences between two runs over the same rows, with intervals, and their report."""

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import FACTS, write_facts
from evenhand.evaluation.files import read_json
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyRun, check_declared, compared_models
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.compared_runs import compared_responses, on_common_prompts
from evenhand.evaluation.metrics.generation_bias.decision import MEASURE_MORE
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.revisions import BaseChanged, model_revision
from evenhand.evaluation.report.output import REPORT, present
from evenhand.evaluation.report.page import Link, Page
from evenhand.evaluation.runs.record import FinishedRecord, read_run, run_sha256
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import SCORES, BiasScore, write_scores
from evenhand.mitigation.labels import bias_values_along, cross_fitted_bias_values, mean_bias_values
from evenhand.mitigation.page import (
    labelling_of,
    tag_note,
    training_section,
    tuned_although_marked,
    tuned_on_warnings,
    tuning_method,
)
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.finished_runs import MODEL_CODE, check_same_precision, permitted_measurement, read_measurement
from evenhand.recipes.label import LabelRecord
from evenhand.recipes.measure import LINK, facts_of, log_results, write_responses
from evenhand.recipes.plan import narrower_text
from evenhand.recipes.received import Permissions
from evenhand.recipes.settings import FAMILIES, GENERATION_BIAS, MeasureSettings, family_config

log = logging.getLogger("evenhand")


@dataclass(frozen=True)
class ComparedRuns:
    """A family's part of two measurements, and of their comparison."""

    before: FamilyRun
    after: FamilyRun
    changes: FamilyRun


def compare(settings: CompareSettings, *, show: bool = True) -> None:
    """Write the score differences between `before` and `after` for every common family of metrics, and the report.

    Args:
        show: print the report.

    Raises:
        InputError: the runs have no comparable family in common, or their settings or prompts differ.
    """
    runs, records = _compared_runs(settings)
    with stage("compare", settings, _inputs(settings, runs, records)) as store:
        if store is not None:
            loadable, _ = _compared_runs(settings, Permissions(code=settings.trust_remote_code))
            _check_base(read_measurement(settings.after, "after")[0].model)
            changes = []
            for name, compared in loadable.items():
                found = _differences(store, name, compared, settings.labels)
                check_declared(name, found)
                changes += found
            write_scores(store.folder / SCORES, changes)
            made = _pages(settings, runs)
            facts = facts_of(made)
            write_facts(store.folder / FACTS, facts)
            files = _present(settings, runs, made, write=True, show=show)
            log_results("comparison", store, changes, facts, files)
        elif show:
            report(settings, write=False, show=True)
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


def report(settings: CompareSettings, *, write: bool, show: bool) -> dict[Path, Page]:
    """Write and print the reports of a finished comparison, and write the page of responses; return them by path."""
    runs, _ = _compared_runs(settings)
    return _present(settings, runs, _pages(settings, runs), write=write, show=show)


def _pages(settings: CompareSettings, runs: Mapping[str, ComparedRuns]) -> dict[str, Page]:
    """Return the report of each family in a finished comparison, by the family's name."""
    made = {}
    for name, compared in runs.items():
        made[name] = FAMILIES[name].comparison_page(compared.before, compared.after, compared.changes)
    if GENERATION_BIAS in runs:
        compared = runs[GENERATION_BIAS]
        page = _with_tuning(made[GENERATION_BIAS], compared, settings.labels, settings.tuning)
        made[GENERATION_BIAS] = replace(page, notes=[*page.notes, *_tag_notes(compared, settings.after_without_tag)])
    return made


def _present(
    settings: CompareSettings, runs: Mapping[str, ComparedRuns], made: Mapping[str, Page], *, write: bool, show: bool
) -> dict[Path, Page]:
    """Write and print the pages of a comparison, and write the page of responses; return the pages by path."""
    if write and GENERATION_BIAS in runs:
        compared = runs[GENERATION_BIAS]
        title = compared_models(compared.before, compared.after)
        write_responses(settings.output_dir, title, settings.before, settings.after)
    return present(settings.output_dir, made, write=write, show=show)


def _compared_runs(
    settings: CompareSettings, permissions: Permissions | None = None
) -> tuple[dict[str, ComparedRuns], dict[str, FinishedRecord]]:
    """Return the runs by each family of metrics that both have, by the family's name, and both records by side.

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
    labels = labelling_of(sides["after"].model.name, settings.labels, settings.tuning)
    untuned_by = sides["after"].prompts.untuned_by
    marks_untuned = labels is None or not tuned_although_marked(settings.after, labels, untuned_by)
    runs = {}
    for name in names:
        runs[name] = ComparedRuns(
            before=FamilyRun(settings.before, family_config(sides["before"], name), marks_untuned=marks_untuned),
            after=FamilyRun(settings.after, family_config(sides["after"], name), marks_untuned=marks_untuned),
            changes=FamilyRun(settings.output_dir, getattr(settings, name, None)),
        )
    return runs, records


def _inputs(
    settings: CompareSettings, runs: Mapping[str, ComparedRuns], records: Mapping[str, FinishedRecord]
) -> dict[str, Json]:
    """Return the fingerprints of the runs, of the other folders in the settings, and of the inputs of each family."""
    inputs: dict[str, Json] = {side: run_sha256(record) for side, record in records.items()}
    for name, command in (("labels", "label"), ("tuning", "tune"), ("after_without_tag", "measure")):
        if (folder := getattr(settings, name)) is not None:
            inputs[name] = run_sha256(read_run(folder, command, name)[1])
    for name, compared in runs.items():
        inputs |= FAMILIES[name].comparison_inputs(compared.changes.config)
    return inputs


def _differences(store: Store, name: str, compared: ComparedRuns, labels: Path | None) -> list[BiasScore]:
    """Return a family's differences between the runs `before` and `after`; of generation bias, write bias values."""
    before = compared.before
    after = compared.after
    if name == GENERATION_BIAS:  # bias values belong to the package `mitigation`, which `evaluation` may not import
        responses = [compared_responses(side) for side in on_common_prompts(before, after)[:2]]
        store.table("bias_values", lambda: _bias_values(labels, responses[0], responses[1]))
    compare_runs = FAMILIES[name].compare
    assert compare_runs  # other families are in no comparison
    return compare_runs(store, before, after, compared.changes.config)


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


def _with_tuning(page: Page, compared: ComparedRuns, labels: Path | None, tuning: Path | None) -> Page:
    """Return the page of generation bias with the method, the training, and links to the responses and both runs."""
    after = compared.after
    model = after.config.model.name
    strength = after.config.model.adapter_strength
    method = read_measurement(after.folder, "after")[0].method or tuning_method(model)
    parts = [page.subtitle, method]
    if strength is not None:
        parts.append(f"strength {strength:g}")
    *first_sections, samples = page.sections
    sections = [training_section(tuning)] if tuning else []
    links = [LINK]
    folder = compared.changes.folder.resolve()
    for side, run in (("before", compared.before), ("after", after)):
        links.append(Link(f"{side} alone", f"{os.path.relpath(run.folder.resolve(), folder)}/{REPORT}.html"))
    untuned_by = after.config.prompts.untuned_by
    warnings = tuned_on_warnings(after.folder, model, labels, tuning, untuned_by=untuned_by)
    return replace(
        page,
        subtitle=", ".join(filter(None, parts)),
        warnings=[*page.warnings, *warnings],
        sections=[*first_sections, *sections, samples],
        links=links,
    )


def _tag_notes(compared: ComparedRuns, without_tag: Path | None) -> list[str]:
    """Return what the page says about the tuned model's control tag, if it has one; `without_tag` is a measurement."""
    model = compared.after.config.model.name
    if without_tag is None:
        note = tag_note(model)
    else:
        untagged = find_headline(FamilyRun(without_tag).scores)
        note = tag_note(model, untagged, find_headline(compared.before.scores))
    return [note] if note else []
