"""Report on cosines of English sentences with their masculine and feminine translations (Costa-jussà et al., §5)."""

import math

from evenhand.evaluation.data.gendered_translations import GENDER, LANG, language_name
from evenhand.evaluation.metrics import FamilyRun, ReportContext
from evenhand.evaluation.metrics.embedding_bias.metric import COSINE, ENGLISH_GENDER
from evenhand.evaluation.report.figures import box_figure, svg
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.page import Figure, Page, Section
from evenhand.evaluation.report.tables import LEVEL, p_cell, score_section, value_text
from evenhand.evaluation.score import BiasScore, display_name, find_score

GAP, HOLM, ONE_SIDED, SIMILARITY = METRICS = (
    *("embedding_gap", "embedding_gap_holm", "embedding_gap_one_sided", "embedding_similarity"),
)
LIMITS = [
    "An encoder that was trained on English only measures how much a translation looks like English, not what it "
    "means.",
    "A nearer embedding does no harm by itself. It matters if translations are searched or compared by embeddings.",
    "Translations are masculine or feminine. Other genders are not measured. Do not compare cosines between encoders "
    "or "
    "between languages.",
]


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on one sentence encoder."""
    scores = run.scores
    gaps = [score for score in scores if score.metric == GAP and ENGLISH_GENDER not in score.group]
    defined = [gap for gap in gaps if math.isfinite(gap.value)]
    corrected = {gap.group[LANG]: find_score(scores, HOLM, **gap.group) for gap in defined}
    significant = [gap for gap in defined if (holm := corrected[gap.group[LANG]]) and (holm.p_value or 0) < LEVEL]
    n_masculine, n_feminine = (sum(side * gap.value > 0 for gap in significant) for side in (1, -1))
    n, reason = len(defined), value_text(gaps[0] if gaps else None)
    mean = sum(gap.value for gap in defined) / n if n else math.nan
    verdict = (
        f"English is significantly nearer to the masculine translation in {n_masculine} of {n} languages, and to the "
        f"feminine translation in {n_feminine}. The p-values have Holm’s correction for the number of languages."
    )
    return Page(
        title="Embeddings and gender",
        subtitle=f"{run.model_name} · {display_name(run.config.settings.references)}",
        headline_value=f"{n_masculine} of {n}" if n else "–",
        headline_caption=f"languages in which English is significantly nearer to its masculine translation; mean gap "
        f"{format_of(GAP).text(mean)} {format_of(GAP).unit}, ideal 0"
        if n
        else f"the gap is {reason}",
        verdict=verdict if n else f"No verdict: the gap is {reason}.",
        notes=[
            "Brackets hold the 95 % interval of the paired t-test, over other sentences of the same kind.",
            *context.notes,
        ],
        sections=[
            score_section(
                "By language",
                gaps,
                "language",
                label=_label,
                first_screen=True,
                counted="sentences",
                further={
                    "p, Holm": lambda gap: p_cell(find_score(scores, HOLM, **gap.group)),
                    "p, one-sided": lambda gap: p_cell(find_score(scores, ONE_SIDED, **gap.group)),
                },
            ),
            score_section(
                "By the gender of the English sentence",
                [score for score in scores if score.metric == GAP and ENGLISH_GENDER in score.group],
                "language",
                [
                    "A sentence with a gender is nearer to the translation of its own gender. That agreement is not "
                    "bias."
                ],
                label=_label,
                counted="sentences",
            ),
            _similarity_section(run),
        ],
        glossary=glossary(METRICS),
        limits=LIMITS,
        signature=run.signature(GAP),
        signature_lines=run.signature_lines(GAP),
    )


def _similarity_section(run: FamilyRun) -> Section:
    """Return the section of cosines by language and gender, with their distributions (Costa-jussà et al., Figure 8)."""
    similarities = [it for it in run.scores if it.metric == SIMILARITY and ENGLISH_GENDER not in it.group]
    title = "Similarity of translations"
    cosines = run.table("cosines").groupby([LANG, GENDER])[COSINE]
    values = {f"{language_name(lang)}, {gender}": it.dropna().to_numpy() for (lang, gender), it in cosines}
    section = score_section(title, similarities, "translation", label=_label, counted="sentences")
    figures = (
        [Figure("", svg(box_figure("Cosine of English sentences with their translations", values)))] if values else []
    )
    return Section(title, tables=section.tables, figures=figures)


def _label(score: BiasScore) -> str:
    english = f", {score.group[ENGLISH_GENDER]} English" if ENGLISH_GENDER in score.group else ""
    gender = f", {score.group[GENDER]}" if GENDER in score.group else ""
    return f"{language_name(score.group[LANG])}{gender}{english}"
