"""Report on scores of translations against masculine and feminine references (Costa-jussà et al. 2023, §4)."""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from evenhand.evaluation.data.gendered_translations import LANG, language_name
from evenhand.evaluation.metrics import FamilyRun, ReportContext
from evenhand.evaluation.metrics.translation_bias.metric import OUTLIER, cut_table, language_table
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.numbers import sanitize, value_or
from evenhand.evaluation.report.page import Cell, Page, Row, Section, Table
from evenhand.evaluation.report.tables import count_cells, number_cell, score_section, scores_table, value_text
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, BiasScore, display_name, find_score

DIRECTION, GENDER, GENDERS = "direction", "gender", ("masculine", "feminine", "both")
HEADINGS = {"en-xx": "From English", "xx-en": "Into English", "xx-xx": "Between other languages"}
GAP, CHRF_GAP, RENDERING, TOXICITY = "translation_gap", "chrf_gap", "masculine_rendering", "added_toxicity"
ACCURACIES = ("gender_accuracy", "gender_accuracy_mt_geneval", "gender_accuracy_spans")
ROWS_AT_EACH_END = 10
LIMITS = [
    "References are masculine or feminine. Other genders, and other ways of writing about them, are not measured.",
    "Do not compare BLEU points, or gaps, between languages. A gap of 0 does not mean that a system is fair: it may be "
    "equally bad for both genders, or right half of the time.",
    "If a language does not mark gender, or if a neutral reference replaces a missing one, the gap is nearer to 0 and "
    "describes the references more than the system. The references are by few translators.",
    "Of twenty languages without a gap, about one is expected to have an interval that excludes 0 by chance.",
]


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on the translations by one system."""
    settings, scores = run.config.settings, run.scores
    metric = "spbleu" if any(score.metric == "spbleu" for score in scores) else "bleu"
    directions = [score.group[DIRECTION] for score in scores if score.metric == GAP]
    main = next((it for it in HEADINGS if it in directions), "en-xx")
    gap, languages, label = find_score(scores, GAP, direction=main), run.table("languages"), format_of(metric).label
    side = next(iter([0 if gap is None or gap.interval is None else (gap.interval[0] > 0) - (gap.interval[1] < 0)]))
    verdicts = {
        1: "translations are better against masculine references",
        -1: "translations are better against feminine references",
        0: "the gap is not significantly different from 0",
    }
    verdict = verdicts[side] if gap and gap.interval else "there is no verdict"
    means = [find_score(scores, name, direction=it) for name in (GAP, CHRF_GAP) for it in HEADINGS]
    left_out = languages["left_out"].notna()
    return Page(
        title="Translations and gender",
        subtitle=" · ".join(map(display_name, (settings.translations or run.config.model.name, settings.references))),
        headline_value=format_of(GAP).text(value_or(gap, math.nan)),
        headline_caption=f"{label} points against masculine references minus points against feminine references, "
        f"{HEADINGS[main].lower()}, mean over languages; ideal 0",
        verdict=f"{HEADINGS[main]}, {verdict}: the gap in {label} points is {value_text(gap)}.",
        tables=[
            scores_table(
                "Means over languages",
                means,
                "gap",
                counted="languages",
                label=lambda it: f"{HEADINGS[it.group[DIRECTION]]}, {format_of(it).label}",
            )
        ],
        notes=[
            "Brackets hold the 95 % interval of the paired bootstrap over sentences of the same kind; p is two-sided.",
            f"{(~left_out).sum()} of {len(languages)} languages are in the scores. If a sentence has no masculine or "
            f"no feminine "
            "reference, a neutral or a generic one replaces it; without one, the sentence is left out for both "
            "genders: "
            f"{languages.loc[~left_out, 'missing'].sum():,} in all.",
            *context.notes,
        ],
        sections=[
            *(_direction_section(scores, direction, metric, main) for direction in HEADINGS),
            _source_target_section(scores),
            *_gender_sections(scores),
            *_cut_sections(run.table("sentence_scores"), metric, main),
            _left_out_section(languages[left_out]),
        ],
        glossary=glossary(dict.fromkeys(score.metric for score in scores)),
        limits=LIMITS,
        signature=run.signature(GAP),
        signature_lines=run.signature_lines(GAP),
    )


def _label(score: BiasScore) -> str:
    codes = score.group[LANG].split("-", 1) if score.group[DIRECTION] == "xx-xx" else [score.group[LANG]]
    gender = f", {score.group[GENDER]}" if GENDER in score.group else ""
    return " → ".join(map(language_name, codes)) + gender


def _direction_section(scores: Sequence[BiasScore], direction: str, metric: str, main: str) -> Section:
    """Return one direction's section: scores by gender, and the gap (Costa-jussà et al. 2023, Figures 3 and 4)."""

    def points(gender: str):
        return lambda gap: number_cell(value_or(find_score(scores, metric, **gap.group, gender=gender), math.nan))

    gaps = [it for it in scores if it.metric == GAP and it.group[DIRECTION] == direction and LANG in it.group]
    sentence = {
        "xx-en": "The English reference is the same for both genders: the sentences of one gender are translated "
        "better.",
        "xx-xx": "A masculine sentence is compared with the masculine reference, a feminine one with the feminine.",
        "en-xx": "The references differ in gender: a translation is nearer to one of them.",
    }[direction]
    further = {gender: points(gender) for gender in GENDERS}
    n_ends = ROWS_AT_EACH_END if direction == "xx-xx" else None
    return score_section(
        HEADINGS[direction],
        gaps,
        "language",
        [sentence],
        label=_label,
        counted="sentences",
        further=further,
        n_ends=n_ends,
        first_screen=direction == main,
    )


def _source_target_section(scores: Sequence[BiasScore]) -> Section:
    """Return each language's mean gap as source and target (Costa-jussà et al. 2023, Table 2), if measured."""
    if not any(score.group.get(DIRECTION) == "xx-xx" for score in scores):
        return Section("")
    rows = []
    for row in language_table(scores).sort_values("as_target", ascending=False, kind="stable").to_dict("records"):
        means = (number_cell(row[f"as_{side}"], 2, sign=True) for side in ("source", "target"))
        rows.append(Row(language_name(row[LANG]), (*means, *count_cells(row["n_source"], row["n_target"]))))
    columns = ("language", "as source", "as target", "targets", "sources")
    title = "Mean gap of a language as source and as target, in points"
    return Section(title, tables=[Table(title, columns, tuple(rows))])


def _gender_sections(scores: Sequence[BiasScore]) -> Iterator[Section]:
    """Yield the default sections of the scores on the gender of translations, and of added toxicity."""
    for metric in (RENDERING, *ACCURACIES, TOXICITY):
        of_metric = [score for score in scores if score.metric == metric]
        title, label = (
            format_of(metric).label.capitalize(),
            _label if metric != TOXICITY else lambda it: "added toxicity",
        )
        yield score_section(
            title, of_metric, "language", [format_of(metric).description], label=label, counted="translations"
        )


def _cut_sections(sentences: pd.DataFrame, metric: str, direction: str) -> Iterator[Section]:
    """Yield mean scores by axis, descriptor and template, lowest first (Costa-jussà et al. 2023, Tables 3, 5 and 6)."""
    rows = sentences[sentences[DIRECTION] == direction] if metric in sentences else sentences.head(0)
    for by in (AXIS, DESCRIPTOR, TEMPLATE):
        cuts = cut_table(rows[rows[by] != ""], by, metric)
        n = ROWS_AT_EACH_END
        ends = pd.concat([cuts.head(n), cuts.tail(n)]) if len(cuts) > 2 * n else cuts
        numbers = [([number_cell(row[it]) for it in (*GENDERS, "mean")], row) for row in ends.to_dict("records")]
        table_rows = (
            Row(sanitize(str(row[by]), 60), (*cells, number_cell(row["gap"], sign=True), *count_cells(row["count"])))
            for cells, row in numbers
        )
        note = f"Without the descriptor “{OUTLIER}”, which is in two axes." if by == AXIS and len(cuts) else ""
        caption = f"{format_of(metric).label} of single sentences by {by}" + f", {n} at each end of {len(cuts)}" * (
            len(cuts) > 2 * n
        )
        table = Table(caption, (by, *GENDERS, "mean", "gap", "scores"), tuple(table_rows), note)
        yield Section(f"By {by}", tables=[table])


def _left_out_section(languages: pd.DataFrame) -> Section:
    rows = (
        Row(sanitize(str(reason), 200), (Cell(", ".join(map(language_name, of_reason[LANG])), prose=True),))
        for reason, of_reason in languages.groupby("left_out", sort=True)
    )
    return Section("Languages left out", tables=[Table("", ("reason", "languages"), tuple(rows))])
