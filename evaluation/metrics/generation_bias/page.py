"""Reports on generation bias of one measured model, and of a model before and after tuning."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from evenhand.evaluation.data.response_files import UNSPECIFIED
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.changes.tables import chosen_samples
from evenhand.evaluation.metrics.generation_bias.collect.classification import OFFENSIVENESS
from evenhand.evaluation.metrics.generation_bias.costs.relevance import LIKELIHOOD_METRICS
from evenhand.evaluation.metrics.generation_bias.effects.change_section import effect_change_section
from evenhand.evaluation.metrics.generation_bias.effects.changes import EFFECT_CHANGES
from evenhand.evaluation.metrics.generation_bias.effects.examples import EffectExamples
from evenhand.evaluation.metrics.generation_bias.effects.section import MAX_LINKED, lead_sections, plain_verdict
from evenhand.evaluation.metrics.generation_bias.effects.table import OPEN
from evenhand.evaluation.metrics.generation_bias.report.report_data import (
    HEADLINE,
    UNCLEAR,
    ReportData,
    bias_verdict,
)
from evenhand.evaluation.metrics.generation_bias.report.sections import report_page, text
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    PROMPTS,
    RESPONSES,
    random_samples,
    read_styled_responses,
)
from evenhand.evaluation.metrics.offensiveness.metric import THRESHOLD
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.score import LEFT_OUT, TEMPLATE, BiasScore, display_name, find_score

EFFECTS = "effects"
TABLES = ("style_changes", "moved_descriptors", "phrases", "parroting", "corpus", "bias_values")


def page(run: FamilyRun) -> Page:
    """Return the report on one measuring run."""
    report = report_page(
        ReportData(
            decoding=_decoding(run.config),
            model=run.config.model.name,
            scores_before=run.scores,
            notes=[*_system_prompt_notes(run), *_source_notes(run)],
            samples=random_samples(read_styled_responses(run.folder)),
            signature=run.signature(HEADLINE),
        )
    )
    report = replace(report, signature_lines=run.signature_lines(HEADLINE))
    return _with_effects(report, run) if run.has(EFFECTS) and len(run.table(EFFECTS)) else report


def _with_effects(report: Page, run: FamilyRun) -> Page:
    """Return the report with a verdict that names the largest effect, and with sections on effects at its beginning."""
    table, measured = run.table(EFFECTS), read_styled_responses(run.folder)
    try:
        clusters = load_style_clusters(run.config.settings.style_clusters, measured.styles)
    except InputError:  # a file of the user that has moved since the measurement: no examples of clusters
        clusters = {}
    columns = {("style", style): [column] for column, style in enumerate(measured.styles)}
    columns |= {("cluster", name): styles for name, styles in clusters.items()}
    leads = table[table["certainty"] != OPEN].head(MAX_LINKED)
    needed = columns.keys() & set(leads[["outcome", "name"]].itertuples(index=False, name=None))
    offensive = run.table(OFFENSIVENESS)[OFFENSIVENESS] >= THRESHOLD if run.has(OFFENSIVENESS) else None
    chosen = EffectExamples(measured, {name: columns[name] for name in needed}, offensive)
    score = find_score(run.scores, HEADLINE)
    verdict = bias_verdict(score)
    return replace(
        report,
        verdict=plain_verdict(table, verdict),
        warnings=[*([text.tests_disagree(score)] if verdict == UNCLEAR else []), *report.warnings],
        lead=lead_sections(table, run.scores, chosen.examples),
    )


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Page:
    """Return the report that shows two measuring runs side by side with the changes between them."""
    rows = read_styled_responses(before.folder), read_styled_responses(after.folder)
    tables = {name: changes.table(name) for name in TABLES if changes.has(name)}
    report = report_page(
        ReportData(
            decoding=_decoding(before.config),
            model=before.config.model.name,
            scores_before=likelihoods_under_base(before.scores, changes.scores, "before"),
            model_after=after.config.model.name,
            scores_after=likelihoods_under_base(after.scores, changes.scores, "after"),
            differences=changes.scores,
            notes=[*_system_prompt_notes(before, after), *_source_notes(before, after)],
            tables=tables,
            samples=random_samples(*rows),
            chosen_samples=chosen_samples(tables["bias_values"], *rows) if "bias_values" in tables else None,
            unseen_by=before.config.prompts.unseen_by or "descriptor",
            signature={"before": before.signature(HEADLINE), "after": after.signature(HEADLINE)},
        )
    )
    lead = [effect_change_section(changes.table(EFFECT_CHANGES))] if changes.has(EFFECT_CHANGES) else []
    return replace(
        report,
        lead=[section for section in lead if section.has_content],
        signature_lines=before.signature_lines(HEADLINE) + after.signature_lines(HEADLINE),
    )


def _system_prompt_notes(*runs: FamilyRun) -> list[str]:
    """Return the system prompts of the runs as a note, if any run has one."""
    prompts = [run.config.model.system_prompt or "" for run in runs]
    return [text.system_prompts(prompts)] if any(prompts) else []


def _source_notes(*runs: FamilyRun) -> list[str]:
    """Return notes that responses come from files or servers, were left out, or that prompts have no templates."""
    from_files = [run for run in runs if run.config.responses]
    left_out = [run.table(RESPONSES)[LEFT_OUT].dropna().value_counts().to_dict() for run in from_files]
    files = [display_name(str(run.config.responses)) for run in from_files]
    without_templates = any((run.table(PROMPTS)[TEMPLATE] == UNSPECIFIED).all() for run in from_files)
    served = [run for run in runs if run.config.model.server and not run.config.responses]
    names = dict.fromkeys(run.config.model.name for run in served)
    return [
        *([text.response_files(files)] if files else []),
        *(text.left_out(reasons) for reasons in left_out if reasons),
        *([text.served(list(names))] if served else []),
        *([text.without_templates] if without_templates else []),
    ]


def likelihoods_under_base(scores: Sequence[BiasScore], changes: Sequence[BiasScore], run: str) -> list[BiasScore]:
    """Return a run's scores, with its likelihood scores replaced by the scores under the base model in `changes`.

    `run`, "before" or "after", is the group of these scores in `changes`.
    """
    under_base = [score for score in changes if score.metric in LIKELIHOOD_METRICS and score.group == {"run": run}]
    other_scores = [score for score in scores if score.metric not in LIKELIHOOD_METRICS]
    return [*other_scores, *(replace(score, group={}) for score in under_base)]


def _decoding(config: Any) -> str:
    """Return a description of how the responses were decoded."""
    if config is None:
        return ""
    if config.responses:
        arguments = (f"{name} {value}" for name, value in config.decoding.arguments.items())
        return text.unverified_decoding(", ".join(arguments))
    return text.decoding(config.decoding.title())
