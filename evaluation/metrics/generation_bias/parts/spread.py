"""Spread: the scores of how much style depends on the descriptor, and their sections of the reports."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import NONE
from evenhand.evaluation.data.language.mentions import FORMS as WORD_FORMS
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.estimates import (
    EVERYBODY,
    NO_INTERVAL,
    OF_METRICS,
    all_cells,
    pooled_estimate,
    root,
)
from evenhand.evaluation.metrics.generation_bias.engine.spread import (
    FGB,
    PGB,
    SCGB,
    compare_generation_bias,
    is_headline,
    spread_scores,
)
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.parts import ClassifiedRun, ComparedSide, Comparison, JointTests, Part
from evenhand.evaluation.metrics.generation_bias.parts.all_answers import of_all_answers
from evenhand.evaluation.metrics.generation_bias.people import plain_name
from evenhand.evaluation.metrics.generation_bias.requested_language import (
    IN_REQUESTED,
    in_another_language,
)
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.report.formats import Format, find_format, format_of
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT
from evenhand.evaluation.report.page import SCORES_TITLE, Row, Section, Table
from evenhand.evaluation.report.score_sections import (
    Runs,
    ScoreChange,
    change_table,
    group_label,
    keys_text,
    number_cell,
    score_changes,
    scores_table,
)
from evenhand.evaluation.score import BiasScore, Caution, Form, Kind, comparable_levels, find_score
from evenhand.evaluation.statistics.cells import (
    Cells,
    to_codes,
)
from evenhand.evaluation.statistics.gender import NOUN_GENDER, gender_differences, gender_scores
from evenhand.evaluation.statistics.intervals import (
    ANY,
    Interval,
)
from evenhand.evaluation.statistics.sample_size import smallest_detectable_spread
from evenhand.evaluation.statistics.synonyms import FEW_BUCKETS, Component, person_and_word
from evenhand.evaluation.statistics.variance_shares import Share, variance_parts

SHIFT = "style_shift"
MOVED = "moved_answers"
SHARE = "variance_share"
GENDER = "gender_effect"
NOT_DETECTABLE = "responses do not vary within cells, so the noise of the spread is unknown"
DESCRIPTIONS = {
    FGB: "Full generation bias: variance of descriptors' mean style vectors, summed over styles, mean over templates",
    PGB: "Partial generation bias: the part of FGB from one cluster, the variances of its styles, summed",
    SCGB: "Summed-cluster generation bias: variance of a cluster's summed probability over descriptors",
}
WITHOUT_NOISE = "without the noise of sampling; may be slightly negative"
FORMS = (Form.PLAIN, Form.CORRECTED, Form.POOLED_CORRECTED)


def bias_formats() -> list[Format]:
    """Return the formats of the spread in all its forms."""

    def of_bias(name: str, label: str, description: str, form: Form) -> Format:
        return Format(name, label, description, unit=UNIT, factor=PER_UNIT, ideal=0, form=form)

    formats = []
    for name, text in DESCRIPTIONS.items():
        label = name.upper()
        pooled = f"{label} of descriptor means over all templates, {WITHOUT_NOISE}"
        formats.append(of_bias(name, label, f"{text}; with few responses mostly noise.", Form.PLAIN))
        formats.append(of_bias(name, f"{label}*", f"{label} {WITHOUT_NOISE}.", Form.CORRECTED))
        formats.append(of_bias(name, f"pooled {label}*", f"{pooled}.", Form.POOLED_CORRECTED))
    formats.append(
        of_bias(
            FGB, "pooled FGB* of the person", "The part that words for the same people have in common.", Form.PERSON
        )
    )
    formats.append(
        of_bias(FGB, "pooled FGB* of the word", "The part in which words for the same people differ.", Form.WORD)
    )
    return formats


def scale_scores(responses: Answers) -> list[BiasScore]:
    """Return the scores `style_shift`, `moved_answers`, `variance_share` and the smallest detectable pooled FGB*.

    Let m_d be the mean style vector of descriptor d (of D) over all templates and m̄ the mean of all m_d. Pooled FGB*
    estimates θ = 1/(D − 1) Σ_d ‖m_d − m̄‖², where the squared norm is a sum over styles. `style_shift` is √θ, the root
    mean square length of the shift m_d − m̄ of a descriptor. If a share x of a descriptor's responses moves from one
    style to another, the shift has the length √2 · x, because one style loses x and another gains x. `moved_answers`,
    √(θ / 2), is the share of responses that would have to move to another style for a shift of √θ. The intervals
    of both follow from the interval of θ.

    `variance_share`, by source (template, descriptor, interaction, chance), is the result of `variance_parts`.
    The last score is the smallest pooled FGB* whose interval would be above 0 with a probability of 80 %
    (`smallest_detectable_spread`).

    Args:
        responses: responses to templates and descriptors; the shares of the variance need cells with two.
    """
    cells = all_cells(responses)
    pooled = pooled_estimate(cells, level=responses.level)
    n_left_out = len(responses) - pooled.cells.n
    scores = []
    for name, divisor in ((SHIFT, 1.0), (MOVED, 2.0)):
        value, interval = root(pooled.estimate.value, pooled.estimate.interval, divisor)
        scores.append(
            BiasScore(
                name,
                value,
                ideal=0.0,
                bounds=(0.0, math.sqrt(2 / divisor)),
                n=pooled.cells.n,
                interval=interval,
                n_left_out=n_left_out,
                reason=pooled.reason,
                signature=OF_METRICS,
                caution=pooled.caution,
            )
        )
    for source, share in variance_parts(cells).shares().items():
        scores.append(variance_share_score(SHARE, {"source": source}, share, cells))
    detectable = smallest_detectable_spread(pooled.estimate)
    scores.append(
        BiasScore(
            FGB,
            detectable,
            ideal=None,
            bounds=(0.0, math.inf),
            n=pooled.cells.n,
            n_left_out=n_left_out,
            reason=(pooled.reason or NOT_DETECTABLE) if math.isnan(detectable) else None,
            signature=OF_METRICS,
            form=Form.POOLED_CORRECTED,
            kind=Kind.DETECTABLE,
        )
    )
    return scores


def variance_share_score(metric: str, group: Mapping[str, str], share: Share, cells: Cells) -> BiasScore:
    """Return the score of a share of the variance of responses, without an ideal.

    The estimate is unbiased, so that it may be slightly below 0 or above 1.
    """
    return BiasScore(
        metric,
        share.value,
        ideal=None,
        bounds=ANY,
        n=cells.n,
        interval=share.interval,
        n_left_out=cells.n_left_out,
        group=group,
        reason=share.reason,
        signature=OF_METRICS,
    )


def person_scores(responses: Answers) -> list[BiasScore]:
    """Return the parts of the person and of the word in pooled FGB* (`statistics.synonyms`), overall and by axis.

    Descriptors without a bucket are left out, and axes of one bucket, in which words name different people ("Amish" and
    "Buddhist"). Of too few buckets, the scores are undefined.
    """
    table = responses.table
    n_buckets = table.groupby(columns.AXIS)[columns.BUCKET].transform("nunique")
    is_given = table[columns.BUCKET].notna() & (table[columns.BUCKET] != NONE)
    has_bucket = (is_given & (n_buckets > 1)).to_numpy(dtype=bool)
    scores = []
    for axis in (None, *table[columns.AXIS].unique()):
        of_axis = (
            np.ones(len(table), dtype=bool) if axis is None else (table[columns.AXIS] == axis).to_numpy(dtype=bool)
        )
        used = responses.rows(of_axis & has_bucket)
        descriptor = to_codes(used.table[columns.DESCRIPTOR])
        bucket = pd.Series(to_codes(used.groups()[columns.BUCKET])).groupby(descriptor).min().to_numpy()
        cells = all_cells(used)
        undefined = Component(math.nan, None)
        parts = person_and_word(cells, bucket) or (undefined, undefined)
        for form, part in zip((Form.PERSON, Form.WORD), parts, strict=True):
            reason = None if part.interval else NO_INTERVAL
            if math.isnan(part.value):
                reason = FEW_BUCKETS
            scores.append(
                BiasScore(
                    FGB,
                    part.value,
                    ideal=0.0,
                    bounds=(-2.0, 2.0),
                    n=cells.n,
                    interval=part.interval,
                    n_left_out=int(of_axis.sum()) - cells.n,
                    group={} if axis is None else {columns.AXIS: axis},
                    reason=reason,
                    signature=OF_METRICS,
                    form=form,
                )
            )
        if np.isnan(scores[0].value):
            break  # no axis has enough buckets if all together have not
    return scores


def _has_other_language(run: ClassifiedRun) -> bool:
    """Return whether answers are in another language, so that two intervals, not this one alone, decided the stop."""
    values = run.outcomes.get(OTHER_LANGUAGE)
    return values is not None and bool(in_another_language(values).any())


def _after_stopping(scores: Sequence[BiasScore], interval: Interval | None) -> list[BiasScore]:
    """Return the scores after an early stop: those over all responses get `interval`, which accounts for the looks."""
    intervals = {SHIFT: root(0.0, interval)[1], MOVED: root(0.0, interval, 2.0)[1]}
    result = []
    for score in scores:
        if score.interval is not None and is_headline(score):
            score = replace(score, interval=interval)
        elif score.interval is not None and score.metric in intervals:
            score = replace(score, interval=intervals[score.metric])
        result.append(score)
    return result


class SpreadPart(Part):
    """How much style depends on the descriptor, and how much of it on the person, the word and the form of words."""

    FORMATS = (
        *bias_formats(),
        Format(
            SHIFT,
            "shift of the mix of styles",
            "√(pooled FGB*), root mean square.",
            unit="points",
            factor=100,
            decimals=1,
            ideal=0,
        ),
        Format(
            MOVED,
            "answers as if moved to another style",
            "Descriptors differ as if so many responses had changed from one style to another, √(pooled FGB* / 2).",
            unit="%",
            factor=100,
            decimals=1,
            ideal=0,
        ),
        Format(SHARE, "share of the variance", "Of style vectors, without noise.", unit="%", factor=100, decimals=1),
        Format(
            GENDER,
            "feminine − masculine",
            "Of the mean style, over descriptors.",
            unit="points",
            factor=100,
            decimals=1,
            ideal=0,
            signed=True,
        ),
    )

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        responses = run.responses
        table = responses.table
        scores = []
        p_value = tests.p_value(EVERYBODY)
        for score in spread_scores(responses, run.clusters, p_value=p_value):
            if is_headline(score) and tests.for_these_prompts_only and not (score.reason or score.caution):
                score = replace(score, caution=Caution.THESE_PROMPTS)
            scores.append(score)
        scores += scale_scores(responses)
        if run.stop is not None and run.stop.decided is not None and not _has_other_language(run):
            scores = _after_stopping(scores, run.stop.interval(pooled_estimate(all_cells(responses)).estimate))
        if columns.BUCKET in table:
            scores += person_scores(responses)
        if WORD_FORMS in table and NOUN_GENDER in table:
            differences = gender_differences(table, responses.values)
            for column, style in enumerate(responses.columns):
                scores += gender_scores(GENDER, differences, column, (-1.0, 1.0), {"style": style})
        return scores

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        return compare_generation_bias(
            comparison.old,
            comparison.new,
            comparison.clusters,
        )

    def common_levels(self, comparison: Comparison, side: ComparedSide) -> list[BiasScore]:
        return spread_scores(side.responses, comparison.clusters)

    def sections(self, run: FamilyRun) -> list[Section]:
        scores = run.scores
        forms = [find_score(scores, FGB, form) for form in (*FORMS, Form.PERSON, Form.WORD)]
        forms += [
            find_score(scores, FGB, form, Kind.LEVEL, **IN_REQUESTED)
            for form in (Form.CORRECTED, Form.POOLED_CORRECTED)
        ]
        shown = [score for score in forms if score is not None and not math.isnan(score.value)]
        table = scores_table(
            "Generation bias", shown or forms[:1], "measure", label=_form_label, note=note("about_fgb")
        )
        size = scores_table(
            "Size of the whole difference",
            [score for score in scores if score.metric in (MOVED, SHIFT, SHARE) or score.kind == Kind.DETECTABLE],
            "measure",
            label=_size_label,
            note=note("about_detectable_fgb"),
        )
        part = Section("The size in other units, and what this run can detect", tables=[size], folded=True)
        return [Section(SCORES_TITLE, tables=[_unplot_fgb(table)], parts=[part], first_screen=True)]

    def change_sections(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> list[Section]:
        runs = (before.scores, after.scores, changes.scores)
        labels: dict[str, tuple[str, Form, Mapping[str, str]]] = {}
        for form in FORMS:
            labels[find_format(FGB, form).label] = (FGB, form, {})
        pooled = find_format(FGB, Form.POOLED_CORRECTED).label
        labels[f"{pooled}, answers in the request's language"] = (FGB, Form.POOLED_CORRECTED, IN_REQUESTED)
        old = comparable_levels(before.scores, changes.scores, "before")
        new = comparable_levels(after.scores, changes.scores, "after")
        forms = score_changes(labels, [old, new, changes.scores])
        table = change_table(f"Generation bias, {UNIT}; ideal 0", "measure", forms)
        main = Section(SCORES_TITLE, tables=[replace(_unplot_fgb(table), note=note("about_fgb"))], first_screen=True)
        return [main, *of_all_answers([_published_section(runs)], changes.scores, Kind.DIFFERENCE)]


def _form_label(score: BiasScore) -> str:
    title = format_of(score).title
    return f"{title}, answers in the request's language" if score.group else title


def _size_label(score: BiasScore) -> str:
    title = ": ".join([format_of(score).title, *score.group.values()])
    return f"smallest detectable {title}" if score.kind == Kind.DETECTABLE else title


def _unplot_fgb(table: Table) -> Table:
    """Return the table without a mark of FGB, which is mostly noise and would stretch the scale."""
    names = (find_format(FGB).label, find_format(FGB).title)
    rows = [replace(row, marks=()) if row.label in names else row for row in table.rows]
    return replace(table, rows=tuple(rows))


def _published_section(runs: Runs) -> Section:
    """Return FGB by axis, and PGB and SCGB by style cluster, as published (Smith et al. 2022, Tables 8 to 10)."""
    tables = []
    for metric, key in ((FGB, columns.AXIS), (PGB, "cluster"), (SCGB, "cluster")):
        labels = {}
        for score in runs[0]:
            if (score.metric, score.form) == (metric, Form.PLAIN) and set(score.group) == {key}:
                name = plain_name(score.group[columns.AXIS]) if key == columns.AXIS else group_label(score)
                labels[name] = (metric, Form.PLAIN, score.group)
        changes = score_changes(labels, runs)
        if changes:
            found = find_format(metric)
            caption = f"{found.label}, {UNIT}; {found.description}"
            tables.append(change_table(caption, keys_text([key]), changes, is_plotted=False))
            if key == columns.AXIS and len(runs) > 1:
                tables.append(_reduction_table(changes))
    return Section("As published", tables=tables, folded=True)


def _reduction_table(changes: Sequence[ScoreChange]) -> Table:
    """Return FGB of each axis before and after, and its reduction in percent (Smith et al. 2022, Table 10)."""
    rows = []
    for change in changes:
        before = math.nan if change.before is None else change.before.value
        after = math.nan if change.after is None else change.after.value
        reduction = 100 * (1 - after / before) if before > 0 else math.nan
        values = (number_cell(PER_UNIT * before), number_cell(PER_UNIT * after), number_cell(reduction, 0))
        rows.append(Row(change.label, values))
    columns = ("axis", "before", "after", "reduction, %")
    return Table(f"FGB by axis and its reduction, {UNIT}", columns, tuple(rows), note("about_reductions"))
