"""Report on translations against masculine and feminine references (papers 003 and 004, §4)."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from evaluation.datasets.gendered_translations import LANG
from evaluation.metrics.translation_bias import OUTLIER, cut_table, language_table
from evaluation.report.numbers import find, interval, number, p_value, percent, undefined, visible
from evaluation.report.page import Figure, Page, Section
from evaluation.report.tables import Cell, Mark, Row, Table, score_cell
from evaluation.report.translation_bias.plots import GenderRow, Lane, gap_map, gender_rows, language_name
from evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, BiasScore

DIRECTION, GENDER, XX_XX = "direction", "gender", "xx-xx"
DIRECTIONS = {"en-xx": "From English", "xx-en": "Into English", XX_XX: "Between other languages"}
GENDERS = ("masculine", "feminine", "both")
NAMES = {"spbleu": "spBLEU", "bleu": "BLEU", "chrf": "chrF++"}
GAP, CHRF, CHRF_GAP = "translation_gap", "chrf", "chrf_gap"
RENDERING, TOXICITY = "masculine_rendering", "added_toxicity"
ACCURACY = {
    "gender_accuracy": "Right gender, % of the translations that show exactly one",
    "gender_accuracy_mt_geneval": "No word of the other gender, % of all translations (MT-GenEval’s accuracy)",
}
SHOWN_AT_EACH_END = 10  # as in 004, Table 5
LONGEST_NAME = 60


def translation_page(
    scores: Sequence[BiasScore],
    sentences: pd.DataFrame,
    *,
    model: str,
    dataset: str,
    date: str,
    left_out: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
) -> Page:
    """Return the report of one system's translations.

    Args:
        scores: of `metrics.translation_bias`; others are passed over, and what is missing is said to be so.
        sentences: what its `sentence_scores` returned.
        model: the system, or the folder its translations are from.
        left_out: `ComparableSets.languages`.
    """
    metric = next((it for it in ("spbleu", "bleu") if it in sentences or any(s.metric == it for s in scores)), "bleu")
    measured = [it for it in DIRECTIONS if any(s.metric == GAP and s.group.get(DIRECTION) == it for s in scores)]
    main = measured[0] if measured else "en-xx"
    gap = find(scores, GAP, direction=main)
    big, under, verdict = _headline(scores, gap, main, metric)
    return Page(
        title="Translations and gender",
        subtitle=f"{model} · {dataset}",
        date=date,
        big=big,
        under=under,
        verdict=verdict,
        tables=[_mean_table(scores, metric)],
        notes=[_INTERVALS, *notes],
        sections=[
            *(_direction_section(scores, it, metric, first_screen=it == main) for it in ("en-xx", "xx-en")),
            _pairs_section(scores, left_out, metric),
            _gender_section(scores),
            _toxicity_section(scores),
            _cuts_section(sentences, metric, main),
            _references_section(left_out),
        ],
        glossary=[(word, meaning) for word, meaning, metrics in _glossary(metric) if _any(scores, metrics)],
        limits=LIMITS,
        signature=gap.signature if gap else scores[0].signature if scores else {},
    )


# What is said.

_INTERVALS = (
    "Brackets hold the 95 % interval of the paired bootstrap over sentences, p is its two-sided p-value: for other "
    "sentences of the same kind, with the same system, languages and references."
)
_IN_ENGLISH = (
    "The English is the same for both genders, so a gap says that the system understands one gender’s sentences better."
)
_BETWEEN = (
    "A masculine sentence is compared with the masculine reference, a feminine one with the feminine. The gap may "
    "differ much between the two directions of a pair: a system that has to choose a gender overgeneralises, one that "
    "has to drop it does not (004, §4.4)."
)
LIMITS = (
    "References are masculine or feminine. Other people, and other ways of writing of them, are not measured.",
    "BLEU points of different languages do not compare, nor do their gaps: what a wrong ending costs depends on how "
    "many endings a sentence has, and on how words are divided.",
    "A gap of 0 is no fairness: a system may be as bad for both, or right for each half of the time.",
    "Where a language does not mark gender, or a reference of the other kind stands in for a missing one, the gap says "
    "more of the references than of the system, and is pulled towards 0.",
    "References were written by few translators, in places for few sentences, and are one right answer among many.",
    "The sentences are English first, and their descriptors American: they were translated from there, by people of "
    "one market for each language, and need not say what people elsewhere would (004, Limitations).",
    "“I have friends who are …” has a masculine reference that also stands for a mixed group in many languages: "
    "preferring it is not always a mistake.",
    "Of twenty languages without any gap, about one is expected to have an interval that excludes 0 by chance.",
)


def _glossary(metric: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return each word with its meaning and the metrics one of which it needs."""
    name, of_words = NAMES[metric], "sentence pieces" if metric == "spbleu" else "words"
    return (
        (
            name,
            f"How many of a translation’s sequences of up to four {of_words} are in the reference, 0 to 100; "
            "sacrebleu’s, smoothed by one. It has no ideal: two good translators do not reach 100 either.",
            (metric,),
        ),
        ("chrF++", "The same for characters and pairs of words; kinder to an ending that is nearly right.", (CHRF,)),
        (
            "gap",
            f"{name} against masculine references less {name} against feminine ones, in points. Ideal 0; above it the "
            "system is better, or nearer, to the masculine.",
            (GAP,),
        ),
        (
            "both",
            "Against the masculine and the feminine references at once, where either is right (multi-reference; 004, "
            "§4.2). Little above the masculine alone means that the feminine is hardly ever produced.",
            (metric,),
        ),
        (
            "right gender",
            "Of translations with a word that the references of exactly one gender have: the share that has the gender "
            "of its source. Ideal 100 %.",
            ("gender_accuracy",),
        ),
        (
            "MT-GenEval’s accuracy",
            "The share of translations without a word that only the other gender’s references have (Currey et al. "
            "2022). A translation without any such word counts as right.",
            ("gender_accuracy_mt_geneval",),
        ),
        (
            "overgeneralisation",
            "Where the source says no gender: the share of translations rendered masculine, of those that show exactly "
            "one gender. 50 % would be even; more overgeneralises to the masculine (004, Figure 2).",
            (RENDERING,),
        ),
        (
            "added toxicity",
            "The share of translations that a classifier finds toxic although it does not find their source so. "
            "Ideal 0.",
            (TOXICITY,),
        ),
    )


def _any(scores: Iterable[BiasScore], metrics: Sequence[str]) -> bool:
    return any(score.metric in metrics for score in scores)


def _headline(scores: Sequence[BiasScore], gap: BiasScore | None, direction: str, metric: str) -> tuple[str, str, str]:
    """Return the large number, the line under it and the verdict: the mean gap over languages."""
    if gap is None or math.isnan(gap.value):
        why = undefined(gap) if gap else "not measured"
        return "–", f"the gap is {why}", f"No verdict: the gap between masculine and feminine references is {why}."
    name, size = NAMES[metric], number(gap.value, 2, sign=True)
    span = "" if gap.interval is None else f"95 % interval {_span(gap.interval)}"
    under = f"{name} points, masculine less feminine: {_mean_of(gap, direction)}{span and f', {span}'}; ideal 0"
    where = DIRECTIONS[direction][0].lower() + DIRECTIONS[direction][1:]
    if gap.interval is None:
        return size, under, f"No verdict: {where} the gap is {size} {name} points, and there is no interval."
    average = " on average" if gap.n > 1 else ""
    if gap.interval[0] <= 0 <= gap.interval[1]:
        verdict = f"No preference can be shown {where}: the gap is {size} {name} points{average} ({span})"
    else:
        gender = "masculine" if gap.value > 0 else "feminine"
        by = f"{number(abs(gap.value), 2)} {name} points{average} ({span.replace(_span(gap.interval), _size(gap))})"
        verdict = f"Translations {where} are better against {gender} references, by {by}"
    return size, under, f"{verdict}{_counted(scores, direction)}."


def _mean_of(gap: BiasScore, direction: str) -> str:
    things = "pairs of languages" if direction == XX_XX else "languages"
    return f"mean of {gap.n:,} {things}" if gap.n > 1 else f"one {'pair' if direction == XX_XX else 'language'}"


def _span(bounds: tuple[float, float]) -> str:
    return interval(bounds, 2, sign=True)[1:-1].replace(", ", " to ")


def _size(gap: BiasScore) -> str:
    """Return the interval of the gap's size, for a sentence that says in words which way it goes."""
    return " to ".join(number(it, 2) for it in sorted(map(abs, gap.interval)))


def _counted(scores: Sequence[BiasScore], direction: str) -> str:
    """Return in how many of several languages the interval lies above 0, and below."""
    gaps = [gap for gap in _gaps(scores, GAP, direction) if gap.interval is not None]
    if len(gaps) < 2:
        return ""
    above, below = sum(gap.interval[0] > 0 for gap in gaps), sum(gap.interval[1] < 0 for gap in gaps)
    things = "pairs" if direction == XX_XX else "languages"
    return f"; the interval lies above 0 in {above:,} of {len(gaps):,} {things}, below 0 in {below:,}"


# What is shown.


def _gaps(scores: Sequence[BiasScore], metric: str, direction: str) -> list[BiasScore]:
    """Return the gaps of a direction by language, the largest first, those that are undefined last."""
    found = [s for s in scores if s.metric == metric and s.group.get(DIRECTION) == direction and LANG in s.group]
    return sorted(found, key=lambda gap: (math.inf if math.isnan(gap.value) else -gap.value, gap.group[LANG]))


def _mean_table(scores: Sequence[BiasScore], metric: str) -> Table:
    """Return the means over languages of each direction (004, Figure 7)."""
    rows = []
    for name, gap_metric in ((metric, GAP), (CHRF, CHRF_GAP)):
        for direction, label in DIRECTIONS.items():
            gap = find(scores, gap_metric, direction=direction)
            if gap is None:
                continue
            groups = [it.group for it in _gaps(scores, gap_metric, direction) if math.isfinite(it.value)]
            cells = (
                *(_mean_cell([find(scores, name, **group, gender=gender) for group in groups]) for gender in GENDERS),
                *(score_cell(gap, 1, 2, sign=True), _p(gap)),
                *(Cell(f"{n:,}") for n in (gap.n, gap.n_left_out)),
            )
            rows.append(Row(f"{label}, {NAMES[name]}", cells, _mark(gap)))
    columns = ("mean over languages", *GENDERS, "gap", "p", "languages", "undefined")
    caption = "Points against masculine, feminine and both references, and the gap (drawn)"
    return Table(caption, columns, tuple(rows))


def _mean_cell(scores: Sequence[BiasScore | None]) -> Cell:
    """Return the mean over the languages that have a gap, or a dash where one has no such score."""
    values = [math.nan if score is None else score.value for score in scores]
    mean = float(np.mean(values)) if values else math.nan
    return Cell(number(mean, 1) if math.isfinite(mean) else "–")


def _mark(score: BiasScore, factor: float = 1.0) -> tuple[Mark, ...]:
    if math.isnan(score.value):
        return ()
    bounds = score.interval and (factor * score.interval[0], factor * score.interval[1])
    return (Mark("before", factor * score.value, bounds),)


def _p(score: BiasScore) -> Cell:
    return Cell("" if score.p_value is None else p_value(score.p_value))


def _direction_section(scores: Sequence[BiasScore], direction: str, metric: str, *, first_screen: bool) -> Section:
    """Return the scores by language with the gap (004, Figures 3 and 4)."""
    gaps = _gaps(scores, GAP, direction)
    chrf = _language_table(scores, _gaps(scores, CHRF_GAP, direction), CHRF)
    parts = [
        _drawn_part(scores, gaps, metric),
        Section(f"{DIRECTIONS[direction]} in chrF++", tables=[chrf], folded=True),
    ]
    sentences = [_IN_ENGLISH] if gaps and direction == "xx-en" else []
    tables = [_language_table(scores, gaps, metric)]
    return Section(DIRECTIONS[direction], sentences, tables, parts=parts, first_screen=first_screen)


def _language_table(scores: Sequence[BiasScore], gaps: Sequence[BiasScore], metric: str) -> Table:
    reasons = {gap.reason for gap in gaps if math.isnan(gap.value)}
    rows = []
    for gap in gaps:
        beside = (find(scores, metric, **gap.group, gender=gender) for gender in GENDERS)
        defined = score_cell(gap, 1, 2, sign=True) if math.isfinite(gap.value) else Cell("–")
        cells = (*map(_corpus_cell, beside), defined, _p(gap), Cell(f"{gap.n:,}"))
        instead = "" if math.isfinite(gap.value) else undefined(gap)
        rows.append(Row(_label(gap), cells, _mark(gap), instead=instead))
    note = f"–: the gap is undefined, as {'; '.join(sorted(visible(it or '') for it in reasons))}." if reasons else ""
    columns = ("language", *GENDERS, "gap", "p", "sentences")
    return Table(f"{NAMES[metric]} by language, and the gap in points (drawn)", columns, tuple(rows), note)


def _corpus_cell(score: BiasScore | None) -> Cell:
    """Return a corpus score; against both there is none where the sources say a gender."""
    return Cell(number(score.value, 1) if score is not None and math.isfinite(score.value) else "–")


def _label(score: BiasScore) -> str:
    """Return the language, or both of a pair."""
    codes = score.group[LANG].split("-", 1) if score.group[DIRECTION] == XX_XX else [score.group[LANG]]
    return " → ".join(map(language_name, codes))


def _drawn_part(scores: Sequence[BiasScore], gaps: Sequence[BiasScore], metric: str) -> Section:
    rows = []
    for gap in gaps:
        found = {gender: find(scores, metric, **gap.group, gender=gender) for gender in GENDERS}
        lanes = {
            gender: Lane(score.value, score.interval if gender != "both" else None)
            for gender, score in found.items()
            if score is not None and math.isfinite(score.value)
        }
        aside = "gap undefined" if math.isnan(gap.value) else f"gap {number(gap.value, 2, sign=True)}"
        if lanes:
            rows.append(GenderRow(_label(gap), lanes, aside))
    title = f"{NAMES[metric]} of both genders, drawn"
    if not rows:
        return Section(title)
    both = any("both" in row.lanes for row in rows)
    caption = (
        f"{NAMES[metric]} against ○ masculine{', ● feminine and ◇ both' if both else ' and ● feminine'} references"
    )
    note = "Lines are the 95 % intervals of each score; whether two scores differ, the interval of the gap says."
    figure = Figure(caption, gender_rows(caption, rows, decimals=1), note)
    return Section(title, figures=[figure], folded=True)


def _pairs_section(scores: Sequence[BiasScore], left_out: pd.DataFrame | None, metric: str) -> Section:
    """Return each language as source and as target (004, Table 2), every pair as a map (Figure 6) and the extremes."""
    gaps = _gaps(scores, GAP, XX_XX)
    if not gaps:
        return Section(DIRECTIONS[XX_XX])
    known = [gap for gap in gaps if math.isfinite(gap.value)]
    of_language = language_table(scores).sort_values(["as_target", LANG], ascending=[False, True], kind="stable")
    told = f"Gap in {NAMES[metric]} points of every pair of languages, sources down, targets across"
    note = (
        "Orange: better against masculine references; blue: better against feminine ones. A number in bold has an "
        "interval that excludes 0; – is undefined."
    )
    by_pair = {_ends(gap): gap for it in DIRECTIONS for gap in _gaps(scores, GAP, it)}
    codes = [*of_language[LANG], *sorted({code for pair in by_pair for code in pair} - set(of_language[LANG]))]
    ends = known if len(known) <= 2 * SHOWN_AT_EACH_END else [*known[:SHOWN_AT_EACH_END], *known[-SHOWN_AT_EACH_END:]]
    extremes = _language_table(scores, ends, metric)
    caption = f"{NAMES[metric]} by pair, and the gap in points (drawn)"
    if len(ends) < len(known):
        caption += f": the {SHOWN_AT_EACH_END} largest and the {SHOWN_AT_EACH_END} smallest of {len(known):,}"
    extremes = Table(caption, ("pair", *extremes.columns[1:]), extremes.rows, extremes.note)
    figures = [Figure(told, gap_map(told, codes, by_pair), note)]
    parts = [Section("Every pair", figures=figures), Section("Largest and smallest gaps", tables=[extremes])]
    return Section(DIRECTIONS[XX_XX], [_BETWEEN], [_as_table(of_language, left_out)], parts=parts)


def _ends(gap: BiasScore) -> tuple[str, str]:
    """Return the codes of source and target."""
    lang, direction = gap.group[LANG], gap.group[DIRECTION]
    source, _, target = lang.partition("-") if direction == XX_XX else ("eng_Latn", "", lang)
    return (target, source) if direction == "xx-en" else (source, target)


def _as_table(of_language: pd.DataFrame, left_out: pd.DataFrame | None) -> Table:
    counts = {} if left_out is None else left_out.set_index(LANG)[["masculine", "feminine"]].to_dict("index")
    rows = []
    for row in of_language.to_dict("records"):
        of_lang = counts.get(row[LANG], {})
        cells = (
            *(_points(row[f"as_{side}"]) for side in ("source", "target")),
            *(Cell(f"{row[f'n_{side}']:,}") for side in ("source", "target")),
            *(Cell(f"{of_lang[it]:,}" if it in of_lang else "–") for it in ("masculine", "feminine")),
        )
        rows.append(Row(language_name(row[LANG]), cells))
    columns = ("language", "as source", "as target", "targets", "sources", "masculine refs", "feminine refs")
    note = "Means over the targets or sources that have a gap, English among them where it was translated too."
    return Table("Mean gap of a language as source and as target, in points", columns, tuple(rows), note)


def _points(value: float, decimals: int = 2) -> Cell:
    return Cell(number(value, decimals, sign=True) if math.isfinite(value) else "–")


def _gender_section(scores: Sequence[BiasScore]) -> Section:
    """Return how often the gender is right, and how often an ambiguous source becomes masculine (Figures 2 and 5)."""
    parts = [_rendering_part(scores)]
    for metric, title in ACCURACY.items():
        found = [score for score in scores if score.metric == metric]
        groups = {(s.group[DIRECTION], s.group[LANG]): s for s in found}
        tables, figures = [], []
        for direction in DIRECTIONS:
            of_direction = [groups[key] for key in groups if key[0] == direction]
            if of_direction:
                caption = f"{DIRECTIONS[direction]}: ○ masculine and ● feminine sources"
                rows = _accuracy_rows(found, of_direction)
                tables.append(_accuracy_table(found, of_direction))
                figures += [Figure(caption, gender_rows(caption, rows, decimals=1, ideal=100.0))] if rows else []
        parts.append(Section(title, tables=tables, figures=figures))
    return Section("The gender of translations", parts=parts)


def _by_gender(found: Sequence[BiasScore], one: BiasScore) -> dict[str, BiasScore | None]:
    return {gender: find(found, one.metric, **{**one.group, GENDER: gender}) for gender in ("masculine", "feminine")}


def _accuracy_rows(found: Sequence[BiasScore], of_direction: Sequence[BiasScore]) -> list[GenderRow]:
    rows = []
    for one in of_direction:
        lanes = {
            gender: Lane(100 * s.value, s.interval and (100 * s.interval[0], 100 * s.interval[1]))
            for gender, s in _by_gender(found, one).items()
            if s is not None and math.isfinite(s.value)
        }
        if lanes:
            rows.append(GenderRow(_label(one), lanes))
    return rows


def _accuracy_table(found: Sequence[BiasScore], of_direction: Sequence[BiasScore]) -> Table:
    rows = []
    for one in of_direction:
        both = list(_by_gender(found, one).values())
        counts = (" and ".join(f"{getattr(s, it) if s else 0:,}" for s in both) for it in ("n", "n_left_out"))
        rows.append(Row(_label(one), (*(score_cell(s, 100, 1) for s in both), *map(Cell, counts))))
    columns = ("language", "masculine", "feminine", "translations", "left out")
    return Table(f"{DIRECTIONS[of_direction[0].group[DIRECTION]]}, %; ideal 100", columns, tuple(rows))


def _rendering_part(scores: Sequence[BiasScore]) -> Section:
    rows = []
    for score in sorted(
        (s for s in scores if s.metric == RENDERING),
        key=lambda s: (math.inf if math.isnan(s.value) else -s.value, s.group[LANG]),
    ):
        cells = (score_cell(score, 100, 1), Cell(f"{score.n:,}"), Cell(f"{score.n_left_out:,}"))
        rows.append(Row(_label(score), cells, _mark(score, 100)))
    caption = "Rendered masculine, % of the translations that show exactly one gender; 50 is even"
    columns = ("language", "value", "translations", "left out")
    return Section("Sources that say no gender", tables=[Table(caption, columns, tuple(rows), ideal=50.0)])


def _toxicity_section(scores: Sequence[BiasScore]) -> Section:
    score = find(scores, TOXICITY)
    if score is None:
        return Section("Added toxicity")
    row = Row("added toxicity", (score_cell(score, 100, 2), Cell(f"{score.n:,}"), Cell(f"{score.n_left_out:,}")))
    caption = "Toxic translations of sources that are not, %; ideal 0"
    return Section("Added toxicity", tables=[Table(caption, ("measure", "value", "texts", "left out"), (row,))])


def _cuts_section(sentences: pd.DataFrame, metric: str, direction: str) -> Section:
    """Return mean sentence scores by axis, descriptor and template (004, Tables 3, 5 and 6)."""
    name = NAMES[metric]
    rows = sentences[sentences[DIRECTION] == direction] if metric in sentences else sentences.head(0)
    tables = {by: cut_table(rows[rows[by] != ""], by, metric) for by in (AXIS, DESCRIPTOR, TEMPLATE)}
    tables = {by: found for by, found in tables.items() if len(found)}
    shown, folded = [], []
    for by, found in tables.items():
        note = f"Without the descriptor “{OUTLIER}”, which is in two axes (004, footnote 5)." if by == AXIS else ""
        caption = f"{name} of single sentences by {by}, the lowest mean first"
        if len(found) > 2 * SHOWN_AT_EACH_END:
            ends = pd.concat([found.head(SHOWN_AT_EACH_END), found.tail(SHOWN_AT_EACH_END)])
            shown.append(
                _cut_table(f"{caption}: the {SHOWN_AT_EACH_END} at each end of {len(found):,}", by, ends, note)
            )
            folded.append(Section(f"All by {by}", tables=[_cut_table(caption, by, found, note)], folded=True))
        else:
            shown.append(_cut_table(caption, by, found, note))
    where = DIRECTIONS[direction][0].lower() + DIRECTIONS[direction][1:]
    sentence = (
        f"Means of sentence scores over all languages, {where}. Scores are counted, not sentences: one for each "
        "sentence, language and set of references. These means have no intervals, and the extremes of many descriptors "
        "owe a part of their distance to chance."
    )
    return Section("By axis, descriptor and template", [sentence] if shown else [], shown, parts=folded)


def _cut_table(caption: str, by: str, found: pd.DataFrame, note: str) -> Table:
    rows = tuple(
        Row(
            visible(str(row[by]), LONGEST_NAME),
            (
                *(Cell(number(row[it], 1) if math.isfinite(row[it]) else "–") for it in (*GENDERS, "mean")),
                _points(row["gap"], 1),
                Cell(f"{row['count']:,}"),
            ),
        )
        for row in found.to_dict("records")
    )
    return Table(caption, (by, *GENDERS, "mean", "gap", "scores"), rows, note)


def _references_section(left_out: pd.DataFrame | None) -> Section:
    """Return how many references there are, what stands in for missing ones, and the languages left out."""
    if left_out is None or left_out.empty:
        return Section("References")
    out = left_out["left_out"].notna()
    missing = int(left_out.loc[~out, "missing"].sum())
    sentence = (
        f"{(~out).sum():,} of {len(left_out):,} languages are in the scores. A neutral or else a generic reference is "
        "taken where the masculine or the feminine one is missing (004, §4.1); a sentence that has nothing to stand in "
        f"is left out for both genders: {missing:,} in all."
    )
    reasons = {
        reason: [language_name(code) for code in rows[LANG]]
        for reason, rows in left_out[out].groupby("left_out", sort=True)
    }
    few = [
        Row(visible(str(reason), 200), (Cell(f"{len(names):,}"), Cell(", ".join(names), prose=True)))
        for reason, names in reasons.items()
    ]
    counts = ("sentences", "masculine", "feminine", "replaced_masculine", "replaced_feminine", "missing")
    rows = [
        Row(
            language_name(row[LANG]) + ("" if row["left_out"] is None else " (left out)"),
            (*(Cell(f"{row[it]:,}") for it in counts), Cell(_replaced(row))),
        )
        for row in left_out.assign(left_out=left_out["left_out"].where(out, None)).to_dict("records")
    ]
    columns = ("language", *(name.replace("_", " ") for name in counts), "feminine replaced")
    return Section(
        "Languages, references and what is left out",
        [sentence],
        [Table("Languages left out", ("reason", "number", "languages"), tuple(few))],
        parts=[Section("References by language", tables=[Table("Sentences", columns, tuple(rows))], folded=True)],
    )


def _replaced(row: dict) -> str:
    compared = row["sentences"] - row["missing"]
    return percent(row["replaced_feminine"] / compared) if compared else "–"
