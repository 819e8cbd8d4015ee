"""Report on scores of translations against masculine and feminine references (papers 003 and 004, §4)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.gendered_translations import ENGLISH_LANGUAGE, LANG
from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.translation_bias.metric import OUTLIER, cut_table, language_table
from evenhand.evaluation.families.translation_bias.plots import GenderRow, Lane, gender_chart, language_name
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.formatted_scores import sort_by_value
from evenhand.evaluation.report.metrics import metric_of
from evenhand.evaluation.report.numbers import number, percent, sanitize, span, undefined, value_or
from evenhand.evaluation.report.page import Figure, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import (
    Cell,
    Row,
    Table,
    count_cells,
    number_cell,
    p_cell,
    score_cell,
    score_marks,
    score_row,
)
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, BiasScore, display_name, find_score

DIRECTION, GENDER, XX_XX = "direction", "gender", "xx-xx"
DIRECTIONS = ("en-xx", "xx-en", XX_XX)
GENDERS = ("masculine", "feminine", "both")
GAP, CHRF, CHRF_GAP = "translation_gap", "chrf", "chrf_gap"
RENDERING, TOXICITY = "masculine_rendering", "added_toxicity"
FULL_SHADE = 0.95  # sizes of gaps above this quantile have the full colour, since one far pair would leave others pale
ROWS_AT_EACH_END = 10  # as in 004, Table 5
MAX_NAME_LENGTH = 60

text = Sentences(__file__)


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on the translations by one system."""
    settings, scores = run.config.settings, run.scores
    metric = "spbleu" if any(score.metric == "spbleu" for score in scores) else "bleu"
    directions = [score.group[DIRECTION] for score in scores if score.metric == GAP]
    main_direction = next((it for it in DIRECTIONS if it in directions), DIRECTIONS[0])
    gap, languages = find_score(scores, GAP, direction=main_direction), run.table("languages")
    return Page(
        title=text.title,
        subtitle=" · ".join(map(display_name, (settings.translations or run.config.model.name, settings.references))),
        headline_value=metric_of(GAP).text(value_or(gap, math.nan)),
        headline_caption=text.headline_caption(gap, metric_of(metric).label),
        verdict=text.verdict(gap, metric_of(metric).label, _sorted_gaps(scores, GAP, main_direction)),
        tables=[_mean_table(scores, metric)],
        notes=[text.intervals, *context.notes],
        sections=[
            *(_direction_section(scores, it, metric, first_screen=it == main_direction) for it in ("en-xx", "xx-en")),
            _pairs_section(scores, languages, metric),
            _gender_section(scores),
            _toxicity_section(scores),
            _cuts_section(run.table("sentence_scores"), metric, main_direction),
            _references_section(languages),
        ],
        glossary=[
            (word, meaning) for name, word, meaning in text.glossary if any(score.metric == name for score in scores)
        ],
        limits=text.limits,
        signature=run.signature(GAP),
        signature_lines=run.signature_lines(GAP),
    )


def _sorted_gaps(scores: Sequence[BiasScore], metric: str, direction: str) -> list[BiasScore]:
    gaps = (it for it in scores if it.metric == metric and it.group.get(DIRECTION) == direction and LANG in it.group)
    return sort_by_value(gaps, LANG)


def _label(score: BiasScore) -> str:
    codes = score.group[LANG].split("-", 1) if score.group[DIRECTION] == XX_XX else [score.group[LANG]]
    return " → ".join(map(language_name, codes))


def _mean_table(scores: Sequence[BiasScore], metric: str) -> Table:
    """Return a table of the means over languages for each direction (004, Figure 7)."""
    rows = []
    for name, gap_metric in ((metric, GAP), (CHRF, CHRF_GAP)):
        for direction in DIRECTIONS:
            gap = find_score(scores, gap_metric, direction=direction)
            if gap is None:
                continue
            groups = [it.group for it in _sorted_gaps(scores, gap_metric, direction) if math.isfinite(it.value)]
            means = (
                np.mean(
                    [value_or(find_score(scores, name, **group, gender=gender), math.nan) for group in groups or [{}]]
                )
                for gender in GENDERS
            )
            gap_cells = (score_cell(gap), p_cell(gap), *count_cells(gap.n, gap.n_left_out))
            label = f"{text.headings[direction]}, {metric_of(name).label}"
            rows.append(Row(label, (*map(number_cell, means), *gap_cells), score_marks("before", gap)))
    columns = ("mean over languages", *GENDERS, "gap", "p", "languages", "undefined")
    return Table(text.means_caption, columns, tuple(rows))


def _direction_section(scores: Sequence[BiasScore], direction: str, metric: str, *, first_screen: bool) -> Section:
    """Return the section of one direction, with scores and gap by language (004, Figures 3 and 4)."""
    gaps, title = _sorted_gaps(scores, GAP, direction), text.headings[direction]
    chrf_table = _language_table(scores, _sorted_gaps(scores, CHRF_GAP, direction), CHRF)
    parts = [
        _chart_part(scores, gaps, metric),
        Section(f"{title} in {metric_of(CHRF).label}", tables=[chrf_table], folded=True),
    ]
    sentences = [text.into_english] if gaps and direction == "xx-en" else []
    tables = [_language_table(scores, gaps, metric)]
    return Section(title, sentences, tables, parts=parts, first_screen=first_screen)


def _language_table(scores: Sequence[BiasScore], gaps: Sequence[BiasScore], metric: str, by: str = "language") -> Table:
    """Return a table with a row for each gap. Of many pairs of languages, only the extreme gaps are rows."""
    if by == "pair" and len(gaps) > 2 * ROWS_AT_EACH_END:
        selected = [*gaps[:ROWS_AT_EACH_END], *gaps[-ROWS_AT_EACH_END:]]
    else:
        selected = gaps
    reasons = sorted({sanitize(gap.reason or "") for gap in selected if math.isnan(gap.value)})
    rows = []
    for gap in selected:
        # If the sources have a gender, there is no score against both references.
        values = (value_or(find_score(scores, metric, **gap.group, gender=gender), math.nan) for gender in GENDERS)
        defined = math.isfinite(gap.value)
        cells = (score_cell(gap) if defined else Cell("–"), p_cell(gap), *count_cells(gap.n))
        instead = "" if defined else undefined(gap)
        rows.append(Row(_label(gap), (*map(number_cell, values), *cells), score_marks("before", gap), instead=instead))
    caption = text.scores_caption(metric_of(metric).label, by, ROWS_AT_EACH_END, len(gaps) if by == "pair" else 0)
    note = text.undefined_gaps(reasons) if reasons else ""
    return Table(caption, (by, *GENDERS, "gap", "p", "sentences"), tuple(rows), note)


def _chart_part(scores: Sequence[BiasScore], gaps: Sequence[BiasScore], metric: str) -> Section:
    rows = []
    for gap in gaps:
        lanes = _lanes({gender: find_score(scores, metric, **gap.group, gender=gender) for gender in GENDERS})
        aside = "gap undefined" if math.isnan(gap.value) else f"gap {number(gap.value, 2, sign=True)}"
        if lanes:
            rows.append(GenderRow(_label(gap), lanes, aside))
    title, figures = text.drawn_title(metric_of(metric).label), []
    if rows:
        caption = text.drawn_caption(metric_of(metric).label, any("both" in row.lanes for row in rows))
        figures = [Figure(caption, svg(gender_chart(caption, rows, decimals=1)), text.drawn_note)]
    return Section(title, figures=figures, folded=True)


def _lanes(by_gender: Mapping[str, BiasScore | None]) -> dict[str, Lane]:
    """Return the marks of each gender. "both" has no interval, because it would hide the other intervals."""
    marks = {gender: mark for gender, score in by_gender.items() for mark in score_marks("before", score)}
    return {gender: Lane(it.value, it.interval if gender != "both" else None) for gender, it in marks.items()}


def _pairs_section(scores: Sequence[BiasScore], languages: pd.DataFrame, metric: str) -> Section:
    """Return the section on pairs of languages: source and target means (004, Table 2), map (Figure 6), extremes."""
    gaps = _sorted_gaps(scores, GAP, XX_XX)
    if not gaps:
        return Section(text.headings[XX_XX])
    means = language_table(scores).sort_values(["as_target", LANG], ascending=[False, True], kind="stable")
    by_pair = {_source_and_target(gap): gap for it in DIRECTIONS for gap in _sorted_gaps(scores, GAP, it)}
    codes = [*means[LANG], *sorted({code for pair in by_pair for code in pair} - set(means[LANG]))]
    caption = text.map_caption(metric_of(metric).label)
    extremes = _language_table(scores, [gap for gap in gaps if math.isfinite(gap.value)], metric, "pair")
    parts = [
        Section("All pairs", tables=[_pair_table(caption, codes, by_pair)]),
        Section("Largest and smallest gaps", tables=[extremes]),
    ]
    return Section(text.headings[XX_XX], [text.between], [_source_target_table(means, languages)], parts=parts)


def _pair_table(caption: str, codes: Sequence[str], gaps: Mapping[tuple[str, str], BiasScore]) -> Table:
    """Return the gaps as a shaded table, sources × targets. A pair that was not translated has no number."""
    sizes = [abs(gap.value) for gap in gaps.values() if math.isfinite(gap.value)]
    largest = float(np.quantile(sizes, FULL_SHADE)) if sizes and max(sizes) > 0 else 1.0
    rows = tuple(
        Row(language_name(source), tuple(_pair_cell(gaps.get((source, target)), largest) for target in codes))
        for source in codes
    )
    return Table(caption, ("source", *map(language_name, codes)), rows, text.map_note)


def _pair_cell(gap: BiasScore | None, largest: float) -> Cell:
    if gap is None:
        return Cell("")
    if math.isnan(gap.value):
        return Cell("–", tooltip=undefined(gap))
    excludes_zero = gap.interval is not None and (gap.interval[0] > 0 or gap.interval[1] < 0)
    tooltip = span(gap.interval, 1, sign=True) if gap.interval else ""
    shade = math.copysign(min(1.0, abs(gap.value) / largest), gap.value)
    return Cell(number(gap.value, 1, sign=True), shade=shade, tooltip=tooltip, bold=excludes_zero)


def _source_and_target(gap: BiasScore) -> tuple[str, str]:
    lang, direction = gap.group[LANG], gap.group[DIRECTION]
    source, _, target = lang.partition("-") if direction == XX_XX else (ENGLISH_LANGUAGE.code, "", lang)
    return (target, source) if direction == "xx-en" else (source, target)


def _source_target_table(means: pd.DataFrame, languages: pd.DataFrame) -> Table:
    counts = languages.set_index(LANG)[["masculine", "feminine"]].to_dict("index")
    rows = []
    for row in means.to_dict("records"):
        n_references = counts.get(row[LANG], {})
        cells = (
            *(number_cell(row[f"as_{side}"], 2, sign=True) for side in ("source", "target")),
            *count_cells(row["n_source"], row["n_target"]),
            *(Cell(f"{n_references[it]:,}" if it in n_references else "–") for it in ("masculine", "feminine")),
        )
        rows.append(Row(language_name(row[LANG]), cells))
    columns = ("language", "as source", "as target", "targets", "sources", "masculine refs", "feminine refs")
    return Table(text.source_target_caption, columns, tuple(rows), text.source_target_note)


def _gender_section(scores: Sequence[BiasScore]) -> Section:
    """Return the section on gender: accuracy, and masculine share for sources without a gender (Figures 2, 5)."""
    parts = [_rendering_part(scores)]
    for metric, title in text.accuracies.items():
        by_language: dict[str, dict[str, dict[str, BiasScore]]] = {direction: {} for direction in DIRECTIONS}
        for score in (score for score in scores if score.metric == metric):
            by_gender = by_language[score.group[DIRECTION]].setdefault(score.group[LANG], {})
            by_gender[score.group[GENDER]] = score
        directions = [list(languages.values()) for languages in by_language.values() if languages]
        tables = [_accuracy_table(languages) for languages in directions]
        figures = [figure for languages in directions for figure in _accuracy_figures(languages)]
        parts.append(Section(title, tables=tables, figures=figures))
    return Section("The gender of translations", parts=parts)


def _accuracy_table(languages: Sequence[Mapping[str, BiasScore]]) -> Table:
    rows = []
    for by_gender in languages:
        first, both = next(iter(by_gender.values())), [by_gender.get(gender) for gender in ("masculine", "feminine")]
        counts = (" and ".join(f"{getattr(s, it) if s else 0:,}" for s in both) for it in ("n", "n_left_out"))
        rows.append(Row(_label(first), (*(score_cell(score) for score in both), *map(Cell, counts))))
    columns = ("language", "masculine", "feminine", "translations", "left out")
    return Table(f"{text.headings[first.group[DIRECTION]]}, %; ideal 100", columns, tuple(rows))


def _accuracy_figures(languages: Sequence[Mapping[str, BiasScore]]) -> list[Figure]:
    rows = []
    for by_gender in languages:
        first = next(iter(by_gender.values()))
        in_order = {gender: by_gender.get(gender) for gender in ("masculine", "feminine")}
        if lanes := _lanes(in_order):
            rows.append(GenderRow(_label(first), lanes))
    if not rows:
        return []
    caption = text.accuracy_caption(first.group[DIRECTION])
    return [Figure(caption, svg(gender_chart(caption, rows, decimals=1, ideal=100.0)))]


def _rendering_part(scores: Sequence[BiasScore]) -> Section:
    rows = [
        score_row(_label(score), score, *count_cells(score.n, score.n_left_out))
        for score in sort_by_value((score for score in scores if score.metric == RENDERING), LANG)
    ]
    columns = ("language", "value", "translations", "left out")
    return Section("Sources without a gender", tables=[Table(text.rendering_caption, columns, tuple(rows), ideal=50.0)])


def _toxicity_section(scores: Sequence[BiasScore]) -> Section:
    title, score = "Added toxicity", find_score(scores, TOXICITY)
    if score is None:
        return Section(title)
    row = Row("added toxicity", (score_cell(score), *count_cells(score.n, score.n_left_out)))
    return Section(title, tables=[Table(text.toxicity_caption, ("measure", "value", "texts", "left out"), (row,))])


def _cuts_section(sentences: pd.DataFrame, metric: str, direction: str) -> Section:
    """Return the section of mean sentence scores by axis, descriptor and template (004, Tables 3, 5 and 6)."""
    rows = sentences[sentences[DIRECTION] == direction] if metric in sentences else sentences.head(0)
    label, tables, folded = metric_of(metric).label, [], []
    for by in (AXIS, DESCRIPTOR, TEMPLATE):
        cuts = cut_table(rows[rows[by] != ""], by, metric)
        if cuts.empty:
            continue
        is_long = len(cuts) > 2 * ROWS_AT_EACH_END
        ends = pd.concat([cuts.head(ROWS_AT_EACH_END), cuts.tail(ROWS_AT_EACH_END)]) if is_long else cuts
        tables.append(_cut_table(text.cut_caption(label, by, ROWS_AT_EACH_END, len(cuts)), by, ends))
        if is_long:
            full = _cut_table(text.cut_caption(label, by, ROWS_AT_EACH_END, 0), by, cuts)
            folded.append(Section(f"All by {by}", tables=[full], folded=True))
    note = [text.cuts(direction)] if tables else []
    return Section("By axis, descriptor and template", note, tables, parts=folded)


def _cut_table(caption: str, by: str, cuts: pd.DataFrame) -> Table:
    rows = [
        Row(
            sanitize(str(row[by]), MAX_NAME_LENGTH),
            (
                *(number_cell(row[it]) for it in (*GENDERS, "mean")),
                number_cell(row["gap"], sign=True),
                *count_cells(row["count"]),
            ),
        )
        for row in cuts.to_dict("records")
    ]
    return Table(
        caption, (by, *GENDERS, "mean", "gap", "scores"), tuple(rows), text.without(OUTLIER) if by == AXIS else ""
    )


def _references_section(languages: pd.DataFrame) -> Section:
    is_left_out = languages["left_out"].notna()
    note = text.references(int((~is_left_out).sum()), len(languages), int(languages.loc[~is_left_out, "missing"].sum()))
    left_out_rows = [
        Row(
            sanitize(str(reason), 200),
            (*count_cells(len(rows)), Cell(", ".join(map(language_name, rows[LANG])), prose=True)),
        )
        for reason, rows in languages[is_left_out].groupby("left_out", sort=True)
    ]
    counts = ("sentences", "masculine", "feminine", "replaced_masculine", "replaced_feminine", "missing")
    rows = [
        Row(
            language_name(row[LANG]) + (" (left out)" if left_out else ""),
            (*count_cells(*(row[it] for it in counts)), Cell(_share_replaced(row))),
        )
        for row, left_out in zip(languages.to_dict("records"), is_left_out, strict=True)
    ]
    columns = ("language", *(name.replace("_", " ") for name in counts), "feminine replaced")
    return Section(
        "Languages and references",
        [note],
        [Table("Languages left out", ("reason", "number", "languages"), tuple(left_out_rows))],
        parts=[Section("References by language", tables=[Table("Sentences", columns, tuple(rows))], folded=True)],
    )


def _share_replaced(row: Mapping[str, Any]) -> str:
    compared = row["sentences"] - row["missing"]
    return percent(row["replaced_feminine"] / compared) if compared else "–"
