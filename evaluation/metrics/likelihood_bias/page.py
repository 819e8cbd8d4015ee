"""Reports on Likelihood Bias of one model, and of two models over the same sentences (Smith et al. 2022, §3.1, B.1)."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics import FamilyRun, ReportContext
from evenhand.evaluation.metrics.likelihood_bias.metric import LEVEL, TESTS
from evenhand.evaluation.metrics.likelihood_bias.pairs import pair_effects
from evenhand.evaluation.metrics.likelihood_bias.rows import (
    HATE,
    LOVE,
    MASKED_VARIANT,
    N_TOKENS,
    VARIANT,
    compute_surprisals,
    extreme_descriptors,
    love_hate_contrast,
    select_most_common_length,
)
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.numbers import before_after, number, percent, sanitize, value_or
from evenhand.evaluation.report.page import Cell, Page, Row, Section, Table
from evenhand.evaluation.report.tables import (
    change_section,
    change_table,
    number_cell,
    score_changes,
    score_section,
    scores_table,
    significant_direction,
    value_text,
)
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, BiasScore, find_score
from evenhand.evaluation.statistics.hypothesis_tests import mann_whitney

RAW, CORRECTED, *_ = METRICS = tuple(test.metric for test in TESTS)
MANY_LEFT_OUT = 0.10  # share of sentences left out above which the page has a warning
INTERVALS = (
    "Brackets hold the 95 % interval over other descriptors of the same kind, not over other nouns or templates."
)
LIMITS = [
    "The likelihood of a sentence is not an opinion. The numbers show how differently a model treats descriptors. "
    "They do "
    "not show harm, and a high Likelihood Bias does not show which descriptors the model treats well.",
    "Descriptors with more or rarer tokens are less likely. The scores, as in the paper, include descriptors of all "
    "lengths.",
    "The test of the paper assumes that the sentences of two descriptors are independent, but both have the same "
    "nouns. It "
    "therefore misses differences, but does not invent them. The share paired by noun does not miss them.",
    "Axes differ in the number and kind of their descriptors, so compare models on one axis rather than axes of one "
    "model, "
    "and only between runs with the same nouns.",
]


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on one model.

    Raises:
        InputError: a column of the likelihoods is missing, there is no row, or a sentence occurs twice.
    """
    likelihoods, signature = run.table("likelihoods"), run.signature(*METRICS)
    masked = signature.get(VARIANT) == MASKED_VARIANT
    scores = [score for score in run.scores if score.metric in METRICS]
    raw, corrected = (find_score(scores, metric) for metric in (RAW, CORRECTED))
    n, n_missing = len(likelihoods), int(compute_surprisals(likelihoods)["perplexity"].isna().sum())
    effects = pair_effects(likelihoods)
    sizes = (effects["auc"] - 0.5).abs().groupby(effects[AXIS]).mean()
    verdict = "The descriptors do not differ more than by chance"
    if significant_direction(raw) > 0:
        verdict = "The descriptor in a sentence changes how likely the model finds the sentence"
    elif value_or(corrected, 0) > 0:
        verdict = "The model treats a few descriptors of an axis differently"
    if math.isnan(value_or(raw, math.nan)):
        verdict = "No verdict"
    return Page(
        title="Likelihood Bias of noun phrases" if masked else "Likelihood Bias",
        subtitle=f"{run.model_name} · {run.config.prompts.dataset}",
        headline_value=percent(value_or(raw, math.nan), 1),
        headline_caption=f"of the pairs of descriptors differ in how likely their "
        f"{'phrases' if masked else 'sentences'} are; "
        "chance alone gives at most 5 %",
        verdict=f"{verdict}: Likelihood Bias is {value_text(raw)}, and after the correction for many tests "
        f"{value_text(corrected)}.",
        warnings=_warnings(likelihoods, n_missing),
        tables=[
            scores_table(
                "All axes",
                [find_score(scores, metric) for metric in METRICS],
                "measure",
                counted="pairs",
                label=lambda score: format_of(score).title,
            )
        ],
        notes=[
            f"{n - n_missing:,} sentences were compared; {n_missing:,} have no finite likelihood and are left out.",
            INTERVALS,
            *(
                [f"The sentences are a random sample (limit, seed {signature['seed']})."]
                if "limit" in signature
                else []
            ),
            *context.notes,
        ],
        sections=[
            score_section(
                "By axis",
                (score for score in scores if list(score.group) == [AXIS]),
                "axis",
                [
                    "|AUC − ½| is the mean size of the differences between two descriptors: 0 for no difference, at "
                    "most 0.5."
                ],
                first_screen=True,
                counted="pairs",
                further={"|AUC − ½|": lambda score: number_cell(sizes.get(score.group[AXIS], math.nan), 2)},
            ),
            score_section(
                "By template",
                (it for it in scores if list(it.group) == [TEMPLATE]),
                "template",
                counted="pairs",
                label=lambda score: sanitize(score.group[TEMPLATE], 60),
            ),
            _extremes_section(likelihoods, masked),
            _contrast_section(likelihoods),
        ],
        glossary=glossary(METRICS),
        limits=LIMITS,
        signature=signature,
        signature_lines=run.signature_lines(*METRICS),
    )


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, context: ReportContext) -> Page:
    """Return the report that compares two models over the same sentences."""
    change, runs = find_score(changes.scores, f"{RAW}_difference"), [run.scores for run in (before, after, changes)]
    overall = score_changes({format_of(metric).title: (metric, {}) for metric in METRICS}, runs)
    old, new = (value_text(find_score(scores, RAW)) for scores in runs[:2])
    verdict = {1: "Likelihood Bias rose", -1: "Likelihood Bias fell", 0: "No change of Likelihood Bias is significant"}
    return Page(
        title="Likelihood Bias, compared",
        subtitle=f"{before_after(before.config.model.name, after.config.model.name)} · {before.config.prompts.dataset}",
        headline_value=number(100 * value_or(change, math.nan), 1, sign=True),
        headline_caption="percentage points of Likelihood Bias, after minus before",
        verdict=f"{verdict[significant_direction(change)]}: {old} before, {new} after; change {value_text(change)}.",
        tables=[change_table("All axes", "measure", overall, counted="pairs", is_plotted=False)],
        notes=[INTERVALS, *context.notes],
        sections=[change_section(f"By {cut}", cut, [RAW], runs, counted="pairs") for cut in (AXIS, TEMPLATE)],
        glossary=glossary(METRICS),
        limits=LIMITS,
        signature=changes.signature(f"{RAW}_difference") or before.signature(*METRICS),
        signature_lines=before.signature_lines(*METRICS) + after.signature_lines(*METRICS),
        sides=("before", "after"),
    )


def _warnings(likelihoods: pd.DataFrame, n_missing: int) -> list[str]:
    """Return warnings about many sentences without a likelihood, and about too few nouns for a pair to differ."""
    warnings = []
    if n_missing > MANY_LEFT_OUT * len(likelihoods):
        warnings.append(f"{n_missing:,} of {len(likelihoods):,} sentences have no finite likelihood and are left out.")
    n_nouns = int(likelihoods.groupby([AXIS, TEMPLATE, DESCRIPTOR], observed=True).size().max())
    n = min(n_nouns, 8)  # enough for a small p-value
    first = np.arange(2 * n) < n  # the samples that differ most
    p = float(mann_whitney(np.stack([first, ~first]), np.array([0]), np.array([1]))[1][0])
    if p >= LEVEL:
        warnings.append(
            f"The share of pairs that differ is 0 whatever the model does: with at most {n_nouns} nouns for each "
            f"descriptor "
            f"and template, the smallest p-value of a pair is {p:.2g}. Use at least four nouns."
        )
    return warnings


def _extremes_section(likelihoods: pd.DataFrame, masked: bool) -> Section:
    """Return each axis's descriptors of lowest and highest perplexity in one template (Smith et al. 2022, Table 3)."""
    templates = likelihoods[TEMPLATE].unique()
    template = LOVE if LOVE in templates else templates[0]
    sentences = likelihoods[likelihoods[TEMPLATE] == template]
    one_length = not masked or sentences[N_TOKENS].nunique() > 1
    extremes = extreme_descriptors(select_most_common_length(sentences) if one_length else sentences)
    rows = []
    for axis, of_axis in extremes.groupby(AXIS):
        ends = (Cell(_with_medians(of_axis[of_axis["end"] == end]), prose=True) for end in ("low", "high"))
        rows.append(Row(axis.replace("_", " "), (*ends, Cell(f"{of_axis['compared'].iloc[0]}"))))
    note = (
        f"In “{sanitize(template, 60)}”, with the median {'pseudo-' * masked}perplexity over nouns. "
        + "Only descriptors with the most common number of tokens of their axis are compared." * one_length
    )
    columns = ("axis", "most likely", "least likely", "compared")
    title = "Most and least likely descriptors by axis"
    return Section(title, [note] if rows else [], [Table(title, columns, tuple(rows))])


def _with_medians(ends: pd.DataFrame) -> str:
    pairs = zip(ends[DESCRIPTOR], ends["median"], strict=True)
    return ", ".join(f"{sanitize(name, 60)}\u00a0({median:.3g})" for name, median in pairs)


def _contrast_section(likelihoods: pd.DataFrame) -> Section:
    """Return the section with the descriptors of the lowest and the highest contrast between love and hate."""
    if not {LOVE, HATE} <= set(likelihoods[TEMPLATE]):
        return Section("")
    contrasts = love_hate_contrast(likelihoods)
    scores: Sequence[BiasScore] = [
        BiasScore(
            "love_hate_contrast",
            row.contrast,
            None,
            (-math.inf, math.inf),
            row.n,
            None if math.isnan(row.low) else (row.low, row.high),
            group={DESCRIPTOR: row.descriptor, AXIS: row.axis},
        )
        for row in contrasts[contrasts["contrast"].notna()].itertuples()
    ]
    sentence = (
        "The value is how much likelier a sentence of love is than a sentence of hate, in nats per token, mean over "
        "nouns. "
        f"The two templates are not equally likely: the mean of all descriptors is "
        f"{number(contrasts['contrast'].mean(), 3)}."
    )
    return score_section("Love and hate", scores, "descriptor", [sentence], counted="nouns", n_ends=8)
