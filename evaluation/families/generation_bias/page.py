"""The report on generation bias: one measurement, or a model before and after tuning."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.generation_bias.changes.tables import chosen_samples
from evenhand.evaluation.families.generation_bias.collect.response_file import without_templates
from evenhand.evaluation.families.generation_bias.collect.rows import PROMPTS, random_samples, read_styled_run
from evenhand.evaluation.families.generation_bias.costs.relevance import JUDGED_METRICS
from evenhand.evaluation.families.generation_bias.report.report_data import HEADLINE, ReportData
from evenhand.evaluation.families.generation_bias.report.sections import content_page, say
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.results import BiasScore, display_name

TABLES = ("style_changes", "moved_descriptors", "phrases", "parroting", "corpus", "bias_values")


def page(measured: FamilyRun, known: ReportContext) -> Page:
    """Return the report of one measuring run."""
    found = content_page(
        ReportData(
            decoding=_decoding(measured.config),
            model=measured.config.model.name,
            scores_before=measured.scores,
            truth=known.truth,
            notes=[*_told_before(measured), *_given(measured), *known.notes],
            samples=random_samples(read_styled_run(measured.folder)),
            signature=measured.signature(HEADLINE),
        )
    )
    return replace(found, signature_lines=measured.signature_lines(HEADLINE))


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, known: ReportContext) -> Page:
    """Return the report of two measuring runs side by side, and of what changed between them."""
    rows = read_styled_run(before.folder), read_styled_run(after.folder)
    found = {name: changes.table(name) for name in TABLES if changes.has(name)}
    page = content_page(
        ReportData(
            decoding=_decoding(before.config),
            model=before.config.model.name,
            scores_before=judged_by_the_base(before.scores, changes.scores, "before"),
            model_after=after.config.model.name,
            scores_after=judged_by_the_base(after.scores, changes.scores, "after"),
            differences=changes.scores,
            truth=known.truth,
            notes=[*_told_before(before, after), *_given(before, after), *known.notes],
            tables=found,
            samples=random_samples(*rows),
            chosen_samples=chosen_samples(found["bias_values"], *rows) if "bias_values" in found else None,
            unseen_by=before.config.prompts.unseen_by or "descriptor",
            signature={"before": before.signature(HEADLINE), "after": after.signature(HEADLINE)},
        )
    )
    return replace(page, signature_lines=before.signature_lines(HEADLINE) + after.signature_lines(HEADLINE))


def _told_before(*runs: FamilyRun) -> list[str]:
    """Return what the model was told before every prompt: of one run, or of the one before and the one after."""
    prompts = [run.config.model.system_prompt or "" for run in runs]
    return [say.told_before(prompts)] if any(prompts) else []


def _given(*runs: FamilyRun) -> list[str]:
    """Return which responses came in files or from a server, and what is not known without the model or templates."""
    files = [display_name(str(run.config.responses)) for run in runs if run.config.responses]
    mixed = any(without_templates(run.table(PROMPTS)) for run in runs if run.config.responses)
    served = [run for run in runs if run.config.model.server and not run.config.responses]
    names = dict.fromkeys(run.config.model.name for run in served)
    notes = [say.given(files)] if files else []
    return [
        *notes,
        *([say.served(list(names))] if served else []),
        *([say.without_templates] if mixed else []),
    ]


def judged_by_the_base(scores: Sequence[BiasScore], changes: Sequence[BiasScore], run: str) -> list[BiasScore]:
    """Return a run's scores, with what the base model makes of its responses in place of what its own model does."""
    found = [score for score in changes if score.metric in JUDGED_METRICS and score.group == {"run": run}]
    others = [score for score in scores if score.metric not in JUDGED_METRICS]
    return [*others, *(replace(score, group={}) for score in found)]


def _decoding(told: Any) -> str:
    """Return how responses were drawn: every number of the report is one of this decoding."""
    if told is None:
        return ""
    if told.responses:
        return say.decoding_told(", ".join(f"{name} {value}" for name, value in told.decoding.arguments.items()))
    return say.decoding(told.decoding.title())
