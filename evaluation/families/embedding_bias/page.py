"""Report on the distance of English sentences to their masculine and feminine translations (papers 003, 004, §5)."""

import math
from collections.abc import Mapping, Sequence
from datetime import date

import pandas as pd

from evenhand.evaluation.datasets.gendered_translations import LANG
from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.embedding_bias.metric import similarity_quantiles
from evenhand.evaluation.families.translation_bias.plots import LINES, GenderRow, Lane, gender_rows, language_name
from evenhand.evaluation.report.numbers import PER_UNIT, find, finite, number
from evenhand.evaluation.report.page import Figure, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table, marks_of, number_cell, p_cell, score_cell
from evenhand.evaluation.results import BiasScore, display_name

GAP, HOLM, ONE_SIDED = "embedding_gap", "embedding_gap_holm", "embedding_gap_one_sided"
SIMILARITY = "embedding_similarity"
VERSION = "english_gender"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ALPHA = 0.05

say = Sentences(__file__)


def page(measured: FamilyRun, known: ReportContext) -> Page:
    """Return the report of one sentence encoder."""
    scores = measured.scores
    gaps = [score for score in scores if score.metric == GAP and VERSION not in score.group]
    versions = [score for score in scores if score.metric == GAP and VERSION in score.group]
    similarities = _similarities(scores, similarity_quantiles(measured.table("cosines"), QUANTILES))
    big, under, verdict = _headline(gaps, scores)
    return Page(
        title=say.title,
        subtitle=f"{display_name(measured.config.model.name)} · {display_name(measured.config.settings.references)}",
        date=date.today().isoformat(),
        big=big,
        under=under,
        verdict=verdict,
        notes=[say.intervals, *known.notes],
        sections=[
            Section("By language", tables=[_gap_table(gaps, scores)], first_screen=True),
            Section("By what the English says", [say.versions] if versions else [], [_version_table(versions)]),
            Section(
                "How near translations are",
                tables=[_similarity_table(similarities)],
                figures=_similarity_figures(similarities),
            ),
        ],
        glossary=list(say.glossary.items()),
        limits=say.limits,
        signature=measured.signature(GAP),
        signature_lines=measured.signature_lines(GAP),
    )


def _headline(gaps: Sequence[BiasScore], scores: Sequence[BiasScore]) -> tuple[str, str, str]:
    """Return the large number (of how many languages the masculine is nearer), the line under it and the verdict."""
    finite_gaps = [gap for gap in gaps if math.isfinite(gap.value)]
    corrected = ((gap, find(scores, HOLM, **gap.group)) for gap in finite_gaps)
    nearer = [gap for gap, score in corrected if score and score.p_value is not None and score.p_value < ALPHA]
    mean = sum(gap.value for gap in finite_gaps) / len(finite_gaps) if finite_gaps else math.nan
    masculine = sum(gap.value > 0 for gap in nearer)
    big = f"{masculine} of {len(finite_gaps)}" if finite_gaps else "–"
    under = say.under(gaps, finite_gaps, number(PER_UNIT * mean, 2, sign=True))
    return big, under, say.verdict(gaps, finite_gaps, nearer)


def _gap_table(gaps: Sequence[BiasScore], scores: Sequence[BiasScore]) -> Table:
    rows = []
    for gap in sorted(gaps, key=lambda it: (-finite(it, -math.inf), it.group[LANG])):
        p_values = (gap, *(find(scores, metric, **gap.group) for metric in (HOLM, ONE_SIDED)))
        cells = (*map(p_cell, p_values), Cell(f"{gap.n:,}"), Cell(f"{gap.n_left_out:,}"))
        rows.append(_row(language_name(gap.group[LANG]), gap, cells))
    columns = ("language", "gap", "p", "p, Holm", "p, one-sided", "sentences", "left out")
    return Table(say.gap_caption, columns, tuple(rows))


def _version_table(versions: Sequence[BiasScore]) -> Table:
    rows = [
        _row(f"{language_name(gap.group[LANG])}, {gap.group[VERSION]} English", gap, (p_cell(gap), Cell(f"{gap.n:,}")))
        for gap in versions
    ]
    return Table(say.version_caption, ("language", "gap", "p", "sentences"), tuple(rows))


def _row(label: str, gap: BiasScore, beside: Sequence[Cell]) -> Row:
    return Row(label, (score_cell(gap), *beside), marks_of("before", gap))


def _similarities(
    scores: Sequence[BiasScore], quantiles: pd.DataFrame
) -> list[tuple[BiasScore, Mapping[float, float]]]:
    """Return the mean cosine of each language and gender with its quantiles."""
    cuts = {
        key: dict(zip(rows["quantile"], rows["cosine"], strict=True))
        for key, rows in quantiles.groupby([LANG, "gender"])
    }
    found = [score for score in scores if score.metric == SIMILARITY and VERSION not in score.group]
    return [(score, cuts.get((score.group[LANG], score.group["gender"]), {})) for score in found]


def _similarity_table(similarities: Sequence[tuple[BiasScore, Mapping[float, float]]]) -> Table:
    rows = []
    for score, cuts in similarities:
        spread = (number_cell(cuts.get(at, math.nan), 3) for at in QUANTILES)
        label = f"{language_name(score.group[LANG])}, {score.group['gender']}"
        rows.append(Row(label, (score_cell(score), *spread, Cell(f"{score.n:,}"))))
    columns = ("translation", "mean", "5 %", "25 %", "median", "75 %", "95 %", "sentences")
    return Table(say.similarity_caption, columns, tuple(rows))


def _similarity_figures(similarities: Sequence[tuple[BiasScore, Mapping[float, float]]]) -> list[Figure]:
    """Return the distributions of the cosines by language, masculine and feminine (004, Figure 8)."""
    lanes: dict[str, dict[str, Lane]] = {}
    for score, cuts in similarities:
        if score.group["gender"] in LINES and math.isfinite(score.value) and cuts:
            low, first, median, third, high = (cuts[at] for at in QUANTILES)
            lane = Lane(score.value, (low, high), (first, third), median)
            lanes.setdefault(score.group[LANG], {})[score.group["gender"]] = lane
    if not lanes:
        return []
    rows = [GenderRow(language_name(lang), of_lang) for lang, of_lang in lanes.items()]
    return [Figure(say.drawn_caption, gender_rows(say.drawn_caption, rows, decimals=3), say.drawn_note)]
