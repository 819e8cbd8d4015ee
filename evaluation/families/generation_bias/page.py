"""The report on generation bias: one measurement, or a model before and after tuning."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.generation_bias.changes.tables import chosen_samples
from evenhand.evaluation.families.generation_bias.collect.response_file import has_no_templates
from evenhand.evaluation.families.generation_bias.collect.rows import PROMPTS, random_samples, read_styled_run
from evenhand.evaluation.families.generation_bias.costs.relevance import LIKELIHOOD_METRICS
from evenhand.evaluation.families.generation_bias.effects.section import effects_section
from evenhand.evaluation.families.generation_bias.report.report_data import HEADLINE, ReportData
from evenhand.evaluation.families.generation_bias.report.sections import content_page, say
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.results import BiasScore, display_name

TABLES = ("style_changes", "moved_descriptors", "phrases", "parroting", "corpus", "bias_values")


def page(measured: FamilyRun, known: ReportContext) -> Page:
    """Return the report of one measuring run."""
    content = content_page(
        ReportData(
            decoding=_decoding(measured.config),
            model=measured.config.model.name,
            scores_before=measured.scores,
            truth=known.truth,
            notes=[*_system_prompt_notes(measured), *_source_notes(measured), *known.notes],
            samples=random_samples(read_styled_run(measured.folder)),
            signature=measured.signature(HEADLINE),
        )
    )
    sections = [effects_section(measured.table("effects")), *content.sections] if measured.has("effects") else None
    return replace(content, sections=sections or content.sections, signature_lines=measured.signature_lines(HEADLINE))


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, known: ReportContext) -> Page:
    """Return the report of two measuring runs side by side, and of what changed between them."""
    rows = read_styled_run(before.folder), read_styled_run(after.folder)
    tables = {name: changes.table(name) for name in TABLES if changes.has(name)}
    page = content_page(
        ReportData(
            decoding=_decoding(before.config),
            model=before.config.model.name,
            scores_before=likelihoods_under_base(before.scores, changes.scores, "before"),
            model_after=after.config.model.name,
            scores_after=likelihoods_under_base(after.scores, changes.scores, "after"),
            differences=changes.scores,
            truth=known.truth,
            notes=[*_system_prompt_notes(before, after), *_source_notes(before, after), *known.notes],
            tables=tables,
            samples=random_samples(*rows),
            chosen_samples=chosen_samples(tables["bias_values"], *rows) if "bias_values" in tables else None,
            unseen_by=before.config.prompts.unseen_by or "descriptor",
            signature={"before": before.signature(HEADLINE), "after": after.signature(HEADLINE)},
        )
    )
    return replace(page, signature_lines=before.signature_lines(HEADLINE) + after.signature_lines(HEADLINE))


def _system_prompt_notes(*runs: FamilyRun) -> list[str]:
    """Return the system prompts of the runs as a note, if any run has one."""
    prompts = [run.config.model.system_prompt or "" for run in runs]
    return [say.system_prompts(prompts)] if any(prompts) else []


def _source_notes(*runs: FamilyRun) -> list[str]:
    """Return notes on responses from files or servers, and on what is unknown without the model or templates."""
    files = [display_name(str(run.config.responses)) for run in runs if run.config.responses]
    mixed = any(has_no_templates(run.table(PROMPTS)) for run in runs if run.config.responses)
    served = [run for run in runs if run.config.model.server and not run.config.responses]
    names = dict.fromkeys(run.config.model.name for run in served)
    notes = [say.response_files(files)] if files else []
    return [
        *notes,
        *([say.served(list(names))] if served else []),
        *([say.without_templates] if mixed else []),
    ]


def likelihoods_under_base(scores: Sequence[BiasScore], changes: Sequence[BiasScore], run: str) -> list[BiasScore]:
    """Return a run's scores, with its likelihood metrics under the base model in place of those under its own model."""
    under_base = [score for score in changes if score.metric in LIKELIHOOD_METRICS and score.group == {"run": run}]
    other_scores = [score for score in scores if score.metric not in LIKELIHOOD_METRICS]
    return [*other_scores, *(replace(score, group={}) for score in under_base)]


def _decoding(config: Any) -> str:
    """Return how the responses were decoded, which every number of the report depends on."""
    if config is None:
        return ""
    if config.responses:
        arguments = (f"{name} {value}" for name, value in config.decoding.arguments.items())
        return say.unverified_decoding(", ".join(arguments))
    return say.decoding(config.decoding.title())
