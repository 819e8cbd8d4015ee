"""Report on the distance of English sentences to their masculine and feminine translations (papers 003, 004, §5)."""

import math
from collections.abc import Sequence

import pandas as pd

from evaluation.datasets.gendered_translations import LANG
from evaluation.report.numbers import find, number, p_value, undefined
from evaluation.report.page import Figure, Page, Section
from evaluation.report.tables import Cell, Mark, Row, Table, score_cell
from evaluation.report.translation_bias.plots import LINES, GenderRow, Lane, gender_rows, language_name
from evaluation.results import BiasScore

GAP, HOLM, ONE_SIDED, SIMILARITY = (
    "embedding_gap",
    "embedding_gap_holm",
    "embedding_gap_one_sided",
    "embedding_similarity",
)
PER_UNIT, UNIT = 1000.0, "×10⁻³"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def embedding_page(
    scores: Sequence[BiasScore],
    quantiles: pd.DataFrame,
    *,
    model: str,
    dataset: str,
    date: str,
    notes: Sequence[str] = (),
) -> Page:
    """Return the report of one sentence encoder.

    Args:
        scores: of `metrics.embedding_bias`; others are passed over.
        quantiles: what its `similarity_quantiles` returns.
    """
    gaps = [score for score in scores if score.metric == GAP and set(score.group) == {LANG}]
    big, under, verdict = _headline(gaps, scores)
    return Page(
        title="Embeddings and gender",
        subtitle=f"{model} · {dataset}",
        date=date,
        big=big,
        under=under,
        verdict=verdict,
        notes=[_INTERVALS, *notes],
        sections=[
            Section("By language", tables=[_gap_table(gaps, scores)], first_screen=True),
            Section("By what the English says", [_VERSIONS] if _versions(scores) else [], [_version_table(scores)]),
            Section(
                "How near translations are",
                tables=[_similarity_table(scores, quantiles)],
                figures=_similarity_figures(scores, quantiles),
            ),
        ],
        glossary=GLOSSARY,
        limits=LIMITS,
        signature=gaps[0].signature if gaps else {},
    )


_INTERVALS = "Brackets hold the 95 % interval of the paired t-test: over other sentences of the same kind."
_VERSIONS = (
    "Some English sentences say a gender. Against those, a gap mixes a pull towards one gender with agreement of "
    "gender; the paper’s English says none."
)
GLOSSARY = (
    ("cosine", "How alike two sentences are to the encoder, −1 to 1."),
    (
        "gap",
        "Cosine of English with its masculine translation less that with its feminine one. Ideal 0; above it, the "
        "masculine one is nearer.",
    ),
    ("p, Holm", "The two-sided p-value after Holm’s correction for the number of languages."),
    ("p, one-sided", "The paper’s test, against “the masculine is nearer” alone."),
)
LIMITS = (
    "An encoder that was trained on English measures how much a translation looks like English, not what it means.",
    "A nearer embedding harms nobody by itself; it matters where translations are mined or compared by it.",
    "Translations are masculine or feminine; nothing is said of other people.",
    "Cosines of different encoders and languages do not compare.",
)


def _headline(gaps: Sequence[BiasScore], scores: Sequence[BiasScore]) -> tuple[str, str, str]:
    known = [gap for gap in gaps if math.isfinite(gap.value)]
    if not known:
        why = undefined(gaps[0]) if gaps else "not measured"
        return "–", f"the gap is {why}", f"No verdict: the gap is {why}."
    told = []
    for gap in known:
        corrected = find(scores, HOLM, **gap.group)
        if corrected is not None and corrected.p_value is not None and corrected.p_value < 0.05:
            told.append("masculine" if gap.value > 0 else "feminine")
    mean = sum(gap.value for gap in known) / len(known)
    sides = ", ".join(f"{told.count(side)} to the {side}" for side in ("masculine", "feminine"))
    verdict = f"Of {len(known)} languages, English is nearer in {sides} translation, after Holm’s correction; "
    verdict += f"in {len(known) - len(told)} no difference can be shown."
    under = f"mean gap {UNIT} over {len(known)} languages; ideal 0, above it the masculine is nearer"
    return number(PER_UNIT * mean, 2, sign=True), under, verdict


def _gap_table(gaps: Sequence[BiasScore], scores: Sequence[BiasScore]) -> Table:
    rows = []
    for gap in sorted(gaps, key=lambda it: (-it.value if math.isfinite(it.value) else math.inf, it.group[LANG])):
        beside = (find(scores, metric, **gap.group) for metric in (HOLM, ONE_SIDED))
        cells = (
            score_cell(gap, PER_UNIT, 2, sign=True),
            _p(gap),
            *map(_p, beside),
            Cell(f"{gap.n:,}"),
            Cell(f"{gap.n_left_out:,}"),
        )
        rows.append(_row(language_name(gap.group[LANG]), cells, gap))
    columns = ("language", "gap", "p", "p, Holm", "p, one-sided", "sentences", "left out")
    return Table(f"Gap of the cosines, {UNIT}; the line is at 0", columns, tuple(rows))


def _versions(scores: Sequence[BiasScore]) -> list[BiasScore]:
    return [score for score in scores if score.metric == GAP and "english_gender" in score.group]


def _version_table(scores: Sequence[BiasScore]) -> Table:
    rows = []
    for gap in _versions(scores):
        label = f"{language_name(gap.group[LANG])}, {gap.group['english_gender']} English"
        rows.append(_row(label, (score_cell(gap, PER_UNIT, 2, sign=True), _p(gap), Cell(f"{gap.n:,}")), gap))
    return Table(
        f"Gap by the gender of the English sentence, {UNIT}", ("language", "gap", "p", "sentences"), tuple(rows)
    )


def _similarities(scores: Sequence[BiasScore], quantiles: pd.DataFrame) -> list[tuple[BiasScore, dict[float, float]]]:
    """Return the mean cosine of each language and gender with its quantiles."""
    found = [score for score in scores if score.metric == SIMILARITY and set(score.group) == {LANG, "gender"}]
    cuts = {
        key: dict(zip(rows["quantile"], rows["cosine"], strict=True))
        for key, rows in quantiles.groupby([LANG, "gender"])
    }
    return [(score, cuts.get((score.group[LANG], score.group["gender"]), {})) for score in found]


def _similarity_table(scores: Sequence[BiasScore], quantiles: pd.DataFrame) -> Table:
    rows = []
    for score, cuts in _similarities(scores, quantiles):
        spread = (Cell(number(cuts[at], 3) if at in cuts else "–") for at in QUANTILES)
        label = f"{language_name(score.group[LANG])}, {score.group['gender']}"
        instead = undefined(score) if math.isnan(score.value) else ""
        rows.append(Row(label, (score_cell(score, 1, 3), *spread, Cell(f"{score.n:,}")), instead=instead))
    columns = ("translation", "mean", "5 %", "25 %", "median", "75 %", "95 %", "sentences")
    return Table("Cosine of English with its translations", columns, tuple(rows))


def _similarity_figures(scores: Sequence[BiasScore], quantiles: pd.DataFrame) -> list[Figure]:
    """Return the distributions of the cosines by language, masculine and feminine (004, Figure 8)."""
    lanes: dict[str, dict[str, Lane]] = {}
    for score, cuts in _similarities(scores, quantiles):
        if score.group["gender"] in LINES and math.isfinite(score.value) and set(QUANTILES) <= set(cuts):
            low, first, median, third, high = (cuts[at] for at in QUANTILES)
            lane = Lane(score.value, (low, high), (first, third), median)
            lanes.setdefault(score.group[LANG], {})[score.group["gender"]] = lane
    if not lanes:
        return []
    caption = "Cosine of English with its translations, masculine (orange) above feminine (blue)"
    rows = [GenderRow(language_name(lang), of_lang) for lang, of_lang in lanes.items()]
    note = "Circles are means, dashes medians, thick lines the middle half of the sentences, thin ones nine tenths."
    return [Figure(caption, gender_rows(caption, rows, decimals=3), note)]


def _row(label: str, cells: tuple[Cell, ...], score: BiasScore) -> Row:
    if math.isnan(score.value):
        return Row(label, cells, instead=undefined(score))
    bounds = score.interval and (PER_UNIT * score.interval[0], PER_UNIT * score.interval[1])
    return Row(label, cells, (Mark("before", PER_UNIT * score.value, bounds),))


def _p(score: BiasScore | None) -> Cell:
    return Cell("" if score is None or score.p_value is None else p_value(score.p_value))
