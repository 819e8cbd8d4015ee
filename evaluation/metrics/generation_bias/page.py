"""The report on the generation bias of one run, and the report on its change between two runs over the same prompts."""

from collections.abc import Mapping, Sequence

from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.accepted import ACCEPTED_EFFECT
from evenhand.evaluation.metrics.generation_bias.advice import comparison_steps, decide_section, meaning_text, run_steps
from evenhand.evaluation.metrics.generation_bias.answers import read_answers
from evenhand.evaluation.metrics.generation_bias.comparison import with_common_levels
from evenhand.evaluation.metrics.generation_bias.cuts import REQUESTED_EFFECTS
from evenhand.evaluation.metrics.generation_bias.early_stop import comparison_stop_text, stop_text
from evenhand.evaluation.metrics.generation_bias.engine.effects import SHOWN
from evenhand.evaluation.metrics.generation_bias.engine.spread import FGB, find_headline, headline_of
from evenhand.evaluation.metrics.generation_bias.examples import examples_of_run
from evenhand.evaluation.metrics.generation_bias.findings import (
    SHRINKAGE_NOTE,
    people_changes,
    people_section,
    request_language,
    requested_summary,
    requested_text,
    shown_findings,
)
from evenhand.evaluation.metrics.generation_bias.headline import comparison_headline, headline_caption, headline_value
from evenhand.evaluation.metrics.generation_bias.page_warnings import comparison_warnings, run_warnings
from evenhand.evaluation.metrics.generation_bias.parts import Part
from evenhand.evaluation.metrics.generation_bias.parts.effects import EFFECTS, SHIFTS, read_effects, style_summary
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OUTCOME_EFFECTS
from evenhand.evaluation.metrics.generation_bias.people import plain_name
from evenhand.evaluation.metrics.generation_bias.published import differences_section
from evenhand.evaluation.metrics.generation_bias.verdict import (
    bias_verdict,
    comparison_explanations,
    comparison_verdict,
    p_text,
    plain_verdict,
    run_verdict,
)
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.numbers import before_after, sanitize
from evenhand.evaluation.report.page import Page, Section
from evenhand.evaluation.report.score_sections import change_sections, group_label, score_sections
from evenhand.evaluation.score import AXIS, BiasScore, Form, Kind, signature_line

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
# The words that every page explains.
WORDS = (
    ("descriptor", "The words in a prompt that say who the person is, such as “hard-of-hearing”."),
    ("template", "A sentence with a gap for the person, such as “I'm ….”"),
    ("group of people", "Descriptors of one kind, such as “age” (an axis of HolisticBias); “nonce” are made-up words."),
    ("style", "What a classifier says about the tone of an answer; a probability for each of its labels."),
)
INTERVALS = (
    "Brackets contain the 95 % interval: if the model were asked prompts like these again and again, 95 of 100 such "
    "intervals would contain the true value. Averages are over people, each of whom counts equally. Tests exchange "
    "people at random within each prompt template; all answers of a person to a template are moved together. The "
    "tests are adjusted for everything that this page tests: if nobody were treated differently, 5 of 100 such pages "
    "would show anything. A difference over all people is shown if the interval of pooled FGB* is above 0 and this "
    "test has p ≤ 0.05. Where answers to some people vary much more than to others, up to 12 of 100 pages show "
    "something although nobody is treated differently."
)
PERSON_AND_WORD = (
    "The intervals of the parts of person and word are right if many people or words differ a little; if a few differ "
    "much and the others not at all, they are too narrow."
)
LIMITS = [
    "These numbers measure how much the style of a response depends on the descriptor. They do not measure which "
    "differences are harmful, and a difference can be appropriate: sympathy for one hardship need not fit another.",
    "A model that is equally unkind or equally dull to everyone scores 0. Read the responses and the costs.",
    "Errors of the style classifier are errors of these scores. Nothing is known about descriptors, templates and "
    "languages that were not measured.",
    "The report has many intervals. Of twenty comparisons without a change, about one is expected to exclude 0 by "
    "chance. Warnings of rises are corrected for this (Holm), over all style clusters and over all axes.",
]


def page(run: FamilyRun, parts: Sequence[Part]) -> Page:
    """Return the report on one measuring run."""
    scores = run.scores
    measured = read_answers(run.folder)
    headline = headline_of(scores)
    effects = read_effects(run, EFFECTS)
    outcome_effects = read_effects(run, OUTCOME_EFFECTS)
    shifts = run.table(SHIFTS) if run.has(SHIFTS) else None
    language = request_language(run)
    verdict = bias_verdict(headline)
    is_shown = verdict == SHOWN
    in_request_language = run.has(REQUESTED_EFFECTS)
    if in_request_language:
        # The classifier may misread answers in another language: the page names styles of the other answers only.
        style_effects = read_effects(run, REQUESTED_EFFECTS)
        style_verdict = requested_text(style_effects, language)
        summary = requested_summary(effects, style_effects, language)
    else:
        style_effects = effects
        style_verdict = plain_verdict(effects, verdict, shifts)
        summary = style_summary(effects, shifts)
    findings = shown_findings(outcome_effects, style_effects)
    example_of = examples_of_run(run, measured, is_in_request_language=in_request_language)
    sections = [people_section(findings, [summary] if len(effects) else [], example_of, language), decide_section()]
    for part in parts:
        sections += part.sections(run)
    sections += score_sections(_grouped(scores), label=_label)
    sections.append(differences_section(run))
    return Page(
        title="Generation bias of a model",
        subtitle=sanitize(run.model_name, 120),
        headline_value=headline_value(headline),
        headline_caption=f"{headline_caption(headline)} {_decoding(run.config)}",
        verdict=run_verdict(scores, findings, outcome_effects, style_verdict, language),
        explanations=[meaning_text(findings, is_shown)],
        steps=run_steps(run.folder, run.config, findings, is_shown),
        warnings=[*stop_text(run.folder), *run_warnings(run)],
        notes=[*_interval_notes(scores), *_test_notes({"": headline}), *_source_notes(run)],
        private_notes=system_prompt_notes(run),
        sections=_folded_last(sections),
        glossary=[*WORDS, *glossary(map(format_of, scores))],
        limits=LIMITS,
        signature=run.signature(FGB),
        signature_lines=[signature_line(headline)],
    )


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, parts: Sequence[Part]) -> Page:
    """Return the report that shows two measuring runs side by side with the changes between them."""
    before = with_common_levels(before, changes.scores, "before")
    after = with_common_levels(after, changes.scores, "after")
    scores = [before.scores, after.scores, changes.scores]
    old = headline_of(before.scores)
    new = headline_of(after.scores)
    reduction = find_headline(changes.scores, Kind.REDUCTION)
    headline, caption = comparison_headline(old, new, reduction)
    people = people_changes(before, after, changes)
    verdict = comparison_verdict(scores)
    if people.examples:
        verdict = f"{people.examples[0].claim} {SHRINKAGE_NOTE} {verdict}"
    sections = [people, decide_section()]
    for part in parts:
        sections += part.change_sections(before, after, changes)
    sections += change_sections([before.scores, after.scores, _grouped(changes.scores)], label=_label)
    return Page(
        title="Generation bias before and after",
        subtitle=before_after(before.config.model.name, after.config.model.name),
        headline_value=headline,
        headline_caption=f"{caption} {_decoding(before.config)}",
        verdict=verdict,
        explanations=comparison_explanations(scores),
        steps=comparison_steps(before.folder, after.folder),
        warnings=[*comparison_stop_text(before.folder, after.folder), *comparison_warnings(before, after, changes)],
        notes=[
            *_interval_notes(before.scores),
            *_test_notes({"before": old, "after": new, "change": reduction}),
            *_source_notes(before, after),
        ],
        private_notes=system_prompt_notes(before, after),
        sections=_folded_last(sections),
        glossary=[*WORDS, *glossary(map(format_of, before.scores))],
        limits=LIMITS,
        signature={"before": before.signature(FGB), "after": after.signature(FGB)},
        signature_lines=[signature_line(old), signature_line(new)],
        sides=("before", "after"),
    )


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
    if set(score.group) == {AXIS}:
        return plain_name(score.group[AXIS])
    first_group = next(iter(score.group.items()))
    return CHECKS.get(first_group, group_label(score))


def _interval_notes(scores: Sequence[BiasScore]) -> list[str]:
    """Return notes on the intervals of a page with these scores."""
    has_parts = any(score.form == Form.PERSON and score.interval is not None for score in scores)
    return [INTERVALS, PERSON_AND_WORD] if has_parts else [INTERVALS]


def _test_notes(scores: Mapping[str, BiasScore | None]) -> list[str]:
    """Return the p-values of the permutation tests of scores by name, as notes."""
    tests = []
    for name, score in scores.items():
        if score is not None and score.p_value is not None:
            tests.append(f"{name} p {p_text(score.p_value)}".lstrip())
    return (
        [f"Permutation test of no difference in style between people, adjusted: {', '.join(tests)}."] if tests else []
    )


def _source_notes(*runs: FamilyRun) -> list[str]:
    """Return a note on each source of responses that is not a loaded model."""
    models = [run.config.open_model() for run in runs]
    return list(dict.fromkeys(sanitize(model.note, 600) for model in models if model.note))


def system_prompt_notes(*runs: FamilyRun) -> list[str]:
    """Return [a note on the system prompts of the runs], or [] if none has one."""
    prompts = [run.config.open_model().settings.system_prompt for run in runs]
    if not any(prompts):
        return []
    names = dict.fromkeys(f"“{sanitize(prompt, 1000)}”" if prompt else "none" for prompt in prompts)
    return [f"System prompt: {', then '.join(names)}."]


def _decoding(config: FamilyConfig) -> str:
    """Return a sentence on how the responses were decoded; the user states the decoding of a file."""
    if config.open_model().can_be_asked:
        return f"Decoding: {sanitize(config.decoding.title(), 160)}."
    stated = ", ".join(f"{name} {value}" for name, value in config.decoding.arguments.items())
    return f"Decoding as stated by the user: {sanitize(stated, 160)}." if stated else "The decoding is unknown."
