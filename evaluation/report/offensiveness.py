"""Report on what an offensiveness classifier makes of the sentences themselves (paper 002, §3.3, B.3)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from evaluation.datasets.holistic_bias import NONE
from evaluation.datasets.prompts import need
from evaluation.metrics.offensiveness import BANDS, offensiveness_bands, offensiveness_by_template
from evaluation.report.likelihood_bias.plots import axis_name
from evaluation.report.numbers import find, interval, number, percent, undefined, visible
from evaluation.report.page import Example, Page, Section
from evaluation.report.tables import Cell, Mark, Row, Table, score_cell
from evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, TEXT, BiasScore
from evaluation.styles import NEUTRAL_DESCRIPTOR

PROBABILITY, NEUTRAL_PROBABILITY = "probability", "neutral_probability"
SHARE, EFFECT = "offensive_share", "descriptor_effect"
EFFECTS_SHOWN, EXAMPLES_SHOWN = 10, 6  # at each end
NAMED_IN_BAND = 20  # descriptors; the others are counted
LONGEST_NAME = 60


def offensiveness_page(
    scores: Sequence[BiasScore],
    table: pd.DataFrame,
    *,
    model: str,
    dataset: str,
    date: str,
    notes: Sequence[str] = (),
) -> Page:
    """Return the report of one classifier on one set of sentences.

    Args:
        scores: of `metrics.offensiveness`: `offensive_share` of {of: prompts} and {of: responses}, and
            `descriptor_effect`; what is missing is said to be so, and others are passed over.
        table: one row per sentence: text, axis, template, descriptor, probability (of the offensive label) and, where
            there is one, neutral_probability (the same with the neutral descriptor); NaN is left out and counted.
        model: the classifier, or whose responses it judged.

    Raises:
        InputError: a column of the table is missing.
    """
    need(list(table), (TEXT, AXIS, TEMPLATE, DESCRIPTOR, PROBABILITY), "offensiveness table")
    table = table[table[DESCRIPTOR] != NONE].reset_index(drop=True)
    scores = [score for score in scores if score.metric in (SHARE, EFFECT)]
    big, under = _headline(scores)
    return Page(
        title="Offensiveness by descriptor",
        subtitle=f"{model} · {dataset}",
        date=date,
        big=big,
        under=under,
        verdict=_verdict(scores),
        tables=[_overall_table(scores)],
        notes=[_counts(table), *notes],
        sections=[
            _effect_section(scores, table),
            _template_section(table),
            _band_section(table),
            _example_section(table),
        ],
        glossary=GLOSSARY,
        limits=LIMITS,
        signature=scores[0].signature if scores else {},
    )


# What is said.

GLOSSARY = (
    (
        "offensiveness",
        "The probability that the classifier gives to its offensive label for one sentence, from 0 to 100 %.",
    ),
    (
        "offensive",
        "A text that the classifier gives a probability of at least one half (002, B.2). The interval is Wilson’s.",
    ),
    (
        "descriptor effect",
        "How much more probably offensive a sentence is with its descriptor than the same one with "
        f"“{NEUTRAL_DESCRIPTOR}”, in percentage points: the mean over sentences of a template, then over templates. "
        "Ideal 0. The interval is over templates, and for the mean of all over descriptors.",
    ),
    (
        "mean and standard deviation",
        "Of the descriptors’ mean offensiveness in one template (002, Table 13), so that each descriptor counts the "
        "same. A classifier that does not look at the descriptor has a standard deviation of 0.",
    ),
)

LIMITS = (
    "The numbers say as much of the classifier as of the text. Classifiers take the mere mention of some people for an "
    "offence; a high number for a descriptor does not mean that the word, or the people, are offensive.",
    "Such classifiers are known to mark harmless African American English as offensive more often (Sap et al. 2019, "
    "“The Risk of Racial Bias in Hate Speech Detection”).",
    "Some descriptors are derogatory words, and a classifier that marks them is right: an effect of 0 for all is not "
    "what one would wish for.",
    f"“{NEUTRAL_DESCRIPTOR}” is taken for neutral, as in the paper; another word would move all effects alike.",
    "Where a template is marked as offensive whatever is in it, or never, there is no room for a descriptor to show.",
    "Of twenty descriptors without an effect, about one is expected to have an interval that excludes 0 by chance.",
)

_OFFENSIVE = "These sentences were written to test models; some of them are offensive."
_SHARES = {"prompts": "offensive sentences, %", "responses": "offensive responses, %"}
_EFFECT_LABEL = "descriptor effect, percentage points"


def _headline(scores: Sequence[BiasScore]) -> tuple[str, str]:
    effect = find(scores, EFFECT)
    if effect is None:
        return "–", "the effect of descriptors was not measured"
    if math.isnan(effect.value):
        return "–", f"the effect of descriptors is {undefined(effect)}"
    span = "" if effect.interval is None else f", 95 % interval {_span(effect.interval)}"
    under = (
        f"percentage points more probably offensive with a descriptor than with “{NEUTRAL_DESCRIPTOR}”{span}; ideal 0"
    )
    return number(100 * effect.value, 1, sign=True), under


def _verdict(scores: Sequence[BiasScore]) -> str:
    effect = find(scores, EFFECT)
    if effect is None:
        return "The effect of descriptors was not measured, so there is no verdict."
    if math.isnan(effect.value):
        return f"No verdict: the effect of descriptors is {undefined(effect)}."
    size = f"{number(100 * effect.value, 1, sign=True)} percentage points against “{NEUTRAL_DESCRIPTOR}”"
    if effect.interval is None:
        return f"No verdict: the mean effect of a descriptor is {size}, and there is no interval to judge it by."
    low, high = effect.interval
    opening = (
        "The classifier finds a sentence more offensive for the descriptor in it"
        if low > 0
        else "The classifier finds a sentence less offensive for the descriptor in it"
        if high < 0
        else "The mean effect of a descriptor cannot be told from 0"
    )
    single = [score for score in scores if score.metric == EFFECT and list(score.group) == [DESCRIPTOR]]
    above, below = (
        sum(it.interval is not None and (it.interval[0] > 0 if up else it.interval[1] < 0) for it in single)
        for up in (True, False)
    )
    beside = f"; {above:,} of {len(single):,} descriptors lie above 0 with their interval, {below:,} below"
    beside = beside if single else ""
    return f"{opening}: {size} on average (95 % interval {_span(effect.interval)}){beside}."


def _counts(table: pd.DataFrame) -> str:
    missing = int(table[PROBABILITY].isna().sum())
    left_out = f"{missing:,} more without one {'is' if missing == 1 else 'are'} left out" if missing else ""
    sentence = f"{len(table) - missing:,} sentences with a descriptor have a probability"
    return f"{sentence}; {left_out or 'none is left out'}."


def _span(bounds: tuple[float, float]) -> str:
    return interval((100 * bounds[0], 100 * bounds[1]), 1, sign=True)[1:-1].replace(", ", " to ")


# What is shown.


def _overall_table(scores: Sequence[BiasScore]) -> Table:
    rows = []
    for of, label in _SHARES.items():
        share = find(scores, SHARE, of=of)
        if share is not None:
            rows.append(_score_row(label, share, 2))
    effect = find(scores, EFFECT)
    if effect is not None:
        rows.append(_score_row(_EFFECT_LABEL, effect, 2, sign=True))
    return Table("What the classifier finds offensive", ("measure", "value", "texts", "left out"), tuple(rows))


def _score_row(label: str, score: BiasScore, decimals: int, sign: bool = False) -> Row:
    return Row(label, (score_cell(score, 100, decimals, sign), Cell(f"{score.n:,}"), Cell(f"{score.n_left_out:,}")))


def _effect_section(scores: Sequence[BiasScore], table: pd.DataFrame) -> Section:
    """Return the descriptors with the largest and with the smallest effect."""
    single = [score for score in scores if score.metric == EFFECT and list(score.group) == [DESCRIPTOR]]
    defined = sorted(
        (it for it in single if math.isfinite(it.value)), key=lambda it: (-it.value, str(it.group[DESCRIPTOR]))
    )
    axes = table.groupby(DESCRIPTOR)[AXIS].unique()
    n = min(EFFECTS_SHOWN, (len(defined) + 1) // 2)
    ends = [*defined[:n], *defined[max(n, len(defined) - n) :]]
    rows = tuple(_effect_row(score, axes) for score in ends)
    undefined_ones = len(single) - len(defined)
    note = f"{undefined_ones:,} of {len(single):,} have no sentence with both probabilities." if undefined_ones else ""
    note += " As extremes of many they owe a part of their distance to chance." if len(defined) > 2 * n else ""
    caption = f"Effect of a descriptor, percentage points: the largest and the smallest of {len(defined):,}"
    shown = Table(caption, ("descriptor", "axis", "value", "sentences"), rows, note.strip() if rows else "")
    sentence = (
        f"How much more probably offensive a sentence is than the same one with “{NEUTRAL_DESCRIPTOR}”. What the "
        "sentence itself adds is in both, so this is the descriptor’s own part. Intervals are over templates."
    )
    return Section("By descriptor", [sentence] if rows else [], [shown], first_screen=True)


def _effect_row(score: BiasScore, axes: Mapping[str, np.ndarray]) -> Row:
    name = score.group[DESCRIPTOR]
    bounds = score.interval and (100 * score.interval[0], 100 * score.interval[1])
    cells = (
        Cell(", ".join(axis_name(str(axis)) for axis in axes.get(name, ())), prose=True),
        score_cell(score, 100, 1, sign=True),
        Cell(f"{score.n:,}"),
    )
    return Row(visible(str(name), LONGEST_NAME), cells, (Mark("before", 100 * score.value, bounds),))


def _template_section(table: pd.DataFrame) -> Section:
    """Return mean and standard deviation across descriptors by template (Table 13)."""
    found = offensiveness_by_template(table, table[PROBABILITY].to_numpy())
    rows = tuple(
        Row(
            visible(row[TEMPLATE], LONGEST_NAME),
            (
                *(Cell(number(100 * row[it], 1) if math.isfinite(row[it]) else "–") for it in ("mean", "sd")),
                Cell(f"{row['descriptors']:,}"),
                Cell(f"{row['n']:,}"),
            ),
        )
        for row in found.to_dict("records")
    )
    return Section(
        "By template",
        ["Where the standard deviation is large, the classifier looks at the descriptor; the largest come first."]
        if rows
        else [],
        [
            Table(
                "Offensiveness by template, %: mean and standard deviation across descriptors",
                ("template", "mean", "std. deviation", "descriptors", "sentences"),
                rows,
            )
        ],
    )


def _band_section(table: pd.DataFrame) -> Section:
    """Return which descriptors fall into the paper's ranges of offensiveness, for its templates (Table 12)."""
    templates = set(table[TEMPLATE])
    bands = {template: ranges for template, ranges in BANDS.items() if template in templates}
    tables = []
    for template, ranges in bands.items():
        found = offensiveness_bands(table, table[PROBABILITY].to_numpy(), {template: ranges})
        rows = tuple(
            Row(
                f"{_bound(row['low'])} to {_bound(row['high'])} %",
                (Cell(f"{row['n']:,}"), Cell(_named(row["descriptors"]), prose=True)),
            )
            for row in found.to_dict("records")
        )
        tables.append(Table(f"“{template}”", ("mean offensiveness", "number", "descriptors"), rows))
    sentence = (
        "The ranges are those of the paper’s Table 12, between which others lie; the least offensive of a range come "
        "first. Where there are many, those at both ends are named."
    )
    return Section("Descriptors by mean offensiveness", [sentence] if tables else [], tables)


def _bound(share: float) -> str:
    return f"{100 * share:.4g}"


def _named(descriptors: Sequence[str]) -> str:
    names = [visible(name, LONGEST_NAME) for name in descriptors]
    if len(names) <= NAMED_IN_BAND:
        return ", ".join(names) or "(none)"
    half = NAMED_IN_BAND // 2
    return f"{', '.join(names[:half])}, … {len(names) - 2 * half:,} more …, {', '.join(names[-half:])}"


def _example_section(table: pd.DataFrame) -> Section:
    """Return the most offensive sentences, and those that their descriptor made so, one for each descriptor."""
    rows = table.assign(rise=math.nan)
    if NEUTRAL_PROBABILITY in table:
        rows["rise"] = table[PROBABILITY] - table[NEUTRAL_PROBABILITY]
    groups = (
        ("Highest probability", PROBABILITY, rows),
        ("Largest difference to the neutral descriptor", "rise", rows[rows["rise"] > 0]),
    )
    parts = []
    for title, by, part in groups:
        part = part[part[by].notna()].sort_values([by, TEXT], ascending=[False, True], kind="stable")
        part = part.drop_duplicates(DESCRIPTOR).head(EXAMPLES_SHOWN)
        parts.append(Section(title, examples=[_example(row) for row in part.to_dict("records")]))
    shown = any(part.shown for part in parts)
    sentence = f"{_OFFENSIVE} One for each descriptor."
    return Section("Sentences to read", [sentence] if shown else [], parts=parts)


def _example(row: Mapping) -> Example:
    neutral = row.get(NEUTRAL_PROBABILITY, math.nan)
    facts = [axis_name(str(row[AXIS])), visible(str(row[DESCRIPTOR]), LONGEST_NAME), percent(row[PROBABILITY], 1)]
    if math.isfinite(neutral):
        facts.append(f"{percent(neutral, 1)} with “{NEUTRAL_DESCRIPTOR}”")
    return Example(" · ".join(facts), (("sentence", ((str(row[TEXT]), False),)),))
