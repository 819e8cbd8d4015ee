"""Reports on Likelihood Bias: of one model, and of two over the same sentences (paper 002, §2.3.2, §3.1, B.1)."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from evaluation.metrics.likelihood_bias import (
    HATE,
    LEVEL,
    LOVE,
    N_TOKENS,
    effect_matrix,
    extreme_descriptors,
    love_hate_contrast,
    pair_effects,
    perplexity,
    perplexity_quantiles,
    same_length,
)
from evaluation.report.likelihood_bias.plots import axis_name, pair_map, share_map, short, spread_map
from evaluation.report.numbers import find, number, p_value, percent, undefined, visible
from evaluation.report.page import Figure, Page, Section
from evaluation.report.tables import Cell, Mark, Row, Table, score_cell
from evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, BiasScore

RAW, CORRECTED = METRICS = ("likelihood_bias", "likelihood_bias_bh")
CONTRASTS_SHOWN = 8  # descriptors at each end
FOLDED_FROM = 25  # descriptors of an axis: its map is folded away
LONGEST_NAME = 60
MANY_LEFT_OUT = 0.10  # of the sentences: beyond it a warning is shown


def likelihood_page(
    scores: Sequence[BiasScore],
    likelihoods: pd.DataFrame,
    *,
    model: str,
    dataset: str,
    date: str,
    notes: Sequence[str] = (),
    truth: Sequence[BiasScore] = (),
    masked: bool = False,
) -> Page:
    """Return the report of one model.

    Args:
        scores: of `metrics.likelihood_bias.likelihood_bias`; others among them are passed over.
        likelihoods: the sentences that they were made of, one row each.
        truth: what a perfect learner of a testbed would score, if that is known.
        masked: whether they are pseudo-log-likelihoods of noun phrases (002, B.1).

    Raises:
        InputError: a column of the likelihoods is missing, there is no row, or a sentence stands twice.
    """
    scores = [score for score in scores if score.metric in METRICS]
    quantiles, effects = perplexity_quantiles(likelihoods), _effects(likelihoods)
    big, under = _headline(scores, masked)
    return Page(
        title="Likelihood Bias of noun phrases" if masked else "Likelihood Bias",
        subtitle=f"{model} · {dataset}",
        date=date,
        big=big,
        under=under,
        verdict=_verdict(scores, masked),
        warnings=_warnings(quantiles),
        tables=[_overall_table(scores)],
        notes=[_counts(scores, quantiles), INTERVAL_IN_WORDS + (_PLANTED if truth else ""), *notes],
        sections=[
            Section("By axis", tables=[_axis_table(scores, effects, truth)], first_screen=True),
            _grid_section(scores),
            _extremes_section(scores, likelihoods, masked),
            _contrast_section(likelihoods),
            _spread_section(quantiles, masked),
            _pairs_section(likelihoods, effects, masked),
            _truth_section(scores, truth),
        ],
        glossary=_glossary(masked),
        limits=LIMITS,
        signature=scores[0].signature if scores else {},
    )


def likelihood_comparison_page(
    before_scores: Sequence[BiasScore],
    after_scores: Sequence[BiasScore],
    differences: Sequence[BiasScore] = (),
    *,
    before_name: str,
    after_name: str,
    dataset: str,
    date: str,
    notes: Sequence[str] = (),
    masked: bool = False,
) -> Page:
    """Return the report of two models over the same sentences.

    Args:
        before_scores, after_scores: of `metrics.likelihood_bias.likelihood_bias` on each.
        differences: `likelihood_bias_difference` and `likelihood_bias_bh_difference`, after less before, with their
            intervals; where there is none, the values stand without a statement on their change.
    """
    both = (before_scores, after_scores)
    change = find(differences, f"{RAW}_difference")
    old, new = (find(scores, RAW) for scores in both)
    known = change is not None and math.isfinite(change.value)
    return Page(
        title="Likelihood Bias, compared",
        subtitle=f"○ {visible(before_name, 120)} → ● {visible(after_name, 120)} · {dataset}",
        date=date,
        big=number(100 * change.value, 1, sign=True) if known else "–",
        under=_change_in_words(change) if known else "no paired difference of Likelihood Bias is given",
        verdict=_change_verdict(old, new, change),
        tables=[_change_table("All axes", both, differences, [({}, metric) for metric in METRICS])],
        notes=[INTERVAL_IN_WORDS, *notes],
        sections=[
            Section(
                f"By {cut}",
                tables=[_change_table(_LABELS[RAW], both, differences, [({cut: it}, RAW) for it in values])],
                first_screen=cut == AXIS,
            )
            for cut in (AXIS, TEMPLATE)
            if (values := _in_order(before_scores, cut))
        ],
        glossary=_glossary(masked),
        limits=LIMITS,
        signature=next((score.signature for score in (*differences, *before_scores)), {}),
        sides=("before", "after"),
    )


# What is said.

INTERVAL_IN_WORDS = (
    "Brackets hold the 95 % interval over other descriptors of the same kind; it says nothing of other nouns or "
    "templates."
)
_SLOTS = "{NP} is a singular noun phrase, {PNP} a plural one."
_PLANTED = " ◇ marks what was planted in the testbed."
_LABELS = {RAW: "Likelihood Bias, %", CORRECTED: "after Benjamini–Hochberg, %"}
_CHANCE = f"chance alone gives at most {percent(LEVEL)}"

LIMITS = (
    "The likelihood of a sentence is no opinion. The numbers say how differently a model treats descriptors; they make "
    "no statement on harm, and a high Likelihood Bias says nothing of who is treated well.",
    "Descriptors of more tokens, or of rarer ones, are less likely for reasons of spelling and of how often people "
    "write them. The table of the most and least likely descriptors says whether it compares those of one length; the "
    "scores, as in the paper, do not.",
    "The test takes the sentences of two descriptors as independent, though both come with the same nouns. Most of "
    "what makes a sentence likely is shared, so the test is conservative: differences are missed, not made up.",
    "Axes and descriptors are those of the paper, and the nouns and sentences are English. Axes have different numbers "
    "and kinds of descriptors: compare models on one axis sooner than axes of one model.",
    "With more nouns a smaller difference is found: compare shares only between runs with the same nouns.",
)


def _glossary(masked: bool) -> list[tuple[str, str]]:
    compared = "pseudo-log-likelihoods" if masked else "perplexities"
    entries = [
        (
            "Likelihood Bias",
            "For each axis and template, the share of pairs of descriptors whose sentences are not equally likely: "
            f"their {compared}, one for each noun, differ by a two-sided Mann–Whitney U test at p < 0.05 (002, "
            "§2.3.2). 0 to 100 %. If nothing but chance made them differ it would be 5 %, and less as descriptors "
            "share their nouns.",
        ),
        (
            "Benjamini–Hochberg",
            "The same share after a correction for testing many pairs at once, within each axis and template: of the "
            "pairs that are left, at most 5 % are expected to be there by chance. Ideal 0.",
        ),
        (
            "AUC",
            "How strongly two descriptors A and B differ: 0.83 means that in 83 of 100 pairs of sentences the one with "
            "A is the less likely; 0.5 is no difference. The mean of |AUC − ½| over pairs is 0 for a model that does "
            "not tell descriptors apart, about 0.06 by chance with 30 nouns each, and at most 0.5.",
        ),
    ]
    if masked:
        meaning = (
            "Each token of the noun phrase is masked in turn, and the logarithms of the probabilities that the model "
            "gives to the hidden tokens are added up, in nats; the rest of the sentence, from the Sentence Encoder "
            "Association Test (SEAT), is only context (002, B.1). Where a number like a perplexity is shown, it is "
            "exp(−pseudo-log-likelihood ∕ number of tokens)."
        )
        return [*entries, ("pseudo-log-likelihood", meaning)]
    meaning = (
        "How surprised the model is by a sentence, for each token: exp(−log-likelihood ∕ number of tokens). 1 is "
        "certainty; 50 is a choice among 50 equally likely tokens each time. A low one is a likely sentence."
    )
    return [*entries, ("perplexity", meaning)]


def _headline(scores: Sequence[BiasScore], masked: bool) -> tuple[str, str]:
    score = find(scores, RAW)
    if score is None:
        return "–", "Likelihood Bias was not measured"
    if math.isnan(score.value):
        return "–", f"Likelihood Bias is {undefined(score)}"
    what = "whose noun phrases" if masked else "whose sentences"
    span = "" if score.interval is None else f", 95 % interval {_span(score.interval)}"
    return (
        percent(score.value, 1),
        f"of pairs of descriptors of one axis, {what} are not equally likely{span}; {_CHANCE}",
    )


def _verdict(scores: Sequence[BiasScore], masked: bool) -> str:
    raw, corrected = (find(scores, metric) for metric in METRICS)
    if raw is None:
        return "Likelihood Bias was not measured, so there is no verdict."
    if math.isnan(raw.value):
        return f"No verdict: Likelihood Bias is {undefined(raw)}."
    left = corrected is not None and math.isfinite(corrected.value)
    after = f", {percent(corrected.value, 1)} after correction for the many tests" if left else ""
    span = "" if raw.interval is None else f" (95 % interval {_span(raw.interval)})"
    what = "pseudo-log-likelihoods of the phrases" if masked else "perplexities of the sentences"
    share = f"the {what} differ in {percent(raw.value, 1)} of pairs of one axis{span}{after}; {_CHANCE}"
    if raw.value <= LEVEL or (raw.interval is not None and raw.interval[0] <= LEVEL):
        if left and corrected.value > 0:
            return f"The model treats few descriptors of an axis differently: {share}."
        return f"No difference between descriptors can be told from chance: {share}."
    return f"How likely the model finds a sentence depends on the descriptor in it: {share}."


def _warnings(quantiles: pd.DataFrame) -> list[str]:
    missing, n = int(quantiles["n_left_out"].sum()), int(quantiles[["n", "n_left_out"]].to_numpy().sum())
    if missing <= MANY_LEFT_OUT * n:
        return []
    share = percent(missing / n)
    return [f"{missing:,} of {n:,} sentences ({share}) have no finite likelihood and are left out."]


def _counts(scores: Sequence[BiasScore], quantiles: pd.DataFrame) -> str:
    """Return what the numbers are made of, and what is not in them."""
    n, missing = int(quantiles["n"].sum()), int(quantiles["n_left_out"].sum())
    sentence = f"{n:,} sentences were compared; {_left_out(missing, 'no finite likelihood')}."
    score = find(scores, RAW)
    if score is None:
        return sentence
    pairs = f"{score.n:,} pairs of descriptors were tested, each in each template; "
    return f"{sentence} {pairs}{_left_out(score.n_left_out, 'a descriptor without a sentence')}."


def _left_out(n: int, why: str) -> str:
    return f"{n:,} more {'is' if n == 1 else 'are'} left out ({why})" if n else "none is left out"


def _span(bounds: tuple[float, float]) -> str:
    return f"{number(100 * bounds[0], 1)} to {number(100 * bounds[1], 1)}"


def _change_in_words(change: BiasScore) -> str:
    span = "" if change.interval is None else f", 95 % interval {_span(change.interval)}"
    return f"percentage points of Likelihood Bias, after less before{span}"


def _change_verdict(old: BiasScore | None, new: BiasScore | None, change: BiasScore | None) -> str:
    for score, what in ((old, "before"), (new, "after")):
        if score is None or math.isnan(score.value):
            reason = "not measured" if score is None else undefined(score)
            return f"No verdict: Likelihood Bias {what} is {reason}."
    values = f"{percent(old.value, 1)} of pairs of descriptors differed before and {percent(new.value, 1)} after"
    if change is None or change.interval is None:
        return f"Whether Likelihood Bias changed is not said, as the change has no interval: {values}."
    low, high = change.interval
    moved = f"a change of {number(100 * change.value, 1, sign=True)} (95 % interval {_span(change.interval)})"
    opening = (
        "Likelihood Bias rose" if low > 0 else "Likelihood Bias fell" if high < 0 else "No change can be told from 0"
    )
    return f"{opening}: {values}, {moved}."


# What is shown.


def _overall_table(scores: Sequence[BiasScore]) -> Table:
    rows = []
    for metric in METRICS:
        score = find(scores, metric)
        if score is not None:
            ideal = "at most 5" if metric == RAW else "0"
            rows.append(Row(_LABELS[metric], (_share_cell(score), Cell(ideal), Cell(f"{score.n:,}"))))
    return Table(
        "Pairs of descriptors whose sentences are not equally likely", ("measure", "value", "by chance", "pairs"), rows
    )


def _share_cell(score: BiasScore | None, sign: bool = False) -> Cell:
    return score_cell(score, 100, 1, sign)


def _mark(role: str, score: BiasScore | None) -> tuple[Mark, ...]:
    if score is None or not math.isfinite(score.value):
        return ()
    bounds = score.interval and (100 * score.interval[0], 100 * score.interval[1])
    return (Mark(role, 100 * score.value, bounds),)


def _in_order(scores: Sequence[BiasScore], cut: str) -> list[str]:
    """Return the axes or templates, the highest Likelihood Bias first."""
    cuts = [score for score in scores if score.metric == RAW and list(score.group) == [cut]]
    return [str(it.group[cut]) for it in sorted(cuts, key=lambda it: (-_low_if_nan(it.value), str(it.group[cut])))]


def _low_if_nan(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _axis_table(scores: Sequence[BiasScore], effects: pd.DataFrame, truth: Sequence[BiasScore]) -> Table:
    sizes = (effects["auc"] - 0.5).abs().groupby(effects[AXIS]).mean()
    shown = {axis: Cell(number(sizes[axis], 2) if axis in sizes else "–") for axis in _in_order(scores, AXIS)}
    rows = _cut_rows(scores, AXIS, truth, shown)
    columns = ("axis", "value", "corrected", "|AUC − ½|", "pairs")
    return Table("Likelihood Bias by axis, %; the line at 5 is what chance gives at most", columns, rows, ideal=5.0)


def _cut_rows(
    scores: Sequence[BiasScore], cut: str, truth: Sequence[BiasScore] = (), more: Mapping[str, Cell] | None = None
) -> tuple[Row, ...]:
    """Return a row for each axis or template: both shares, the cell that `more` has for it, and its pairs."""
    rows = []
    for value in _in_order(scores, cut):
        raw, corrected = (find(scores, metric, **{cut: value}) for metric in METRICS)
        beside = (more[value],) if more else ()
        cells = (_share_cell(raw), _share_cell(corrected), *beside, Cell(f"{raw.n:,}"))
        marks = _mark("before", raw) + _mark("truth", find(truth, RAW, **{cut: value}))
        rows.append(Row(_name(cut, value), cells, marks if _mark("before", raw) else ()))
    return tuple(rows)


def _name(cut: str, value: str) -> str:
    return axis_name(value) if cut == AXIS else visible(value, LONGEST_NAME)


def _grid_section(scores: Sequence[BiasScore]) -> Section:
    """Return the share for each axis in each template."""
    axes, templates = _in_order(scores, AXIS), _in_order(scores, TEMPLATE)
    cells = {
        (str(it.group[TEMPLATE]), str(it.group[AXIS])): it.value
        for it in scores
        if it.metric == RAW and set(it.group) == {AXIS, TEMPLATE}
    }
    rows = _cut_rows(scores, TEMPLATE)
    by_template = Table(
        "Likelihood Bias by template, %; the line at 5 is what chance gives at most",
        ("template", "value", "corrected", "pairs"),
        rows,
        ideal=5.0,
    )
    if not cells:
        return Section("By template", tables=[by_template])
    shares = pd.DataFrame([[cells.get((t, a), math.nan) for a in axes] for t in templates], templates, axes)
    told = "Likelihood Bias in percent, templates by axes"

    def percentage(share: float) -> str:
        return number(100 * share, 0)

    figure = Figure(
        "Likelihood Bias, %, by axis and template",
        share_map(f"{told}: {_said(rows)}", shares),
        f"Rows and columns begin with the highest. {_SLOTS}",
    )
    first, last = templates[0], templates[-1]
    sentence = (
        f"It is highest in “{visible(first, LONGEST_NAME)}” ({rows[0].cells[0].text} %) and lowest in "
        f"“{visible(last, LONGEST_NAME)}” ({rows[-1].cells[0].text} %)."
    )
    return Section(
        "By axis and template",
        [sentence] if len(rows) > 1 and rows[-1].marks else [],
        figures=[figure],
        parts=[
            Section("By template, with intervals", tables=[by_template], folded=True),
            Section("By axis and template, as a table", tables=[_grid_table(told, shares, percentage)], folded=True),
        ],
    )


def _said(rows: Sequence[Row]) -> str:
    return "; ".join(f"{row.label} {row.cells[0].text}" for row in rows)


def _grid_table(caption: str, frame: pd.DataFrame, shown: Callable[[float], str]) -> Table:
    """Return a frame, templates × axes, as a table."""
    rows = (
        Row(short(template), tuple(Cell(shown(value) if math.isfinite(value) else "–") for value in values))
        for template, values in zip(frame.index, frame.to_numpy(), strict=True)
    )
    return Table(caption, ("template", *map(axis_name, frame.columns)), tuple(rows), _SLOTS)


def _three_digits(value: float) -> str:
    return f"{value:.2e}" if value >= 1e6 else number(value, max(0, 2 - math.floor(math.log10(value))))


def _extremes_section(scores: Sequence[BiasScore], likelihoods: pd.DataFrame, masked: bool) -> Section:
    """Return the descriptors of lowest and highest perplexity by axis, in one template (Table 3)."""
    present = likelihoods[TEMPLATE].unique()
    template = LOVE if LOVE in present else present[0]
    rows_of = likelihoods[likelihoods[TEMPLATE] == template]
    lengths = not masked or rows_of[N_TOKENS].nunique() > 1
    found = extreme_descriptors(same_length(rows_of) if lengths else rows_of)
    everything = rows_of.groupby(AXIS)[DESCRIPTOR].nunique()
    shares = {axis: find(scores, RAW, axis=axis, template=template) for axis in found[AXIS].unique()}
    values = {axis: math.nan if score is None else score.value for axis, score in shares.items()}
    rows = []
    for axis in sorted(values, key=lambda axis: (-_low_if_nan(values[axis]), axis)):
        of_axis = found[found[AXIS] == axis]
        ends = (_names(of_axis[of_axis["end"] == end]) for end in ("low", "high"))
        compared = Cell(f"{of_axis['compared'].iloc[0]} of {everything[axis]}")
        rows.append(
            Row(axis_name(axis), (_plain_share(shares[axis]), *(Cell(it, prose=True) for it in ends), compared))
        )
    what = "pseudo-perplexity" if masked else "perplexity"
    sentences = [
        f"“{visible(template, LONGEST_NAME)}”: by the median {what} over nouns, in brackets. "
        + (
            "Only descriptors with the commonest number of tokens of their axis are compared, so that length does not "
            "decide; their number is in the last column."
            if lengths
            else "Descriptors of any number of tokens are compared: longer ones are less likely."
        )
    ]
    caption = "Most and least likely descriptors by axis"
    columns = ("axis", "LB, %", "most likely", "least likely", "compared")
    return Section(
        caption if rows else "",
        sentences if rows else [],
        [Table(caption, columns, tuple(rows))],
    )


def _plain_share(score: BiasScore | None) -> Cell:
    return Cell("–" if score is None or math.isnan(score.value) else number(100 * score.value, 1))


def _names(ends: pd.DataFrame) -> str:
    return ", ".join(
        f"{visible(name, LONGEST_NAME)}\u00a0({_three_digits(median)})"
        for name, median in zip(ends[DESCRIPTOR], ends["median"], strict=True)
    )


def _contrast_section(likelihoods: pd.DataFrame) -> Section:
    """Return the descriptors whom the model finds loving, and hating, likelier by most than for others."""
    title = "Love and hate"
    if not {LOVE, HATE} <= set(likelihoods[TEMPLATE]):
        return Section(title)
    contrasts = love_hate_contrast(likelihoods)
    defined = contrasts[contrasts["contrast"].notna()]
    n = min(CONTRASTS_SHOWN, len(defined) // 2)
    if not n:
        return Section(title)
    rows = tuple(_contrast_row(row) for row in pd.concat([defined.head(n), defined.tail(n)]).to_dict("records"))
    mean, low = float(defined["contrast"].mean()), int((defined["relative"] < 0).sum())
    sentence = (
        "How much likelier it is to love these people than to hate them: log-perplexity of “I hate …” less that of "
        "“I love …”, the mean over nouns, in nats per token. The two sentences are not equally likely in themselves, "
        "so the line is at the mean of all descriptors, and what lies left of it is nearer to hate than the others."
    )
    missing = int(contrasts["n_left_out"].sum())
    note = (
        f"The mean of all {len(defined):,} is {number(mean, 3, sign=True)}; {low:,} lie below it. As extremes of many "
        "they owe a part of their distance to chance."
    )
    note += f" {missing:,} sentences without their counterpart are left out." if missing else ""
    caption = f"Contrast of love and hate, nats per token: the {n} lowest and {n} highest of {len(defined):,}"
    columns = ("descriptor", "axis", "value", "against mean", "nouns")
    return Section(title, [sentence], [Table(caption, columns, rows, note, ideal=mean)])


def _contrast_row(row: Mapping) -> Row:
    bounds = None if math.isnan(row["low"]) else (row["low"], row["high"])
    score = BiasScore("contrast", row["contrast"], None, (-math.inf, math.inf), row["n"], bounds)
    cells = (
        Cell(axis_name(row[AXIS]), prose=True),
        score_cell(score, 1, 3, sign=True),
        Cell(number(row["relative"], 3, sign=True)),
        Cell(f"{row['n']:,}"),
    )
    return Row(visible(row[DESCRIPTOR], LONGEST_NAME), cells, (Mark("before", row["contrast"], bounds),))


def _spread_section(quantiles: pd.DataFrame, masked: bool) -> Section:
    """Return how perplexities are spread by axis and template (Figures 2 and 4)."""
    what = "pseudo-perplexity" if masked else "perplexity"
    columns = [name for name in quantiles if name.startswith("q")]
    frames = {name: quantiles.pivot(index=TEMPLATE, columns=AXIS, values=name) for name in columns}
    median = frames["q50"]
    if not np.isfinite(median.to_numpy()).any():
        return Section(f"How {what} is distributed")
    down, across = (median.median(axis=side).sort_values(ascending=False, kind="stable").index for side in (1, 0))
    frames = [frame.loc[down, across] for frame in frames.values()]
    said = "; ".join(f"{axis_name(axis)} {_three_digits(median[axis].median())}" for axis in across)
    figure = Figure(
        f"{what.capitalize()} of sentences by axis and template",
        spread_map(f"{what.capitalize()} by axis and template; medians over templates: {said}", frames),
        f"Each cell: line from the 5 % to the 95 % quantile of {what}, box over the middle half, stroke at the median; "
        f"one logarithmic scale for all, below. Rows and columns begin with the highest. {_SLOTS}",
    )
    table = _grid_table(f"Median {what}", frames[columns.index("q50")], _three_digits)
    part = Section(f"Median {what} as a table", tables=[table], folded=True)
    return Section(f"How {what} is distributed", figures=[figure], parts=[part])


def _effects(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Return the effects of all pairs; none where each axis has one descriptor alone."""
    if likelihoods.groupby(AXIS)[DESCRIPTOR].nunique().max() < 2:
        return pd.DataFrame({AXIS: [], "descriptor_a": [], "descriptor_b": [], "auc": []})
    return pair_effects(likelihoods)


def _pairs_section(likelihoods: pd.DataFrame, effects: pd.DataFrame, masked: bool) -> Section:
    """Return a map of each axis with every pair of its descriptors, from the likeliest to the least likely."""
    logs = np.log(pd.Series(perplexity(likelihoods), likelihoods.index))
    places = logs.groupby([likelihoods[AXIS], likelihoods[DESCRIPTOR]]).mean()
    rows, parts = [], []
    for axis in sorted(effects[AXIS].unique()):
        matrix = effect_matrix(effects, axis)
        order = places[axis].loc[matrix.index].sort_values(kind="stable").index
        matrix = matrix.loc[order, order]
        rows.append(_widest_pair(axis, matrix))
        caption = f"{axis_name(axis)}: {len(matrix)} descriptors, {math.comb(len(matrix), 2):,} pairs"
        told = f"{caption}; the likeliest first: {', '.join(visible(name, LONGEST_NAME) for name in order)}"
        drawing = pair_map(told, matrix)
        figure = Figure("Of 100 pairs of sentences, how many times the row’s is the less likely", drawing)
        parts.append(Section(caption, figures=[figure], folded=len(matrix) >= FOLDED_FROM))
    columns = ("axis", "less likely", "likelier", "of 100")
    table = Table("The two descriptors of each axis that differ most, the mean over templates", columns, tuple(rows))
    mean = "mean pseudo-log-likelihood" if masked else "mean log-perplexity"
    sentences = (
        "The last column of the table says in how many of 100 pairs of sentences the one with the first descriptor is "
        "the less likely; 50 would be no difference. Length is not held equal here.",
        "In the maps (HTML only) each square compares the descriptor at the right end of its row with the one on top "
        f"of its column. Orange: the row’s is the less likely; blue: the column’s. Ordered by {mean}, the likeliest "
        "first.",
    )
    return Section("Every pair of descriptors", sentences if rows else (), [table], parts=parts)


def _widest_pair(axis: str, above: pd.DataFrame) -> Row:
    values = above.fillna(0.5).to_numpy()
    from_last, second = np.unravel_index(int(values[::-1].argmax()), values.shape)  # of several, the farthest apart
    first = len(values) - 1 - from_last
    names = (Cell(visible(above.index[place], LONGEST_NAME), prose=True) for place in (first, second))
    return Row(axis_name(axis), (*names, Cell(number(100 * values[first, second], 0))))


def _truth_section(scores: Sequence[BiasScore], truth: Sequence[BiasScore]) -> Section:
    """Return the measured shares beside those of a perfect learner of the testbed."""
    rows = []
    for planted in truth:
        score = find(scores, planted.metric, **planted.group)
        if score is None:
            continue
        cut = [_name(name, str(value)) for name, value in planted.group.items()]
        inside = score.interval and score.interval[0] <= planted.value <= score.interval[1]
        verb = "" if inside is None or math.isnan(planted.value) else "holds it" if inside else "does not hold it"
        label = ", ".join([_LABELS[planted.metric].removesuffix(", %"), *cut])
        rows.append(Row(label, (_share_cell(planted), _share_cell(score), Cell(verb))))
    table = Table("Measured against what was planted, %", ("measure", "planted", "measured", "interval"), tuple(rows))
    sentence = (
        "The model learned from a grammar whose likelihoods are known, so what a perfect learner would score is known "
        "too. What it did not learn shows here as well as what the measure misses."
    )
    return Section("Against what was planted", [sentence] if rows else [], [table])


def _change_table(
    caption: str,
    both: Sequence[Sequence[BiasScore]],
    differences: Sequence[BiasScore],
    cuts: Sequence[tuple[Mapping[str, str], str]],
) -> Table:
    """Return both models' shares and the change, one row for each (group, metric)."""
    rows = []
    for group, metric in cuts:
        old, new = (find(scores, metric, **group) for scores in both)
        change = find(differences, f"{metric}_difference", **group)
        if old is None and new is None:
            continue
        p = Cell("" if change is None or change.p_value is None else p_value(change.p_value))
        moved = Cell("") if change is None else _share_cell(change, sign=True)
        label = next((_name(cut, str(value)) for cut, value in group.items()), _LABELS[metric])
        marks = _mark("before", old) + _mark("after", new) if group else ()
        rows.append(Row(label, (_share_cell(old), _share_cell(new), moved, p), marks))
    first = next((cut for group, _ in cuts for cut in group), "measure")
    return Table(caption, (first, "before", "after", "change", "p"), tuple(rows), ideal=5.0)
