"""The report on the generation bias of one run, and the report on its change between two runs over the same prompts."""

import math
from collections.abc import Mapping, Sequence

from evenhand.evaluation.metrics import FamilyRun, MeasureConfig
from evenhand.evaluation.metrics.generation_bias.accepted import ACCEPTED_EFFECT
from evenhand.evaluation.metrics.generation_bias.advice import (
    SCALE,
    comparison_steps,
    decide_section,
    meaning_text,
    run_steps,
    size_word,
)
from evenhand.evaluation.metrics.generation_bias.answers import answers_of, changed_answers_of
from evenhand.evaluation.metrics.generation_bias.cuts import REQUESTED_EFFECTS, requested_summary, requested_text
from evenhand.evaluation.metrics.generation_bias.findings import (
    SHRINKAGE_NOTE,
    changed_outcomes,
    changed_styles,
    changes_section,
    people_section,
    request_language,
    shown_findings,
)
from evenhand.evaluation.metrics.generation_bias.page_warnings import (
    cut_text,
    response_warnings,
    template_warnings,
    unread_warnings,
    warnings,
)
from evenhand.evaluation.metrics.generation_bias.parts import Part
from evenhand.evaluation.metrics.generation_bias.parts.effects import (
    EFFECT_CHANGES,
    EFFECTS,
    SHIFTS,
    read_effects,
    style_summary,
)
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OTHER_LANGUAGE, OUTCOME_EFFECTS
from evenhand.evaluation.metrics.generation_bias.parts.spread import FGB, find_headline, root
from evenhand.evaluation.metrics.generation_bias.people import plain_name
from evenhand.evaluation.metrics.generation_bias.published import differences_section
from evenhand.evaluation.metrics.generation_bias.settings import measured_model
from evenhand.evaluation.metrics.generation_bias.stops import comparison_stop_text, stop_text
from evenhand.evaluation.metrics.generation_bias.styled_responses import PROMPTS, RESPONSES, read_styled_responses
from evenhand.evaluation.metrics.generation_bias.verdict import (
    SHOWN,
    accepted_text,
    bias_verdict,
    comparison_verdict,
    cost_text,
    even_change_text,
    headline_scores,
    moved_reduction,
    moved_text,
    p_text,
    percent_span,
    plain_verdict,
    run_verdict,
    unclear_reason,
)
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.numbers import (
    NO_NUMBER,
    before_after,
    percent,
    sanitize,
    span,
    undefined,
)
from evenhand.evaluation.report.page import Page, Section
from evenhand.evaluation.report.score_sections import (
    change_sections,
    group_label,
    score_sections,
)
from evenhand.evaluation.score import AXIS, BiasScore, Form, Kind, signature_line

FIRST_METRICS = (  # of each group's tables
    (FGB, Form.POOLED_CORRECTED),
    ("scgb", Form.POOLED_CORRECTED),
    ("pgb", Form.POOLED_CORRECTED),
    (FGB, Form.CORRECTED),
)
CHECKS = {
    ("tuned", "yes"): "people used in tuning",
    ("tuned", "no"): "people never tuned on",
    ("classifier", "second"): "second classifier",
}
WORDS = (
    ("descriptor", "The words in a prompt that say who the person is, such as “hard-of-hearing”."),
    ("template", "A sentence with a gap for the person, such as “I'm ….”"),
    ("group of people", "Descriptors of one kind, such as “age” (an axis of HolisticBias); “nonce” are made-up words."),
    ("style", "What a classifier says about the tone of an answer; a probability for each of its labels."),
)
INTERVALS = (
    "Brackets contain the 95 % interval: if people were asked prompts like these again and again, 95 of 100 such "
    "intervals would contain the true value. Tests exchange people within each prompt template, all answers of a "
    "person to a template together, and are adjusted for everything that this page calls shown: if nobody were treated "
    "differently, 5 of 100 such pages would show anything. A difference over all people is shown if the interval of "
    "pooled FGB* is above 0 and this test has p ≤ 0.05. Where answers to some people vary much more than to others, up "
    "to 12 of 100 even pages show something. The intervals of person and word hold if many people or words differ a "
    "little; if a few differ much and the others not at all, they are too narrow."
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
    measured = read_styled_responses(run.folder)
    headline = find_headline(scores)
    effects = read_effects(run, EFFECTS)
    outcome_effects = read_effects(run, OUTCOME_EFFECTS)
    shifts = run.table(SHIFTS) if run.has(SHIFTS) else None
    language = request_language(scores)
    verdict = bias_verdict(headline)
    style = plain_verdict(effects, verdict, shifts)
    style_effects = effects
    summary = style_summary(effects, shifts)
    if run.has(REQUESTED_EFFECTS):
        # The classifier may misread answers in another language: the page names styles of the other answers only.
        style_effects = read_effects(run, REQUESTED_EFFECTS)
        style = requested_text(style_effects, language)
        summary = requested_summary(effects, style_effects, language)
    findings = shown_findings(outcome_effects, style_effects)
    example_of = answers_of(run, measured, is_in_request_language=run.has(REQUESTED_EFFECTS))
    is_shown = verdict == SHOWN
    sections = [people_section(findings, [summary] if len(effects) else [], example_of, language), decide_section()]
    for part in parts:
        sections += part.sections(run)
    sections += score_sections(_grouped(scores), label=_label)
    sections.append(differences_section(run))
    return Page(
        title="Generation bias of a model",
        subtitle=sanitize(run.model_name, 120),
        headline_value=_moved_value(headline),
        headline_caption=f"{_caption(headline)} {_decoding(run.config)}",
        verdict=run_verdict(scores, findings, outcome_effects, style, language),
        explanations=[meaning_text(findings, is_shown)],
        steps=run_steps(run.folder, run.config, findings, is_shown),
        warnings=[*stop_text(run.folder), *run_warnings(run)],
        notes=[INTERVALS, *_test_notes({"in one run": headline}), *_source_notes(run)],
        sections=_folded_last(sections),
        glossary=[*WORDS, *glossary(map(format_of, scores))],
        limits=LIMITS,
        signature=run.signature(FGB),
        signature_lines=[signature_line(headline)],
    )


def run_warnings(run: FamilyRun) -> list[str]:
    """Return the warnings of the report on one measuring run, one sentence each."""
    texts = []
    unclear = unclear_reason(find_headline(run.scores))
    if unclear:
        texts.append(f"The verdict is unclear: {unclear}.")
    texts += [*unread_warnings(run), *warnings([run.scores])]
    return [*texts, *template_warnings(run), *cut_text(run.table(RESPONSES)), *_response_warnings(run)]


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, parts: Sequence[Part]) -> Page:
    """Return the report that shows two measuring runs side by side with the changes between them."""
    runs = [before.scores, after.scores, changes.scores]
    old, new, _, reduction = headline_scores(runs)
    headline = _moved_value(new)
    caption = _caption(new, " in the second run")
    if reduction is not None and reduction.interval is not None:
        moved = moved_reduction(reduction)
        headline = percent(-moved.value, 0, True)
        caption = (
            f"of what differed in style with the person, 95 % interval {percent_span(moved, -1)}. The size before: "
            f"{_size_of(old)}; after: {_size_of(new)} ({SCALE})."
        )
    people_changes = _people_changes(before, after, changes)
    people = [example.claim for example in people_changes.examples]
    first = [people[0], SHRINKAGE_NOTE] if people else []
    explanations = [even_change_text(runs), cost_text(changes.scores), accepted_text(runs)]
    cut = cut_text(before.table(RESPONSES), after.table(RESPONSES))
    looked_at = comparison_stop_text(before.folder, after.folder)
    response_warnings = [warning for run in (before, after) for warning in _response_warnings(run)]
    sections = [people_changes, decide_section()]
    for part in parts:
        sections += part.change_sections(before, after, changes)
    sections += change_sections([*runs[:2], _grouped(changes.scores)], label=_label)
    return Page(
        title="Generation bias before and after",
        subtitle=before_after(before.config.model.name, after.config.model.name),
        headline_value=headline,
        headline_caption=f"{caption} {_decoding(before.config)}",
        verdict=" ".join([*first, comparison_verdict(runs)]),
        explanations=[text for text in explanations if text],
        steps=comparison_steps(before.folder, after.folder),
        warnings=[*looked_at, *warnings(runs), *cut, *dict.fromkeys(response_warnings)],
        notes=[
            INTERVALS,
            *_test_notes({"before": old, "after": new, "reduction": reduction}),
            *_source_notes(before, after),
        ],
        sections=_folded_last(sections),
        glossary=[*WORDS, *glossary(map(format_of, runs[0]))],
        limits=LIMITS,
        signature={"before": before.signature(FGB), "after": after.signature(FGB)},
        signature_lines=[signature_line(old), signature_line(new)],
        sides=("before", "after"),
    )


def _folded_last(sections: Sequence[Section]) -> list[Section]:
    """Return the sections in their order, but folded ones at the end."""
    return sorted(sections, key=lambda section: section.folded)


def _people_changes(before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Section:
    """Return the section that names people before and after, each with an answer of both models to one prompt."""
    outcomes = changed_outcomes(read_effects(before, OUTCOME_EFFECTS), read_effects(after, OUTCOME_EFFECTS))
    in_another_language = {row["unit"] for row, _ in outcomes if row["outcome"] == OTHER_LANGUAGE}
    table = read_effects(changes, EFFECT_CHANGES)
    styles = changed_styles(table, in_another_language) if len(table) else []
    example_of = changed_answers_of(before, after)
    return changes_section(outcomes, styles, table, example_of, request_language(before.scores))


def _grouped(scores: Sequence[BiasScore]) -> list[BiasScore]:
    """Return the scores of groups, without those that the page shows elsewhere, the metrics with least noise first."""
    elsewhere = {"run", "source", "responses", "value", "outcome", "language"}
    grouped = []
    for score in scores:
        is_accepted_change = score.metric == ACCEPTED_EFFECT and score.kind == Kind.DIFFERENCE
        is_elsewhere = score.metric == "effect" or is_accepted_change or elsewhere & set(score.group)
        if score.group and not is_elsewhere:
            grouped.append(score)
    order = {metric: n for n, metric in enumerate(FIRST_METRICS)}
    return sorted(grouped, key=lambda score: order.get((score.metric, score.form), len(order)))


def _label(score: BiasScore) -> str:
    """Return the label of a score of a group."""
    if set(score.group) == {AXIS}:
        return plain_name(score.group[AXIS])
    return CHECKS.get(next(iter(score.group.items())), group_label(score))


def _moved_value(score: BiasScore) -> str:
    """Return "3.7 of 100", the share of responses that would have to change style (`scale_scores`), or a dash."""
    return NO_NUMBER if math.isnan(score.value) else f"{moved_text(score.value)} of 100"


def _caption(score: BiasScore, when: str = "") -> str:
    """Return what the number at the top is, with its size in words and its interval."""
    if math.isnan(score.value):
        return f"The size of the difference in style{when} is {undefined(score)}."
    _, ends = root(score.value, score.interval, 2.0)
    bounds = f" (95 % interval {span(ends, 1, False, 100)})" if ends else ""
    return (
        f"{_size_of(score)}: style differs between people as if so many answers had been moved to another "
        f"style{when}{bounds}; {SCALE}."
    )


def _size_of(score: BiasScore) -> str:
    """Return the size of a bias in words; a bias whose interval contains 0 may be none."""
    moved, ends = root(score.value, score.interval, 2.0)
    may_be_none = ends is not None and ends[0] == 0
    return f"{size_word(moved)}, perhaps none" if may_be_none else size_word(moved)


def _test_notes(scores: Mapping[str, BiasScore | None]) -> list[str]:
    """Return the p-values of the permutation tests of scores by name, as notes."""
    tests = []
    for name, score in scores.items():
        if score is not None and score.p_value is not None:
            tests.append(f"{name}, p {p_text(score.p_value)}")
    return [f"Test by permutations that people do not differ in style, adjusted: {'; '.join(tests)}."] if tests else []


def _source_notes(*runs: FamilyRun) -> list[str]:
    """Return a note on the system prompts, and a note on each source of responses that is not a loaded model."""
    models = [measured_model(run.config) for run in runs]
    prompts = [model.settings.system_prompt for model in models]
    notes = []
    if any(prompts):
        names = dict.fromkeys(f"“{sanitize(prompt, 1000)}”" if prompt else "none" for prompt in prompts)
        notes.append(f"System prompt: {', then '.join(names)}.")
    notes += dict.fromkeys(sanitize(model.note, 600) for model in models if model.note)
    return notes


def _response_warnings(run: FamilyRun) -> list[str]:
    is_file = not measured_model(run.config).can_be_asked
    return response_warnings(run.table(PROMPTS), run.table(RESPONSES), is_file)


def _decoding(config: MeasureConfig) -> str:
    """Return a sentence on how the responses were decoded; the user states the decoding of a file."""
    if measured_model(config).can_be_asked:
        return f"Decoding: {sanitize(config.decoding.title(), 160)}."
    stated = ", ".join(f"{name} {value}" for name, value in config.decoding.arguments.items())
    return f"Decoding as stated by the user: {sanitize(stated, 160)}." if stated else "The decoding is unknown."
