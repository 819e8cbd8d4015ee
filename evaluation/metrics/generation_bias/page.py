"""The report on the generation bias of one run, and the report on its change between two runs over the same prompts."""

from collections.abc import Mapping, Sequence

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.facts import Facts, Finding
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun, compared_models
from evenhand.evaluation.metrics.generation_bias.accepted import ACCEPTED_EFFECT
from evenhand.evaluation.metrics.generation_bias.advice import (
    comparison_steps,
    decide_section,
    fall_step,
    is_log,
    meaning,
    run_steps,
)
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.comparison import with_common_levels
from evenhand.evaluation.metrics.generation_bias.decision import FELL, MEASURE_MORE, ROSE, decision, found_costs
from evenhand.evaluation.metrics.generation_bias.engine.effects import REQUESTED_EFFECTS, SHOWN
from evenhand.evaluation.metrics.generation_bias.engine.spread import FGB, find_headline, headline_of
from evenhand.evaluation.metrics.generation_bias.examples import examples_of_run
from evenhand.evaluation.metrics.generation_bias.findings import (
    changes_section,
    is_serious_fall,
    is_serious_rise,
    overall_rises,
    people_changes,
    people_section,
    person_finding,
    request_language,
    requested_summary,
    shown_findings,
    style_finding,
)
from evenhand.evaluation.metrics.generation_bias.first_tables import IN_TABLE, comparison_table, measurement_table
from evenhand.evaluation.metrics.generation_bias.headline import headline_value, size_change, size_finding
from evenhand.evaluation.metrics.generation_bias.page_warnings import (
    answers_left_out,
    are_cut,
    comparison_cautions,
    repeats_left_out,
    run_cautions,
)
from evenhand.evaluation.metrics.generation_bias.parts import Part
from evenhand.evaluation.metrics.generation_bias.parts.all_answers import of_all_answers
from evenhand.evaluation.metrics.generation_bias.parts.attributes import shown_attributes
from evenhand.evaluation.metrics.generation_bias.parts.effects import (
    EFFECT_CHANGES,
    EFFECTS,
    SHIFTS,
    read_effects,
    style_summary,
)
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OUTCOME_EFFECTS
from evenhand.evaluation.metrics.generation_bias.people import EffectRow, plain_name
from evenhand.evaluation.metrics.generation_bias.pilot import can_plan
from evenhand.evaluation.metrics.generation_bias.published import differences_section
from evenhand.evaluation.metrics.generation_bias.requested_language import style_group
from evenhand.evaluation.metrics.generation_bias.settings import ComparisonSettings
from evenhand.evaluation.metrics.generation_bias.verdict import (
    NO_STYLES,
    StyleScores,
    bias_verdict,
    comparison_explanations,
    comparison_verdict,
    difference_limit,
    run_verdict,
)
from evenhand.evaluation.metrics.generation_bias.words import FILES, advice_text, caution_text, note, words
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Example, Page, Section
from evenhand.evaluation.report.score_sections import change_sections, group_label, score_sections
from evenhand.evaluation.report.words import listed
from evenhand.evaluation.score import BiasScore, Form, Kind, comparable_levels, signature_line

# The metrics with the least noise. Among the tables of groups, such as axes, their tables come first.
FIRST_METRICS = (
    (FGB, Form.POOLED_CORRECTED),
    ("scgb", Form.POOLED_CORRECTED),
    ("pgb", Form.POOLED_CORRECTED),
    (FGB, Form.CORRECTED),
)
# Labels of scores that check the main one, by their first group: on a part of the people, or by another classifier.
CHECKS = {
    ("tuned", "yes"): "people used in tuning",
    ("tuned", "no"): "people never tuned on",
    ("classifier", "second"): "second classifier",
}
GROUPS_OF_PARTS = {"run", "source", "responses", "value", "outcome", "language"}  # whose scores parts show themselves
# The words that every page explains, by the kinds of their sentences; and what the numbers do not show.
WORDS = {
    "descriptor": "word_descriptor",
    "template": "word_template",
    "group of people": "word_group",
    "style": "word_style",
}


def run_facts(run: FamilyRun) -> Facts:
    """Return what was found in one measuring run."""
    return _run_findings(run)[0]


def _run_findings(run: FamilyRun) -> tuple[Facts, list[EffectRow]]:
    """Return what was found in one measuring run, and the rows of the effects that the facts name."""
    scores = run.scores
    group = style_group(scores)
    style_score = find_headline(scores, Kind.LEVEL, group)
    assert style_score  # every run has one
    has_styles = read_answers(run.folder, only=run.only).has_value().any()
    style_verdict = bias_verdict(style_score) if has_styles else NO_STYLES
    outcome_effects = read_effects(run, OUTCOME_EFFECTS)
    language = request_language(run)
    style, style_effects = _style(run, style_verdict, language)
    named = shown_findings(outcome_effects, style_effects)
    cautions = run_cautions(run)
    verdict = run_verdict(scores, named, outcome_effects, style, language, are_cut=are_cut(cautions))
    attributes = shown_attributes(run)
    explanation = meaning(
        named,
        is_shown=style_verdict == SHOWN or any(found.values["of_style"] for found in attributes),
        differs_otherwise=bool(verdict.values["outcomes"]) or any(found.values["of_others"] for found in attributes),
        is_log=is_log(run),
    )
    bound = difference_limit(scores, group)
    limits = [] if bound is None else [Finding("limit_of_style", {"bound": bound})]
    facts = Facts(
        headline=headline_of(scores),
        size=size_finding(style_score, is_shown=style_verdict == SHOWN, in_language=bool(group), language=language),
        verdict=verdict,
        people=[person_finding(row, language) for row in named],
        explanations=[*attributes, *limits, explanation],
        cautions=cautions,
        left_out=[*answers_left_out(run), *repeats_left_out(run)],
        notes=[
            *interval_notes(scores),
            *p_value_notes({"": style_score}),
            *source_notes(run),
            *more_answers_notes(run),
        ],
    )
    return facts, named


def _style(run: FamilyRun, overall: str, language: str | None) -> tuple[Finding, pd.DataFrame]:
    """Return what is shown of styles, and the effects on styles of which pages name the largest.

    If somebody is shown to get another language, both are of the answers in the language of the requests.
    """
    if run.has(REQUESTED_EFFECTS):
        effects = read_effects(run, REQUESTED_EFFECTS)
        return style_finding(effects, overall, in_language=True, language=language), effects
    effects = read_effects(run, EFFECTS)
    return style_finding(effects, overall, run.table(SHIFTS) if run.has(SHIFTS) else None), effects


def _summaries(run: FamilyRun) -> list[Finding]:
    """Return how many effects on styles are shown; [] if none was tested."""
    effects = read_effects(run, EFFECTS)
    if not len(effects):
        return []
    if run.has(REQUESTED_EFFECTS):
        return [requested_summary(effects, read_effects(run, REQUESTED_EFFECTS), request_language(run))]
    return [style_summary(effects, run.table(SHIFTS) if run.has(SHIFTS) else None)]


def page(run: FamilyRun, parts: Sequence[Part]) -> Page:
    """Return the report on one measuring run."""
    scores = run.scores
    facts, named = _run_findings(run)
    assert facts.size  # a run always has one
    headline = headline_of(scores)
    advice = Finding("run_advice", facts.explanations[-1].values)  # by what the result may mean
    measured = read_answers(run.folder)
    example_of = examples_of_run(run, measured, is_in_request_language=run.has(REQUESTED_EFFECTS))
    people = people_section(facts.people, list(map(example_of, named)), _summaries(run), shown_attributes(run))
    sections = [people, decide_section()]
    for part in parts:
        sections += part.sections(run)
    sections += of_all_answers(score_sections(_grouped(scores), label=_label), scores)
    sections.append(differences_section(run))
    return Page(
        title="Generation bias of a model",
        subtitle=sanitize(run.model_name, 120),
        headline_value=headline_value(facts.size),
        headline_caption=" ".join(map(words, [facts.size, answer_count(measured), _decoding(run.config)])),
        verdict=" ".join(filter(None, [words(advice), words(facts.verdict)])),
        first_table=measurement_table(facts, are_cut=are_cut(facts.cautions)),
        explanations=[words(found) for found in facts.explanations if found.kind not in IN_TABLE],
        steps=run_steps(run, named, is_shown=facts.size.values["is_shown"]),
        warnings=list(map(caution_text, facts.cautions)),
        notes=list(map(words, facts.notes)),
        private_notes=[words(found) for found in system_prompt_notes(run)],
        sections=_folded_last(sections),
        glossary=_glossary(scores),
        limits=listed("limits", *FILES),
        signature=run.signature(FGB),
        signature_lines=[signature_line(headline)],
        facts=facts,
    )


def change_facts(before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Facts:
    """Return what a comparison of two measuring runs found; levels are of the answers that both have."""
    before = with_common_levels(before, changes.scores, "before")
    after = with_common_levels(after, changes.scores, "after")
    return _change_findings(before, after, changes)[0]


def _change_findings(
    before: FamilyRun, after: FamilyRun, changes: FamilyRun
) -> tuple[Facts, list[tuple[Finding, Example]]]:
    """Return what a comparison found, and the people whom the facts name with their answers."""
    old = comparable_levels(before.scores, changes.scores, "before")
    new = comparable_levels(after.scores, changes.scores, "after")
    limits = _limits(changes)
    group = style_group(changes.scores, Kind.DIFFERENCE)
    style = _style_scores(old, new, changes.scores, group)
    language = request_language(before) or request_language(after)
    are_tested = len(read_effects(changes, EFFECT_CHANGES)) > 0
    verdict = comparison_verdict(
        style, changes.scores, are_tested=are_tested, in_language=bool(group), language=language
    )
    direction = verdict.values.get("direction", "")
    assert style.before and style.after  # every run has one
    size = size_change(
        style.before,
        style.after,
        style.reduction,
        is_shown=direction in (ROSE, FELL),
        in_language=bool(group),
        language=language,
    )
    named = people_changes(before, after, changes)
    people = [found for found, _ in named]
    serious_rises = list(filter(is_serious_rise, people))
    costs = found_costs(changes.scores, limits.max_cost)
    facts = Facts(
        headline=find_headline(changes.scores, Kind.DIFFERENCE),
        size=size,
        verdict=verdict,
        people=people,
        explanations=comparison_explanations([old, new, changes.scores], group),
        cautions=comparison_cautions(before, after, changes),
        costs=costs,
        notes=[
            _decoding(before.config),
            *interval_notes(before.scores),
            *p_value_notes({"before": style.before, "after": style.after, "change": style.reduction}),
            *source_notes(before, after),
        ],
        decision=decision(
            direction=direction,
            left=size.values["after"].interval,
            costs=costs,
            serious_rises=serious_rises,
            max_size=limits.max_size,
            max_cost=limits.max_cost,
            has_serious_fall=any(map(is_serious_fall, people)),
            overall_rises=overall_rises(changes.scores, serious_rises, language),
            in_language=bool(group),
            language=language,
        ),
    )
    return facts, named


def _style_scores(
    old: Sequence[BiasScore], new: Sequence[BiasScore], changes: Sequence[BiasScore], group: Mapping[str, str]
) -> StyleScores:
    return StyleScores(
        before=find_headline(old, Kind.LEVEL, group),
        after=find_headline(new, Kind.LEVEL, group),
        difference=find_headline(changes, Kind.DIFFERENCE, group),
        reduction=find_headline(changes, Kind.REDUCTION, group),
    )


def _limits(changes: FamilyRun) -> ComparisonSettings:
    """Return the settings of a comparison; the defaults if its run has none."""
    return changes.config or ComparisonSettings.model_validate({})


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, parts: Sequence[Part]) -> Page:
    """Return the report that shows two measuring runs side by side with the changes between them."""
    before = with_common_levels(before, changes.scores, "before")
    after = with_common_levels(after, changes.scores, "after")
    old = headline_of(before.scores)
    new = headline_of(after.scores)
    facts, named = _change_findings(before, after, changes)
    assert facts.decision and facts.size  # a comparison always advises, and has a size
    limits = _limits(changes)
    answers = {name: facts.size.values[name] for name in ("in_language", "language")}
    sections = [changes_section(named, read_effects(changes, EFFECT_CHANGES), **answers), decide_section()]
    for part in parts:
        sections += part.change_sections(before, after, changes)
    levels = [
        comparable_levels(run.scores, changes.scores, side) for side, run in (("before", before), ("after", after))
    ]
    by_group = change_sections([*levels, _grouped(changes.scores)], label=_label)
    sections += of_all_answers(by_group, changes.scores, Kind.DIFFERENCE)
    return Page(
        title="Generation bias before and after",
        subtitle=compared_models(before, after),
        headline_value=headline_value(facts.size),
        headline_caption=words(facts.size),
        verdict=" ".join(filter(None, [advice_text(facts.decision, facts.people), words(facts.verdict)])),
        first_table=comparison_table(facts, are_cut=are_cut(facts.cautions)),
        explanations=[words(found) for found in facts.explanations if found.kind not in IN_TABLE],
        steps=comparison_steps(
            before.folder,
            after.folder,
            facts.decision,
            has_costs=limits.relevance,
            can_score_more=not limits.score_all and any(cost.score and cost.score.n < old.n for cost in facts.costs),
            is_pilot=can_plan(before.folder),
            show_fall=fall_step(before, facts.people) if facts.decision.values["advice"] == MEASURE_MORE else None,
        ),
        warnings=list(map(caution_text, facts.cautions)),
        notes=list(map(words, facts.notes)),
        private_notes=[words(found) for found in system_prompt_notes(before, after)],
        sections=_folded_last(sections),
        glossary=_glossary(before.scores),
        limits=listed("limits", *FILES),
        signature={"before": before.signature(FGB), "after": after.signature(FGB)},
        signature_lines=[signature_line(old), signature_line(new)],
        sides=("before", "after"),
        facts=facts,
    )


def _glossary(scores: Sequence[BiasScore]) -> list[tuple[str, str]]:
    """Return the words that a page with these scores explains, each with its explanation."""
    return [*((word, note(kind)) for word, kind in WORDS.items()), *glossary(map(format_of, scores))]


def _folded_last(sections: Sequence[Section]) -> list[Section]:
    """Return the sections in their order, but the folded ones after the others."""
    return sorted(sections, key=lambda section: section.folded)


def _grouped(scores: Sequence[BiasScore]) -> list[BiasScore]:
    """Return the scores of groups that no part shows in its sections, the metrics with least noise first."""
    grouped = [score for score in scores if score.group and not _is_shown_by_a_part(score)]
    order = {metric: n for n, metric in enumerate(FIRST_METRICS)}
    return sorted(grouped, key=lambda score: order.get((score.metric, score.form), len(order)))


def _is_shown_by_a_part(score: BiasScore) -> bool:
    """Return whether a score of a group stands in a section of a part of the family."""
    if score.metric == "effect" or (score.metric == ACCEPTED_EFFECT and score.kind == Kind.DIFFERENCE):
        return True
    return not GROUPS_OF_PARTS.isdisjoint(score.group)


def _label(score: BiasScore) -> str:
    """Return the label of a score of a group: an axis, a check, or another group."""
    if set(score.group) == {columns.AXIS}:
        return plain_name(score.group[columns.AXIS])
    first_group = next(iter(score.group.items()))
    return CHECKS.get(first_group, group_label(score))


def interval_notes(scores: Sequence[BiasScore]) -> list[Finding]:
    """Return notes on the intervals of a page with these scores."""
    has_parts = any(score.form == Form.PERSON and score.interval is not None for score in scores)
    found = [Finding("intervals")]
    if has_parts:
        found.append(Finding("intervals_of_parts"))
    return found


def p_value_notes(scores: Mapping[str, BiasScore | None]) -> list[Finding]:
    """Return the p-values of the permutation tests of scores by the side that they are of, as [a finding] or []."""
    tests = []
    for side, score in scores.items():
        if score is not None and score.p_value is not None:
            tests.append({"side": side, "p": score.p_value})
    return [Finding("p_values", {"tests": tests})] if tests else []


def source_notes(*runs: FamilyRun) -> list[Finding]:
    """Return a note on each source of responses that is not a loaded model."""
    models = [run.config.open_model() for run in runs]
    return [Finding("source", {"text": text}) for text in dict.fromkeys(model.note for model in models if model.note)]


def more_answers_notes(run: FamilyRun) -> list[Finding]:
    """Return [who got more answers than the others, and how many], or [] if nobody did."""
    prompts = run.config.prompts
    if not prompts.more_answers:
        return []
    people = [{"person": person, "n": n} for person, n in prompts.more_answers.items()]
    return [Finding("more_answers", {"people": people, "n_of_others": prompts.answers_per_cell})]


def system_prompt_notes(*runs: FamilyRun) -> list[Finding]:
    """Return [the system prompts of the runs], or [] if none has one."""
    prompts = [run.config.open_model().settings.system_prompt for run in runs]
    return [Finding("system_prompts", {"prompts": list(dict.fromkeys(prompts))})] if any(prompts) else []


def answer_count(measured: Answers) -> Finding:
    """Return how many answers to how many kinds of people a run has."""
    n_people = int(measured.table[columns.DESCRIPTOR].nunique())
    return Finding("answer_count", {"n": len(measured), "n_people": n_people})


def _decoding(config: FamilyConfig) -> Finding:
    """Return how the responses were decoded; the user states the decoding of a file."""
    if config.open_model().can_be_asked:
        return Finding("decoding", {"title": config.decoding.title()})
    return Finding("stated_decoding", {"arguments": dict(config.decoding.arguments)})
