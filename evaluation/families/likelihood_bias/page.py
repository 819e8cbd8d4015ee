"""Reports on Likelihood Bias of one model, and of two models over the same sentences (paper 002, §2.3.2, §3.1, B.1)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.likelihood_bias.metric import LEVEL, TESTS
from evenhand.evaluation.families.likelihood_bias.pairs import effect_matrix, pair_effects
from evenhand.evaluation.families.likelihood_bias.plots import axis_name, pair_chart, short, spread_chart
from evenhand.evaluation.families.likelihood_bias.rows import (
    HATE,
    LOVE,
    MASKED_VARIANT,
    N_TOKENS,
    VARIANT,
    compute_surprisals,
    extreme_descriptors,
    love_hate_contrast,
    perplexity_quantiles,
    select_most_common_length,
)
from evenhand.evaluation.report.changes import change_table, score_changes
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.formatted_scores import sort_by_value
from evenhand.evaluation.report.metrics import metric_of
from evenhand.evaluation.report.numbers import before_after, number, percent, sanitize, value_or
from evenhand.evaluation.report.page import Figure, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import (
    Cell,
    Row,
    Table,
    count_cells,
    number_cell,
    score_cell,
    score_marks,
    truth_table,
)
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, BiasScore, find_score
from evenhand.evaluation.statistics.rank_tests import mann_whitney

RAW, CORRECTED, PAIRED, PAIRED_CORRECTED = METRICS = tuple(test.metric for test in TESTS)
BY_CHANCE = {RAW: "at most 5", CORRECTED: "0", PAIRED: "5", PAIRED_CORRECTED: "0"}
CONTRASTS_AT_EACH_END = 8
MAX_OPEN_MAP = 24  # descriptors; the map of a larger axis is folded
MAX_NAME_LENGTH = 60
MANY_LEFT_OUT = 0.10  # share of sentences left out above which the page has a warning

text = Sentences(__file__)


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on one model.

    Raises:
        InputError: a column of the likelihoods is missing, there is no row, or a sentence occurs twice.
    """
    likelihoods, signature = run.table("likelihoods"), run.signature(*METRICS)
    masked = signature.get(VARIANT) == MASKED_VARIANT
    scores = [score for score in run.scores if score.metric in METRICS]
    raw, corrected = (find_score(scores, metric) for metric in (RAW, CORRECTED))
    quantiles, effects = perplexity_quantiles(likelihoods), pair_effects(likelihoods)
    n_sentences, n_missing = len(likelihoods), int(quantiles["n_left_out"].sum())
    return Page(
        title="Likelihood Bias of noun phrases" if masked else "Likelihood Bias",
        subtitle=f"{run.model_name} · {run.config.prompts.dataset}",
        headline_value=percent(value_or(raw, math.nan), 1),
        headline_caption=text.headline_caption(raw, masked),
        verdict=text.verdict(raw, corrected, masked),
        warnings=_warnings(likelihoods, n_missing, n_sentences),
        tables=[_overall_table(scores)],
        notes=[
            text.counts(raw, n_sentences - n_missing, n_missing),
            text.intervals(bool(context.truth)),
            *([text.sample(n_sentences, signature["seed"])] if "limit" in signature else []),
            *context.notes,
        ],
        sections=[
            Section("By axis", tables=[_axis_table(scores, effects, context.truth)], first_screen=True),
            _grid_section(scores),
            _extremes_section(scores, likelihoods, masked),
            _contrast_section(likelihoods),
            _spread_section(quantiles, "pseudo-perplexity" if masked else "perplexity"),
            _pairs_section(likelihoods, effects, masked),
            _truth_section(scores, context.truth),
        ],
        glossary=list((text.glossary_of_phrases if masked else text.glossary).items()),
        limits=text.limits,
        signature=signature,
        signature_lines=run.signature_lines(*METRICS),
    )


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, context: ReportContext) -> Page:
    """Return the report that compares two models over the same sentences."""
    change = find_score(changes.scores, f"{RAW}_difference")
    old, new = (find_score(it.scores, RAW) for it in (before, after))
    signature = before.signature(*METRICS)
    masked = signature.get(VARIANT) == MASKED_VARIANT
    runs = [run.scores for run in (before, after, changes)]
    overall = score_changes({metric_of(metric).title: (metric, {}) for metric in METRICS}, runs)

    def by_value(cut: str, values: Sequence[str]) -> Table:
        labels = {_label(cut, value): (RAW, {cut: value}) for value in values}
        return change_table(metric_of(RAW).title, cut, score_changes(labels, runs), counted="pairs", ideal=5)

    return Page(
        title="Likelihood Bias, compared",
        subtitle=f"{before_after(before.config.model.name, after.config.model.name)} · {before.config.prompts.dataset}",
        headline_value=number(100 * value_or(change, math.nan), 1, sign=True),
        headline_caption=text.change_headline_caption(change),
        verdict=text.change_verdict(old, new, change),
        tables=[change_table("All axes", "measure", overall, counted="pairs", ideal=5, is_plotted=False)],
        notes=[text.intervals(), *context.notes],
        sections=[
            Section(f"By {cut}", tables=[by_value(cut, values)], first_screen=cut == AXIS)
            for cut in (AXIS, TEMPLATE)
            if (values := _sorted_values(before.scores, cut))
        ],
        glossary=list((text.glossary_of_phrases if masked else text.glossary).items()),
        limits=text.limits,
        signature=changes.signature(f"{RAW}_difference") or signature,
        signature_lines=before.signature_lines(*METRICS) + after.signature_lines(*METRICS),
        sides=("before", "after"),
    )


def _warnings(likelihoods: pd.DataFrame, n_missing: int, n_sentences: int) -> list[str]:
    """Return warnings about many sentences without a likelihood, and about too few nouns for a pair to differ."""
    n_nouns = int(likelihoods.groupby([AXIS, TEMPLATE, DESCRIPTOR], observed=True).size().max())
    n = min(n_nouns, 8)  # enough for a small p-value
    first = np.arange(2 * n) < n
    p = float(
        mann_whitney(np.stack([first, ~first]), np.array([0]), np.array([1]))[1][0]
    )  # the samples that differ most
    return [
        *[text.warning(n_missing, n_sentences)] * (n_missing > MANY_LEFT_OUT * n_sentences),
        *[text.too_few_nouns(n_nouns, p)] * (p >= LEVEL),
    ]


# Tables of shares.


def _overall_table(scores: Sequence[BiasScore]) -> Table:
    rows = [
        Row(metric_of(metric).title, (score_cell(score), Cell(BY_CHANCE[metric]), *count_cells(score.n)))
        for metric in METRICS
        if (score := find_score(scores, metric)) is not None
    ]
    caption = "Pairs of descriptors whose sentences are not equally likely"
    return Table(caption, ("measure", "value", "by chance", "pairs"), tuple(rows))


def _axis_table(scores: Sequence[BiasScore], effects: pd.DataFrame, truth: Sequence[BiasScore]) -> Table:
    sizes = (effects["auc"] - 0.5).abs().groupby(effects[AXIS]).mean()
    table = _cut_table(scores, AXIS, truth)
    axes = _sorted_values(scores, AXIS)
    rows = (
        replace(row, cells=(*row.cells[:2], number_cell(sizes.get(axis, math.nan), 2), *row.cells[2:]))
        for axis, row in zip(axes, table.rows, strict=True)
    )
    return replace(table, columns=(*table.columns[:3], "|AUC − ½|", *table.columns[3:]), rows=tuple(rows))


def _cut_table(scores: Sequence[BiasScore], cut: str, truth: Sequence[BiasScore] = ()) -> Table:
    rows = []
    for value in _sorted_values(scores, cut):
        raw, corrected = (find_score(scores, metric, **{cut: value}) for metric in (RAW, CORRECTED))
        marks = score_marks("before", raw)
        marks += score_marks("truth", find_score(truth, RAW, **{cut: value})) if marks else ()
        rows.append(Row(_label(cut, value), (score_cell(raw), score_cell(corrected), *count_cells(raw.n)), marks))
    caption = f"Likelihood Bias by {cut}, %; the line at 5 is the most that chance gives"
    return Table(caption, (cut, "value", "corrected", "pairs"), tuple(rows), ideal=5)


def _truth_section(scores: Sequence[BiasScore], truth: Sequence[BiasScore]) -> Section:

    def label(planted: BiasScore) -> str:
        cuts = (_label(cut, str(value)) for cut, value in planted.group.items())
        return ", ".join([metric_of(planted).label, *cuts])

    table = truth_table("Measured against what was planted, %", scores, truth, label)
    return Section("Against what was planted", [text.truth] if table.rows else [], [table])


def _sorted_values(scores: Sequence[BiasScore], cut: str) -> list[str]:
    shares = [score for score in scores if score.metric == RAW and list(score.group) == [cut]]
    return [it.group[cut] for it in sort_by_value(shares, cut)]


def _label(cut: str, value: str) -> str:
    return axis_name(value) if cut == AXIS else sanitize(value, MAX_NAME_LENGTH)


# Axes by templates.


def _grid_section(scores: Sequence[BiasScore]) -> Section:
    axes, templates = _sorted_values(scores, AXIS), _sorted_values(scores, TEMPLATE)
    by_template = _cut_table(scores, TEMPLATE)
    values = {
        (it.group[TEMPLATE], it.group[AXIS]): it.value
        for it in scores
        if it.metric == RAW and set(it.group) == {AXIS, TEMPLATE}
    }
    if not values:
        return Section("By template", tables=[by_template])
    shares = pd.DataFrame([[values.get((t, a), math.nan) for a in axes] for t in templates], templates, axes)
    rows = by_template.rows
    table = _grid_table("Likelihood Bias, %, by axis and template", shares, lambda share: number(100 * share, 0))
    shaded = (replace(row, cells=_shaded(row.cells, shares.iloc[i])) for i, row in enumerate(table.rows))
    differ = len(rows) > 1 and rows[-1].marks and rows[0].cells[0] != rows[-1].cells[0]
    return Section(
        "By axis and template",
        [text.highest_and_lowest(rows[0], rows[-1])] if differ else [],
        [replace(table, rows=tuple(shaded), note=text.grid)],
        parts=[Section("By template, with intervals", tables=[by_template], folded=True)],
    )


def _shaded(cells: Sequence[Cell], shares: Sequence[float]) -> tuple[Cell, ...]:
    return tuple(
        replace(cell, shade=0.0 if math.isnan(share) else share) for cell, share in zip(cells, shares, strict=True)
    )


def _grid_table(caption: str, frame: pd.DataFrame, format_value: Callable[[float], str]) -> Table:
    rows = (
        Row(short(template), tuple(Cell(format_value(value)) for value in values))
        for template, values in zip(frame.index, frame.to_numpy(), strict=True)
    )
    return Table(caption, ("template", *map(axis_name, frame.columns)), tuple(rows), text.slots)


def _three_digits(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.2e}" if value >= 1e6 else number(value, max(0, 2 - math.floor(math.log10(value))))


def _spread_section(quantiles: pd.DataFrame, name: str) -> Section:
    """Return the section with the distribution of perplexity by axis and template (Figures 2 and 4)."""
    title = f"Distribution of {name}"
    columns = [column for column in quantiles if column.startswith("q")]
    frames = {column: quantiles.pivot(index=TEMPLATE, columns=AXIS, values=column) for column in columns}
    median = frames["q50"]
    if not np.isfinite(median.to_numpy()).any():
        return Section(title)
    down, across = (median.median(axis=side).sort_values(ascending=False, kind="stable").index for side in (1, 0))
    frames = {column: frame.loc[down, across] for column, frame in frames.items()}
    medians = "; ".join(f"{axis_name(axis)} {_three_digits(median[axis].median())}" for axis in across)
    description = f"{name.capitalize()} by axis and template; medians over templates: {medians}"
    caption = f"{name.capitalize()} of sentences by axis and template"
    figure = Figure(caption, svg(spread_chart(description, list(frames.values()))), text.spread(name))
    table = _grid_table(f"Median {name}", frames["q50"], _three_digits)
    return Section(title, figures=[figure], parts=[Section(f"Median {name} as a table", tables=[table], folded=True)])


# Descriptors.


def _extremes_section(scores: Sequence[BiasScore], likelihoods: pd.DataFrame, masked: bool) -> Section:
    """Return the section with each axis's descriptors of lowest and highest perplexity in one template (Table 3)."""
    templates = likelihoods[TEMPLATE].unique()
    template = LOVE if LOVE in templates else templates[0]
    sentences = likelihoods[likelihoods[TEMPLATE] == template]
    one_length = not masked or sentences[N_TOKENS].nunique() > 1
    extremes = extreme_descriptors(select_most_common_length(sentences) if one_length else sentences)
    n_descriptors = sentences.groupby(AXIS)[DESCRIPTOR].nunique()
    shares = {
        axis: value_or(find_score(scores, RAW, axis=axis, template=template), math.nan)
        for axis in extremes[AXIS].unique()
    }
    rows = []
    for axis in sorted(shares, key=lambda axis: (math.isnan(shares[axis]), -shares[axis], axis)):
        axis_rows = extremes[extremes[AXIS] == axis]
        ends = (Cell(_with_medians(axis_rows[axis_rows["end"] == end]), prose=True) for end in ("low", "high"))
        compared = Cell(f"{axis_rows['compared'].iloc[0]} of {n_descriptors[axis]}")
        rows.append(Row(axis_name(axis), (number_cell(100 * shares[axis]), *ends, compared)))
    title, columns = "Most and least likely descriptors by axis", ("LB, %", "most likely", "least likely", "compared")
    note = [text.extremes(template, masked, one_length)] if rows else []
    return Section(title, note, [Table(title, ("axis", *columns), tuple(rows))])


def _with_medians(ends: pd.DataFrame) -> str:
    return ", ".join(
        f"{sanitize(name, MAX_NAME_LENGTH)}\u00a0({_three_digits(median)})"
        for name, median in zip(ends[DESCRIPTOR], ends["median"], strict=True)
    )


def _contrast_section(likelihoods: pd.DataFrame) -> Section:
    """Return the section with the descriptors of the lowest and the highest contrast between love and hate."""
    title = "Love and hate"
    if not {LOVE, HATE} <= set(likelihoods[TEMPLATE]):
        return Section(title)
    contrasts = love_hate_contrast(likelihoods)
    defined = contrasts[contrasts["contrast"].notna()]
    n = min(CONTRASTS_AT_EACH_END, len(defined) // 2)
    if not n:
        return Section(title)
    rows = tuple(_contrast_row(row) for row in pd.concat([defined.head(n), defined.tail(n)]).itertuples())
    mean, below = float(defined["contrast"].mean()), int((defined["relative"] < 0).sum())
    caption = f"Contrast of love and hate, nats per token: the {n} lowest and {n} highest of {len(defined):,}"
    note = text.contrast_note(len(defined), mean, below, int(contrasts["n_left_out"].sum()))
    columns = ("descriptor", "axis", "value", "against mean", "nouns")
    return Section(title, [text.contrast], [Table(caption, columns, rows, note, ideal=mean)])


def _contrast_row(row: tuple) -> Row:
    bounds = None if math.isnan(row.low) else (row.low, row.high)
    score = BiasScore("love_hate_contrast", row.contrast, None, (-math.inf, math.inf), row.n, bounds)
    relative = number_cell(row.relative, 3, sign=True)
    cells = (Cell(axis_name(row.axis), prose=True), score_cell(score), relative, *count_cells(row.n))
    return Row(sanitize(row.descriptor, MAX_NAME_LENGTH), cells, score_marks("before", score))


def _pairs_section(likelihoods: pd.DataFrame, effects: pd.DataFrame, masked: bool) -> Section:
    """Return the section with a map of all pairs of descriptors for each axis; the likeliest descriptors are first."""
    surprisals = compute_surprisals(likelihoods).groupby([AXIS, DESCRIPTOR])["surprisal"].mean()
    rows, parts = [], []
    for axis in sorted(effects[AXIS].unique()):
        matrix = effect_matrix(effects, axis)
        order = surprisals[axis].loc[matrix.index].sort_values(kind="stable").index
        matrix = matrix.loc[order, order]
        rows.append(_largest_effect(axis, matrix))
        title = f"{axis_name(axis)}: {len(matrix)} descriptors, {math.comb(len(matrix), 2):,} pairs"
        description = f"{title}; the likeliest first: {', '.join(sanitize(name, MAX_NAME_LENGTH) for name in order)}"
        caption = "Of 100 pairs of sentences, the number in which the descriptor of the row is less likely"
        parts.append(
            Section(
                title,
                figures=[Figure(caption, svg(pair_chart(description, matrix)))],
                folded=len(matrix) > MAX_OPEN_MAP,
            )
        )
    caption = "The two descriptors of each axis that differ most, mean over templates"
    table = Table(caption, ("axis", "less likely", "likelier", "of 100"), tuple(rows))
    sentences = [text.pair_numbers, text.pair_maps(masked)] if rows else []
    return Section("All pairs of descriptors", sentences, [table], parts=parts)


def _largest_effect(axis: str, effects: pd.DataFrame) -> Row:
    values = effects.fillna(0.5).to_numpy()
    from_last, second = np.unravel_index(int(values[::-1].argmax()), values.shape)  # of equal maxima, the farthest
    first = len(values) - 1 - from_last
    names = (Cell(sanitize(effects.index[index], MAX_NAME_LENGTH), prose=True) for index in (first, second))
    return Row(axis_name(axis), (*names, number_cell(100 * values[first, second], 0)))
