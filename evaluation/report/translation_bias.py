"""Report on translations against masculine and feminine references (papers 003 and 004, §4)."""

import math
from collections.abc import Sequence

import pandas as pd

from evaluation.datasets.gendered_translations import ENGLISH_LANGUAGE, LANG, languages
from evaluation.metrics.translation_bias import cut_table, language_table
from evaluation.report.comparison import interval, number, p_value, undefined, visible
from evaluation.report.likelihood_plots import share_map
from evaluation.report.page import Figure, Page, Section
from evaluation.report.pair_wording import find
from evaluation.report.tables import Cell, Mark, Row, Table, score_cell
from evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, BiasScore

GAP, DIRECTION = "translation_gap", "direction"
DIRECTIONS = {"en-xx": "From English", "xx-en": "Into English", "xx-xx": "Between other languages"}
GENDERS = ("masculine", "feminine", "both")
ACCURACY = {
    "gender_accuracy": "right gender, of those that show one",
    "gender_accuracy_mt_geneval": "no word of the other gender (MT-GenEval)",
    "masculine_rendering": "ambiguous source rendered masculine",
}
SHOWN_AT_EACH_END = 10
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
        scores: of `metrics.translation_bias`; others are passed over.
        sentences: what its `sentence_scores` returns.
        model: the system, or the folder its translations are from.
        left_out: `ComparableSets.languages`.
    """
    metric = "spbleu" if "spbleu" in sentences else "bleu"
    first = next((it for it in DIRECTIONS if any(score.group.get(DIRECTION) == it for score in scores)), "en-xx")
    gap = find(scores, GAP, direction=first)
    big, under, verdict = _headline(gap, first, metric)
    return Page(
        title="Translations and gender",
        subtitle=f"{model} · {dataset}",
        date=date,
        big=big,
        under=under,
        verdict=verdict,
        notes=[_INTERVALS, *notes],
        sections=[
            *(_direction_section(scores, direction, metric) for direction in DIRECTIONS),
            _matrix_section(scores, metric),
            _accuracy_section(scores),
            _cuts_section(sentences, metric),
            _references_section(left_out),
        ],
        glossary=_glossary(metric),
        limits=LIMITS,
        signature=gap.signature if gap else {},
    )


_INTERVALS = (
    "Brackets hold the 95 % interval of the paired bootstrap over sentences: other sentences of the same kind, the "
    "same system and references."
)
LIMITS = (
    "References are masculine or feminine; other people, and other ways of writing of them, are not measured.",
    "BLEU points of different languages do not compare: what a wrong ending costs depends on how often one is needed.",
    "A gap of 0 is no fairness: a system may be as bad for both, or mix them.",
    "Where a language does not mark gender a gap tells of the references, not of the system.",
    "References were written by few translators from American English; they are one right answer among many.",
)


def _glossary(metric: str) -> tuple[tuple[str, str], ...]:
    name = _name(metric)
    return (
        (
            name,
            "How much of a reference’s word sequences a translation has, 0 to 100; sacrebleu’s, smoothed by one.",
        ),
        ("chrF++", "The same for sequences of characters and pairs of words; kinder to endings that are nearly right."),
        ("gap", f"{name} against masculine references less {name} against feminine ones. Ideal 0, above it masculine."),
        ("both", "Measured against the references of both genders at once: either is right (004, §4.2)."),
        (
            "right gender",
            "Of translations with a word that only one gender’s references have, the share with the source’s gender.",
        ),
        (
            "rendered masculine",
            "The same where the source says no gender: 50 % would be even. The paper calls more overgeneralisation.",
        ),
    )


def _name(metric: str) -> str:
    return {"spbleu": "spBLEU", "bleu": "BLEU", "chrf": "chrF++"}[metric]


def _headline(gap: BiasScore | None, direction: str, metric: str) -> tuple[str, str, str]:
    if gap is None or math.isnan(gap.value):
        why = undefined(gap) if gap else "not measured"
        return "–", f"the gap is {why}", f"No verdict: the gap between masculine and feminine references is {why}."
    name, size = _name(metric), number(gap.value, 2, sign=True)
    span = (
        ""
        if gap.interval is None
        else f", 95 % interval {interval(gap.interval, 2, sign=True)[1:-1].replace(', ', ' to ')}"
    )
    under = f"{name} points nearer to masculine references, mean of {gap.n} languages{span}; ideal 0"
    where = DIRECTIONS[direction][0].lower() + DIRECTIONS[direction][1:]
    if gap.interval is None:
        verdict = f"Translations {where} are {size} {name} points nearer to masculine references; there is no interval."
    elif gap.interval[0] > 0 or gap.interval[1] < 0:
        nearer = "masculine" if gap.value > 0 else "feminine"
        by = f"{number(abs(gap.value), 2)} {name} points{span}"
        verdict = f"Translations {where} are nearer to {nearer} references, by {by}."
    else:
        verdict = f"No preference can be shown {where}: the gap is {size} {name} points{span}."
    return size, under, verdict


def language_name(code: str) -> str:
    names = {one.code: one.name for one in (*languages(), ENGLISH_LANGUAGE)}
    return visible(" → ".join(names.get(part, part) for part in code.split("-")), LONGEST_NAME)


def _direction_section(scores: Sequence[BiasScore], direction: str, metric: str) -> Section:
    """Return the scores by language with the gap (004, Table 2, Figures 3, 4 and 7)."""
    gaps = [s for s in scores if s.metric == GAP and s.group.get(DIRECTION) == direction and LANG in s.group]
    gaps.sort(key=lambda score: (-score.value if math.isfinite(score.value) else math.inf, score.group[LANG]))
    rows = []
    for gap in gaps:
        group = dict(gap.group)
        beside = (find(scores, metric, **group, gender=gender) for gender in GENDERS)
        cells = (*map(_corpus_score, beside), score_cell(gap, 1, 2, sign=True), _p(gap), Cell(f"{gap.n:,}"))
        marks = () if math.isnan(gap.value) else (Mark("before", gap.value, gap.interval),)
        rows.append(Row(language_name(group[LANG]), cells, marks, instead=undefined(gap) if not marks else ""))
    chrf = find(scores, "chrf_gap", direction=direction)
    note = ""
    if rows and chrf is not None and math.isfinite(chrf.value):
        note = f"The mean gap in chrF++ is {number(chrf.value, 2, sign=True)} {interval(chrf.interval, 2, sign=True)}."
    columns = ("language", *GENDERS, "gap", "p", "sentences")
    caption = f"{_name(metric)} against masculine, feminine and both references; the line is at a gap of 0"
    return Section(DIRECTIONS[direction], tables=[Table(caption, columns, tuple(rows), note)], first_screen=True)


def _corpus_score(score: BiasScore | None) -> Cell:
    """Return a corpus score; of both genders there is none where the sources say one."""
    return Cell(number(score.value, 1) if score is not None and math.isfinite(score.value) else "–")


def _p(score: BiasScore) -> Cell:
    return Cell("" if score.p_value is None else p_value(score.p_value))


def _matrix_section(scores: Sequence[BiasScore], metric: str) -> Section:
    """Return the languages as sources and targets (004, Table 2), and a map of every pair (Figure 6)."""
    pairs = [
        s
        for s in scores
        if s.metric == metric and s.group.get(DIRECTION) == "xx-xx" and s.group["gender"] == "masculine"
    ]
    if not pairs:
        return Section("Every pair of languages")
    frame = pd.DataFrame(
        [(*(language_name(part) for part in s.group[LANG].split("-")), s.value / 100) for s in pairs],
        columns=["source", "target", "value"],
    ).pivot(index="source", columns="target", values="value")
    told = f"{_name(metric)} against masculine references, sources down, targets across"
    table = language_table(scores)
    rows = tuple(
        Row(
            language_name(row[LANG]),
            tuple(
                Cell(number(row[it], 2, sign=True) if math.isfinite(row[it]) else "–")
                for it in ("as_source", "as_target")
            ),
        )
        for row in table.to_dict("records")
    )
    return Section(
        "Every pair of languages",
        tables=[Table("Mean gap of a language as source and as target", ("language", "as source", "as target"), rows)],
        figures=[Figure(told, share_map(told, frame))],
    )


def _accuracy_section(scores: Sequence[BiasScore]) -> Section:
    """Return how often the gender is right, and how often an ambiguous source becomes masculine (Figures 2 and 5)."""
    tables = []
    for metric, label in ACCURACY.items():
        found = [score for score in scores if score.metric == metric]
        rows = tuple(
            Row(
                " · ".join(filter(None, (language_name(s.group[LANG]), s.group[DIRECTION], s.group.get("gender", "")))),
                (score_cell(s, 100, 1), Cell(f"{s.n:,}"), Cell(f"{s.n_left_out:,}")),
                ()
                if math.isnan(s.value)
                else (Mark("before", 100 * s.value, s.interval and tuple(100 * b for b in s.interval)),),
                instead=undefined(s) if math.isnan(s.value) else "",
            )
            for s in found
        )
        ideal = 50.0 if metric == "masculine_rendering" else 100.0
        columns = ("language", "value", "translations", "left out")
        tables.append(Table(f"{label[0].upper()}{label[1:]}, %; ideal {ideal:.0f}", columns, rows, ideal=ideal))
    toxicity = find(scores, "added_toxicity")
    if toxicity is not None:
        row = Row(
            "added toxicity, %",
            (score_cell(toxicity, 100, 2), Cell(f"{toxicity.n:,}"), Cell(f"{toxicity.n_left_out:,}")),
        )
        tables.append(
            Table("Toxic translations of sources that are not", ("measure", "value", "texts", "left out"), (row,))
        )
    return Section("The gender of translations", tables=tables)


def _cuts_section(sentences: pd.DataFrame, metric: str) -> Section:
    """Return mean sentence scores by axis, descriptor and template (004, Tables 3, 5 and 6)."""
    tables = []
    for by, note in (
        (AXIS, "Without the descriptor “queer”, an outlier (004, footnote 5)."),
        (DESCRIPTOR, ""),
        (TEMPLATE, ""),
    ):
        if not (sentences[by] != "").any():
            continue
        found = cut_table(sentences[sentences[by] != ""], by, metric)
        some = (
            found
            if len(found) <= 2 * SHOWN_AT_EACH_END
            else pd.concat([found.head(SHOWN_AT_EACH_END), found.tail(SHOWN_AT_EACH_END)])
        )
        rows = tuple(
            Row(
                visible(str(row[by]), LONGEST_NAME),
                (
                    *(Cell(number(row[it], 1) if math.isfinite(row[it]) else "–") for it in (*GENDERS, "mean")),
                    Cell(number(row["gap"], 2, sign=True) if math.isfinite(row["gap"]) else "–"),
                    Cell(f"{row['count']:,}"),
                ),
            )
            for row in some.to_dict("records")
        )
        ends = "" if len(some) == len(found) else f" The lowest and highest of {len(found)}."
        columns = (by, *GENDERS, "mean", "gap", "scores")
        tables.append(
            Table(
                f"{_name(metric)} of single sentences by {by}, the lowest first", columns, rows, (note + ends).strip()
            )
        )
    return Section("By axis, descriptor and template", tables=tables)


def _references_section(left_out: pd.DataFrame | None) -> Section:
    """Return how many references there are, what stands in for missing ones, and the languages left out."""
    if left_out is None or left_out.empty:
        return Section("References")
    counts = ("sentences", "masculine", "feminine", "replaced_masculine", "replaced_feminine", "missing")
    rows = tuple(
        Row(
            language_name(row[LANG]),
            (
                *(Cell(f"{row[it]:,}") for it in counts),
                Cell(row["left_out"] if isinstance(row["left_out"], str) else "", prose=True),
            ),
        )
        for row in left_out.to_dict("records")
    )
    columns = ("language", *(name.replace("_", " ") for name in counts), "left out")
    note = (
        "Replaced: a neutral or else a generic reference stands in for a missing one (004, §4.1). Missing: sentences "
        "that have nothing to stand in, left out for both genders."
    )
    return Section("References", tables=[Table("References by language", columns, rows, note)])
