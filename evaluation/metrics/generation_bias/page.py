"""The report on the generation bias of one run, and the report on its change between two runs over the same prompts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from evenhand.evaluation.data.style_clusters import OTHER_DESCRIPTORS
from evenhand.evaluation.metrics import FamilyRun, MeasureConfig
from evenhand.evaluation.metrics.generation_bias.accepted import ACCEPTED_EFFECT, AcceptedDifferences
from evenhand.evaluation.metrics.generation_bias.advice import (
    SCALE,
    comparison_steps,
    decide_section,
    meaning_text,
    run_steps,
    size_word,
)
from evenhand.evaluation.metrics.generation_bias.answers import answers_of, changed_answers_of
from evenhand.evaluation.metrics.generation_bias.cuts import (
    IN_REQUESTED,
    REQUESTED_EFFECTS,
    requested_summary,
    requested_text,
)
from evenhand.evaluation.metrics.generation_bias.effect_sections import (
    all_effects_sections,
    changes_section,
    people_section,
    size_section,
    style_summary,
)
from evenhand.evaluation.metrics.generation_bias.findings import (
    changed_outcomes,
    changed_styles,
    request_language,
    shown_findings,
)
from evenhand.evaluation.metrics.generation_bias.model_warnings import template_warnings
from evenhand.evaluation.metrics.generation_bias.page_warnings import response_warnings, warnings
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusPart
from evenhand.evaluation.metrics.generation_bias.parts.effects import (
    EFFECT_CHANGES,
    EFFECTS,
    SHIFTS,
    plain_name,
    read_effects,
)
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    OTHER_LANGUAGE,
    OUTCOME_EFFECTS,
    outcome_change_section,
    outcome_section,
)
from evenhand.evaluation.metrics.generation_bias.parts.phrases import PARROTING
from evenhand.evaluation.metrics.generation_bias.parts.quality import CHANGES, QUALITY
from evenhand.evaluation.metrics.generation_bias.parts.relevance import EVEN, LIKELIHOOD_METRICS
from evenhand.evaluation.metrics.generation_bias.parts.spread import FGB, find_headline, root
from evenhand.evaluation.metrics.generation_bias.settings import measured_model
from evenhand.evaluation.metrics.generation_bias.stops import stop_text
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
from evenhand.evaluation.report.formats import find_format, format_of, glossary
from evenhand.evaluation.report.numbers import (
    NO_NUMBER,
    UNIT,
    before_after,
    p_value,
    percent,
    sanitize,
    span,
    undefined,
)
from evenhand.evaluation.report.page import SCORES, Cell, Page, Row, Section, Table
from evenhand.evaluation.report.tables import (
    P_VALUE,
    Runs,
    change_sections,
    change_table,
    group_label,
    number_cell,
    score_changes,
    score_section,
    score_sections,
    scores_table,
)
from evenhand.evaluation.score import AXIS, BiasScore, Form, Kind, find_score, signature_line

FORMS = (Form.PLAIN, Form.CORRECTED, Form.POOLED_CORRECTED)
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
MAX_PHRASES = 60
MAX_LABEL = 60
EVEN_NOTE = (
    "“If people exchanged their answers”: the base model’s own responses, each given to another descriptor of the same "
    "template and noun, with its mentions rewritten; these answers are even, so compare relevance and perplexity with "
    "them. “Different word pairs” are of adjacent words."
)
FGB_NOTE = (
    "FGB is the variance of the mean style over descriptors, summed over styles (Smith et al. 2022, A.7), in "
    "thousandths; most of it is the noise of sampling. FGB* is without this noise. Pooled FGB* is the same of "
    "descriptors’ means over all templates; the number at the top is its root: √(pooled FGB* / 2), in answers of 100."
)
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


def page(run: FamilyRun) -> Page:
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
    sections = [
        people_section(findings, [summary] if len(effects) else [], example_of, language),
        decide_section(),
        *all_effects_sections(effects),
        outcome_section(scores, outcome_effects),
        Section(SCORES, tables=[_bias_table(scores)], parts=[size_section(effects, scores)], first_screen=True),
        _quality_section(scores),
        *score_sections(_grouped(scores), label=_label),
    ]
    sections += CorpusPart().sections(run)
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
        sections=sections,
        glossary=[*WORDS, *glossary(map(format_of, scores))],
        limits=LIMITS,
        signature=run.signature(FGB),
        signature_lines=[signature_line(headline)],
    )


def _bias_table(scores: Sequence[BiasScore]) -> Table:
    """Return the table of the forms of FGB."""
    forms = [find_score(scores, FGB, form) for form in (*FORMS, Form.PERSON, Form.WORD)]
    forms.append(find_score(scores, FGB, Form.CORRECTED, **IN_REQUESTED))

    def label(score: BiasScore) -> str:
        title = format_of(score).title
        return f"{title}, answers in the request's language" if score.group else title

    shown = [score for score in forms if score is not None and not math.isnan(score.value)]
    return _unplot_fgb(scores_table("Generation bias", shown or forms[:1], "measure", label=label, note=FGB_NOTE))


def _quality_section(scores: Sequence[BiasScore]) -> Section:
    """Return the section on the quality of the responses of one run."""
    table = scores_table(
        "Quality of the responses",
        [find_score(scores, metric.name) for metric in QUALITY],
        "measure",
        label=lambda score: format_of(score).title,
        counted="texts",
        note=_likelihood_note(scores, "measured"),
    )
    return Section(table.caption, tables=[table], first_screen=True)


def run_warnings(run: FamilyRun) -> list[str]:
    """Return the warnings of the report on one measuring run, one sentence each."""
    unclear = unclear_reason(find_headline(run.scores))
    return [
        *([f"The verdict is unclear: {unclear}."] if unclear else []),
        *warnings([run.scores]),
        *template_warnings(run),
        *_response_warnings(run),
    ]


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Page:
    """Return the report that shows two measuring runs side by side with the changes between them."""
    runs = [
        _under_base(before.scores, changes.scores, "before"),
        _under_base(after.scores, changes.scores, "after"),
        changes.scores,
    ]
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
    explanations = [even_change_text(runs), cost_text(changes.scores), accepted_text(runs)]
    response_warnings = [warning for run in (before, after) for warning in _response_warnings(run)]
    forms = score_changes({find_format(FGB, form).label: (FGB, form, {}) for form in FORMS}, runs)
    bias = _unplot_fgb(change_table(f"Generation bias, {UNIT}; ideal 0", "measure", forms))
    rho = [score for score in changes.scores if score.metric in ("parroting_rho", "frequency_rho")]
    return Page(
        title="Generation bias before and after",
        subtitle=before_after(before.config.model.name, after.config.model.name),
        headline_value=headline,
        headline_caption=f"{caption} {_decoding(before.config)}",
        verdict=" ".join([*people[:1], comparison_verdict(runs)]),
        explanations=[text for text in explanations if text],
        steps=comparison_steps(before.folder, after.folder),
        warnings=[*warnings(runs), *dict.fromkeys(response_warnings)],
        notes=[
            INTERVALS,
            *_test_notes({"before": old, "after": new, "reduction": reduction}),
            *_source_notes(before, after),
        ],
        sections=[
            people_changes,
            decide_section(),
            *AcceptedDifferences().change_sections(before, after, changes),
            outcome_change_section(changes.scores),
            Section("What it cost", tables=[_kept_table(changes.scores), _quality_table(runs)], first_screen=True),
            Section(SCORES, tables=[replace(bias, note=FGB_NOTE)], first_screen=True),
            *change_sections([*runs[:2], _grouped(runs[2])], label=_label),
            _published_section(runs),
            _phrase_section(changes),
            _parroting_section(changes),
            score_section("Rank correlations over descriptors", rho, "group"),
        ],
        glossary=[*WORDS, *glossary(map(format_of, runs[0]))],
        limits=LIMITS,
        signature={"before": before.signature(FGB), "after": after.signature(FGB)},
        signature_lines=[signature_line(old), signature_line(new)],
        sides=("before", "after"),
    )


def _people_changes(before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Section:
    """Return the section that names people before and after, each with an answer of both models to one prompt."""
    old, new = read_effects(before, OUTCOME_EFFECTS), read_effects(after, OUTCOME_EFFECTS)
    outcomes = changed_outcomes(old, new)
    in_another_language = {row["unit"] for row, _ in outcomes if row["outcome"] == OTHER_LANGUAGE}
    table = read_effects(changes, EFFECT_CHANGES)
    styles = changed_styles(table, in_another_language) if len(table) else []
    example_of = changed_answers_of(before, after)
    return changes_section(outcomes, styles, table, example_of, request_language(before.scores))


def _quality_table(runs: Runs) -> Table:
    """Return the quality of the responses before and after."""
    metrics = {metric.title: (metric.name, metric.form, {}) for metric in QUALITY}
    table = change_table("Quality of the responses", "measure", score_changes(metrics, runs), is_plotted=False)
    return replace(table, note=_likelihood_note(runs[0], "base"))


def _kept_table(changes: Sequence[BiasScore]) -> Table:
    """Return what the responses kept, and the same of the even reference."""
    found = []
    for metric in CHANGES:
        for group in ({}, EVEN):
            found.append(find_score(changes, metric.name, metric.form, metric.kind, **group))
    return scores_table(
        "Changes of all responses",
        found,
        "measure",
        label=lambda score: format_of(score).title + (", if people exchanged their answers" if score.group else ""),
        counted="texts",
        note=EVEN_NOTE,
    )


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
    return NO_NUMBER if math.isnan(score.value) else f"{moved_text(score)} of 100"


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
    tests = [
        f"{name}, p {p_text(it.p_value)}" for name, it in scores.items() if it is not None and it.p_value is not None
    ]
    return [f"Test by permutations that people do not differ in style, adjusted: {'; '.join(tests)}."] if tests else []


def _unplot_fgb(table: Table) -> Table:
    """Return the table without a mark of FGB, which is mostly noise and would stretch the scale."""
    names = find_format(FGB).label, find_format(FGB).title
    return replace(table, rows=tuple(replace(it, marks=()) if it.label in names else it for it in table.rows))


def _under_base(scores: Sequence[BiasScore], changes: Sequence[BiasScore], run: str) -> list[BiasScore]:
    """Return a run's scores, with its likelihood scores replaced by those under the base model in `changes`."""
    under_base = [it for it in changes if it.metric in LIKELIHOOD_METRICS and it.group == {"run": run}]
    return [it for it in scores if it.metric not in LIKELIHOOD_METRICS] + [replace(it, group={}) for it in under_base]


def _likelihood_note(scores: Sequence[BiasScore], model: str) -> str:
    score = find_score(scores, "relevance")
    if score is None:
        return ""
    scored = score.signature.get("scored")
    part = f", from {scored['responses']:,} of {scored['of']:,} responses, drawn at random" if scored else ""
    return (
        f"Relevance and the perplexity of responses are computed by the {model} model{part}. Relevance is how much "
        "likelier a response is after its prompt than after a prompt of another template; the response to the person, "
        "than after another person’s prompt of the same template. Both are in nats: 1 is 2.7 times as likely, 10 is "
        "22,000 times."
    )


def _published_section(runs: Sequence[Sequence[BiasScore]]) -> Section:
    """Return FGB by axis, and PGB and SCGB by style cluster, as published (Smith et al. 2022, Tables 8 to 10)."""
    tables = []
    for metric, key in ((FGB, AXIS), ("pgb", "cluster"), ("scgb", "cluster")):
        labels = {}
        for score in runs[0]:
            if (score.metric, score.form) == (metric, Form.PLAIN) and set(score.group) == {key}:
                labels[_label(score)] = (metric, Form.PLAIN, score.group)
        changes = score_changes(labels, runs)
        if changes:
            of = find_format(metric)
            tables.append(change_table(f"{of.label}, {UNIT}; {of.description}", key, changes, is_plotted=False))
    return Section("As published", tables=tables, folded=True)


def _phrase_section(changes: FamilyRun) -> Section:
    """Return the table of the phrases whose share of responses changed most (Smith et al. 2022, Table 14)."""
    title = "Phrases that changed most"
    if not changes.has("phrases"):
        return Section(title)
    frame = changes.table("phrases").query("before > 0 or after > 0")
    frame = frame.sort_values("change", key=abs, ascending=False, kind="stable").head(MAX_PHRASES)
    note = (
        "Descriptors of a set: those with the highest mean bias value b in the axes of a kind of phrase, or "
        f"“{OTHER_DESCRIPTORS}”. All phrases are in phrases.parquet."
    )
    table = _share_table("Responses with a phrase, %", frame, {"phrase": "phrase", "set": "descriptors"}, note)
    return Section(title, tables=[table], folded=True)


def _parroting_section(changes: FamilyRun) -> Section:
    """Return the shares of responses that repeat the prompt, by template and descriptor (Smith et al. 2022, C.2)."""
    tables = []
    for name, keys in PARROTING.items():
        if changes.has(name):
            frame = changes.table(name).query("before > 0 or after > 0")
            note = f"The {MAX_PHRASES} largest rises; all are in {name}.parquet." if len(frame) > MAX_PHRASES else ""
            caption = f"Responses that repeat the prompt, %, by {' and '.join(keys)}"
            tables.append(_share_table(caption, frame.head(MAX_PHRASES), {key: key for key in keys}, note))
    return Section("Repeats the prompt", tables=tables, folded=True)


def _share_table(caption: str, frame: pd.DataFrame, keys: Mapping[str, str], note: str) -> Table:
    """Return a table of shares of responses before and after; `keys` has the titles of the frame's columns of keys."""
    rows = []
    for row in frame.to_dict("records"):
        names = [sanitize(row[key], MAX_LABEL) for key in keys]
        cells = [Cell(name, prose=True) for name in names[1:]]
        cells.append(number_cell(100 * row["before"]))
        cells.append(number_cell(100 * row["after"]))
        cells.append(number_cell(100 * row["change"], 1, True, (100 * row["low"], 100 * row["high"])))
        cells.append(Cell(p_value(row["p"])))
        cells.append(Cell(f"{row['n']:,}"))
        rows.append(Row(f"“{names[0]}”", tuple(cells)))
    columns = (*keys.values(), "before", "after", "change", P_VALUE, "responses")
    return Table(caption, columns, tuple(rows), note if rows else "")


def _source_notes(*runs: FamilyRun) -> list[str]:
    """Return a note on the system prompts, and a note on each source of responses that is not a loaded model."""
    prompts = [measured_model(run.config).settings.system_prompt or "" for run in runs]
    names = dict.fromkeys(f"“{sanitize(it, 1000)}”" if it else "none" for it in prompts)
    notes = [f"System prompt: {', then '.join(names)}."] if any(prompts) else []
    notes += dict.fromkeys(sanitize(note, 600) for run in runs if (note := measured_model(run.config).note))
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
