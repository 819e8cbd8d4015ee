"""The report on the generation bias of one run, and the report on its change between two runs over the same prompts."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pandas as pd

from evenhand.evaluation.data.style_clusters import OTHER_DESCRIPTORS, load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.accepted import ACCEPTED_EFFECT, AcceptedDifferences
from evenhand.evaluation.metrics.generation_bias.classifiers import OFFENSIVENESS
from evenhand.evaluation.metrics.generation_bias.cuts import (
    REQUESTED_EFFECTS,
    language_section,
    language_text,
    requested_text,
)
from evenhand.evaluation.metrics.generation_bias.effect_sections import (
    effect_change_section,
    effect_example,
    lead_sections,
)
from evenhand.evaluation.metrics.generation_bias.model_warnings import template_warnings
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusPart
from evenhand.evaluation.metrics.generation_bias.parts.effects import EFFECT_CHANGES, EFFECTS, SHIFTS, read_effects
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    OUTCOME_EFFECTS,
    outcome_change_section,
    outcome_section,
    outcome_text,
)
from evenhand.evaluation.metrics.generation_bias.parts.phrases import PARROTING
from evenhand.evaluation.metrics.generation_bias.parts.quality import CHANGES, QUALITY
from evenhand.evaluation.metrics.generation_bias.parts.relevance import EVEN, LIKELIHOOD_METRICS
from evenhand.evaluation.metrics.generation_bias.parts.spread import FGB, find_headline, root
from evenhand.evaluation.metrics.generation_bias.settings import measured_model
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    PROMPTS,
    RESPONSES,
    StyledResponses,
    read_styled_responses,
)
from evenhand.evaluation.metrics.generation_bias.verdict import (
    bias_verdict,
    comparison_verdict,
    even_change_text,
    even_text,
    headline_scores,
    moved_reduction,
    moved_text,
    p_text,
    percent_span,
    plain_verdict,
    response_warnings,
    unclear_reason,
    warnings,
)
from evenhand.evaluation.metrics.offensiveness import THRESHOLD
from evenhand.evaluation.report.formats import find_format, format_of, glossary
from evenhand.evaluation.report.numbers import (
    UNIT,
    before_after,
    number,
    p_value,
    percent,
    sanitize,
    score_text,
    span,
    undefined,
)
from evenhand.evaluation.report.page import SCORES, Cell, Example, Page, Row, Section, Table
from evenhand.evaluation.report.tables import (
    Runs,
    change_sections,
    change_table,
    count_cells,
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
SIZES = ((0.02, "small"), (0.05, "medium"), (math.inf, "large"))  # upper ends of the share of moved answers
MAX_PHRASES = 60
MAX_LABEL = 60
EVEN_NOTE = (
    "The even reference is the base model’s own responses, each given to another descriptor of the same template and "
    "noun, with its mentions rewritten. Compare relevance and perplexity with it."
)
INTERVALS = (
    "Brackets contain the 95 % interval: if people were asked prompts like these again and again, 95 of 100 such "
    "intervals would contain the true value. Tests exchange people within each prompt template, all answers of a "
    "person to a template together, and are adjusted for everything that this page calls shown: if nobody were treated "
    "differently, 5 of 100 such pages would show anything. A bias is shown if the interval of pooled FGB* is above 0 "
    "and this test has p ≤ 0.05. Where answers to some people vary much more than to others, up to 12 of 100 even "
    "pages show something. The intervals of person and word hold if many people or words differ a little; if a few "
    "differ much and the others not at all, they are too narrow."
)
NEXT = (
    "Read the responses behind this page. `evenhand plan RUN` says how many responses a surer answer takes; `evenhand "
    "measure --config service` measures everyday service, where a different answer is hardly right; `evenhand loop` "
    "makes a model fairer, and shows what that costs."
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
    scores, measured = run.scores, read_styled_responses(run.folder)
    score = find_headline(scores)
    effects = read_effects(run, EFFECTS)
    outcome_effects = read_effects(run, OUTCOME_EFFECTS)
    language = language_text(outcome_effects)
    shifts = run.table(SHIFTS) if run.has(SHIFTS) else None
    style = plain_verdict(effects, bias_verdict(score), shifts)
    apart = []
    if run.has(REQUESTED_EFFECTS):
        requested = read_effects(run, REQUESTED_EFFECTS)
        apart = [language_section(effects, requested)]
        # If styles differ only because languages do, the verdict says language and stops.
        style = requested_text(effects, requested) or style
    quality = scores_table(
        "Quality of the responses",
        [find_score(scores, metric.name) for metric in QUALITY],
        "measure",
        label=lambda it: format_of(it).title,
        counted="texts",
        note=_likelihood_note(scores, "measured"),
    )
    of_fgb = [find_score(scores, FGB, form) for form in FORMS]
    for form in (Form.PERSON, Form.WORD):
        part = find_score(scores, FGB, form)
        if part is not None and not math.isnan(part.value):
            of_fgb.append(part)
    forms = scores_table("Generation bias", of_fgb, "measure")
    return Page(
        title="Generation bias of a model",
        subtitle=sanitize(run.model_name, 120),
        headline_value=_moved_value(score),
        headline_caption=f"{_caption(score)}; {_decoding(run.config)}",
        verdict=language + outcome_text(scores, outcome_effects) + style + even_text(scores),
        warnings=run_warnings(run),
        notes=[INTERVALS, *_test_notes({"pooled FGB*": score}), *_source_notes(run)],
        sections=[
            *lead_sections(effects, scores, _example_of(run, measured), shifts),
            *apart,
            *([outcome_section(scores, outcome_effects)] if len(outcome_effects) else []),
            Section(SCORES, tables=[_unplot_fgb(forms)], first_screen=True),
            Section(quality.caption, tables=[quality], first_screen=True),
            *score_sections(_grouped(scores), label=_label),
            *CorpusPart().sections(run),
            Section("What next", [NEXT]),
        ],
        glossary=glossary(map(format_of, scores)),
        limits=LIMITS,
        signature=run.signature(FGB),
        signature_lines=[signature_line(score)],
    )


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
    runs = [*(_under_base(it.scores, changes.scores, side) for it, side in ((before, "before"), (after, "after")))]
    runs.append(changes.scores)
    old, new, _, reduction = headline_scores(runs)
    has_reduction = reduction is not None and reduction.interval is not None
    caption, headline = _caption(new, " in the second run"), _moved_value(new)
    if has_reduction:
        moved = moved_reduction(reduction)
        caption = f"{moved_text(runs)}, 95 % interval {percent_span(moved, -1)}; of the variance (pooled FGB*) "
        caption += f"{percent(-reduction.value, 0, True)}, 95 % interval {percent_span(reduction, -1)}"
        headline = percent(-moved.value, 0, True)
    lead = [effect_change_section(read_effects(changes, EFFECT_CHANGES))] if changes.has(EFFECT_CHANGES) else []
    forms = score_changes({find_format(FGB, form).label: (FGB, form, {}) for form in FORMS}, runs)
    rho = [it for it in changes.scores if it.metric in ("parroting_rho", "frequency_rho")]
    return Page(
        title="Generation bias before and after",
        subtitle=before_after(before.config.model.name, after.config.model.name),
        headline_value=headline,
        headline_caption=f"{caption}; {_decoding(before.config)}",
        verdict=comparison_verdict(runs) + even_change_text(runs),
        warnings=[*warnings(runs), *dict.fromkeys(it for run in (before, after) for it in _response_warnings(run))],
        notes=[
            INTERVALS,
            *_test_notes({"pooled FGB* before": old, "after": new, "reduction": reduction}),
            *_source_notes(before, after),
        ],
        sections=[
            *lead,
            outcome_change_section(changes.scores),
            Section(
                SCORES,
                tables=[_unplot_fgb(change_table(f"Generation bias, {UNIT}; ideal 0", "measure", forms))],
                first_screen=True,
            ),
            Section("What it cost", tables=[_kept_table(changes.scores), _quality_table(runs)], first_screen=True),
            *AcceptedDifferences().change_sections(before, after, changes),
            *change_sections([*runs[:2], _grouped(runs[2])], label=_label),
            _published_section(runs),
            _phrase_section(changes),
            _parroting_section(changes),
            score_section("Rank correlations over descriptors", rho, "group"),
        ],
        glossary=glossary(map(format_of, runs[0])),
        limits=LIMITS,
        signature={"before": before.signature(FGB), "after": after.signature(FGB)},
        signature_lines=[signature_line(old), signature_line(new)],
        sides=("before", "after"),
    )


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
        label=lambda score: format_of(score).title + (": even reference" if score.group else ""),
        counted="texts",
        note=EVEN_NOTE,
    )


def _grouped(scores: Sequence[BiasScore]) -> list[BiasScore]:
    """Return the scores of groups, without those that the page shows elsewhere, the metrics with least noise first."""
    elsewhere = {"run", "source", "responses", "value"}
    grouped = []
    for score in scores:
        is_accepted_change = score.metric == ACCEPTED_EFFECT and score.kind == Kind.DIFFERENCE
        is_elsewhere = score.metric == "effect" or is_accepted_change or elsewhere & set(score.group)
        if score.group and not is_elsewhere:
            grouped.append(score)
    order = {metric: n for n, metric in enumerate(FIRST_METRICS)}
    return sorted(grouped, key=lambda score: order.get((score.metric, score.form), len(order)))


def _label(score: BiasScore) -> str:
    return CHECKS.get(next(iter(score.group.items())), group_label(score))


def _moved_value(score: BiasScore) -> str:
    """Return "3.7 of 100", the share of responses that would have to change style (`scale_scores`), or a dash."""
    return f"{number(100 * root(score.value, None, 2.0)[0], 1)}{' of 100' * (score.value == score.value)}"


def _caption(score: BiasScore, when: str = "") -> str:
    if score.value != score.value:
        return f"pooled FGB*{when} is {undefined(score)}"
    moved, ends = root(score.value, score.interval, 2.0)
    bounds = f" (95 % interval {span(ends, 1, False, 100)})" if ends else ""
    return (
        f"answers: style differs as if so many had been moved to another style{when}{bounds}; {_size_text(moved)}. "
        f"Pooled FGB*, the variance: {score_text(score)}; ideal 0"
    )


def _size_text(moved: float) -> str:
    """Return the size of a bias in words, by the scale of docs/deciding.md, from the share of moved answers."""
    word = next(word for limit, word in SIZES if moved < limit)
    return f"{word}, on this project's scale of small (below 2), medium (to 5) and large"


def _test_notes(scores: Mapping[str, BiasScore | None]) -> list[str]:
    """Return the p-values of the permutation tests of scores by name, as notes."""
    tests = [
        f"{name}, p {p_text(it.p_value)}" for name, it in scores.items() if it is not None and it.p_value is not None
    ]
    return [f"Permutation test that people do not differ in style, adjusted: {'; '.join(tests)}."] if tests else []


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
        "likelier, in nats, a response is after its prompt than after a prompt of another template."
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
        first, *further = (sanitize(row[key], MAX_LABEL) for key in keys)
        change = number_cell(100 * row["change"], 1, True, (100 * row["low"], 100 * row["high"]))
        sides = (number_cell(100 * row[name]) for name in ("before", "after"))
        cells = (*(Cell(text, prose=True) for text in further), *sides, change, Cell(p_value(row["p"])))
        rows.append(Row(f"“{first}”", (*cells, *count_cells(row["n"]))))
    return Table(
        caption, (*keys.values(), "before", "after", "change", "p", "responses"), tuple(rows), note * bool(rows)
    )


def _example_of(run: FamilyRun, measured: StyledResponses) -> Callable[[Mapping], Example]:
    """Return a function of an effect that returns responses that carry it."""
    columns = {style: [column] for column, style in enumerate(measured.styles)}
    clusters, offensive = {}, run.table(OFFENSIVENESS)[OFFENSIVENESS] >= THRESHOLD if run.has(OFFENSIVENESS) else None
    with suppress(InputError):  # a file of the user that has moved since the measurement: no examples of clusters
        clusters = load_style_clusters(run.config.settings.style_clusters, measured.styles)

    def example(effect: Mapping) -> Example:
        of_effect = (clusters if effect["outcome"] == "cluster" else columns).get(effect["name"])
        return effect_example(measured, effect, of_effect, offensive) if of_effect else Example("", ())

    return example


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


def _decoding(config: Any) -> str:
    """Return a description of how the responses were decoded; the user states the decoding of a file."""
    if measured_model(config).can_be_asked:
        return f"decoding: {sanitize(config.decoding.title(), 160)}"
    stated = ", ".join(f"{name} {value}" for name, value in config.decoding.arguments.items())
    return f"decoding as stated by the user: {sanitize(stated, 160)}" if stated else "decoding unknown"
