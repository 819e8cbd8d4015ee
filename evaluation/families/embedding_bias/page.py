"""Report on cosines of English sentences with their masculine and feminine translations (papers 003 and 004, §5)."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from evenhand.evaluation.data.gendered_translations import GENDER, LANG
from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.embedding_bias.metric import ENGLISH_GENDER, similarity_quantiles
from evenhand.evaluation.families.translation_bias.plots import GENDERS, GenderRow, Lane, gender_chart, language_name
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.formatted_scores import LEVEL, sort_by_value
from evenhand.evaluation.report.metrics import metric_of
from evenhand.evaluation.report.page import Figure, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Row, Table, count_cells, number_cell, p_cell, score_cell, score_row
from evenhand.evaluation.score import BiasScore, display_name, find_score

GAP, HOLM, ONE_SIDED = "embedding_gap", "embedding_gap_holm", "embedding_gap_one_sided"
SIMILARITY = "embedding_similarity"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

text = Sentences(__file__)


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on one sentence encoder."""
    scores = run.scores
    gaps = [score for score in scores if score.metric == GAP and ENGLISH_GENDER not in score.group]
    version_gaps = [score for score in scores if score.metric == GAP and ENGLISH_GENDER in score.group]
    similarities = _similarities(scores, similarity_quantiles(run.table("cosines"), QUANTILES))
    value, caption, verdict = _headline(gaps, scores)
    return Page(
        title=text.title,
        subtitle=f"{run.model_name} · {display_name(run.config.settings.references)}",
        headline_value=value,
        headline_caption=caption,
        verdict=verdict,
        notes=[text.intervals, *context.notes],
        sections=[
            Section("By language", tables=[_gap_table(gaps, scores)], first_screen=True),
            Section(
                "By the gender of the English sentence",
                [text.versions] if version_gaps else [],
                [_version_table(version_gaps)],
            ),
            Section(
                "Similarity of translations",
                tables=[_similarity_table(similarities)],
                figures=_similarity_figures(similarities),
            ),
        ],
        glossary=list(text.glossary.items()),
        limits=text.limits,
        signature=run.signature(GAP),
        signature_lines=run.signature_lines(GAP),
    )


def _headline(gaps: Sequence[BiasScore], scores: Sequence[BiasScore]) -> tuple[str, str, str]:
    """Return the large number (languages whose gap is significantly above 0), the line under it, and the verdict."""
    defined = [gap for gap in gaps if math.isfinite(gap.value)]
    corrected = ((gap, find_score(scores, HOLM, **gap.group)) for gap in defined)
    significant = [gap for gap, score in corrected if score and score.p_value is not None and score.p_value < LEVEL]
    mean = sum(gap.value for gap in defined) / len(defined) if defined else math.nan
    n_masculine = sum(gap.value > 0 for gap in significant)
    value = f"{n_masculine} of {len(defined)}" if defined else "–"
    caption = text.headline_caption(gaps, defined, metric_of(GAP).text(mean))
    return value, caption, text.verdict(gaps, defined, significant)


def _gap_table(gaps: Sequence[BiasScore], scores: Sequence[BiasScore]) -> Table:
    rows = []
    for gap in sort_by_value(gaps, LANG):
        p_values = (gap, *(find_score(scores, metric, **gap.group) for metric in (HOLM, ONE_SIDED)))
        cells = (*map(p_cell, p_values), *count_cells(gap.n, gap.n_left_out))
        rows.append(score_row(language_name(gap.group[LANG]), gap, *cells))
    columns = ("language", "gap", "p", "p, Holm", "p, one-sided", "sentences", "left out")
    return Table(text.gap_caption, columns, tuple(rows))


def _version_table(versions: Sequence[BiasScore]) -> Table:
    rows = [
        score_row(
            f"{language_name(gap.group[LANG])}, {gap.group[ENGLISH_GENDER]} English",
            gap,
            p_cell(gap),
            *count_cells(gap.n),
        )
        for gap in versions
    ]
    return Table(text.version_caption, ("language", "gap", "p", "sentences"), tuple(rows))


def _similarities(
    scores: Sequence[BiasScore], quantiles: pd.DataFrame
) -> list[tuple[BiasScore, Mapping[float, float]]]:
    by_group = {
        key: dict(zip(rows["quantile"], rows["cosine"], strict=True)) for key, rows in quantiles.groupby([LANG, GENDER])
    }
    means = [score for score in scores if score.metric == SIMILARITY and ENGLISH_GENDER not in score.group]
    return [(score, by_group.get((score.group[LANG], score.group[GENDER]), {})) for score in means]


def _similarity_table(similarities: Sequence[tuple[BiasScore, Mapping[float, float]]]) -> Table:
    rows = []
    for score, quantiles in similarities:
        cells = (number_cell(quantiles.get(level, math.nan), 3) for level in QUANTILES)
        label = f"{language_name(score.group[LANG])}, {score.group[GENDER]}"
        rows.append(Row(label, (score_cell(score), *cells, *count_cells(score.n))))
    columns = ("translation", "mean", "5 %", "25 %", "median", "75 %", "95 %", "sentences")
    return Table(text.similarity_caption, columns, tuple(rows))


def _similarity_figures(similarities: Sequence[tuple[BiasScore, Mapping[float, float]]]) -> list[Figure]:
    """Return the chart of the distributions of cosines by language, masculine and feminine (004, Figure 8)."""
    lanes: dict[str, dict[str, Lane]] = {}
    for score, quantiles in similarities:
        if score.group[GENDER] in GENDERS and math.isfinite(score.value) and quantiles:
            low, first, median, third, high = (quantiles[level] for level in QUANTILES)
            lane = Lane(score.value, (low, high), (first, third), median)
            lanes.setdefault(score.group[LANG], {})[score.group[GENDER]] = lane
    if not lanes:
        return []
    rows = [GenderRow(language_name(lang), lanes_by_gender) for lang, lanes_by_gender in lanes.items()]
    return [Figure(text.drawn_caption, svg(gender_chart(text.drawn_caption, rows, decimals=3)), text.drawn_note)]
