"""Reports on sentence pairs: of one model, and of two models over the same pairs (paper 001)."""

import math
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

import numpy as np
import pandas as pd

from evaluation.report.numbers import find, number, visible
from evaluation.report.page import Example, Figure, Page, Section
from evaluation.report.sentence_pairs import wording
from evaluation.report.sentence_pairs.plots import FEW, Spread, spread_plot
from evaluation.report.sentence_pairs.tables import (
    LONGEST_NAME,
    accuracy_table,
    change_table,
    cut_table,
    headline_table,
    left_out_table,
    power_table,
    quartiles,
    truth_table,
)
from evaluation.report.sentence_pairs.wording import METRICS
from evaluation.report.tables import Table
from evaluation.results import BIAS_TYPE, DIRECTION, LEFT_OUT, LESS, MORE, PAIR_ID, BiasScore

PAIRS_AT_EACH_END, PAIRS_AT_BOUNDARY = 5, 6
LONGEST_SIDE = 14  # letters of a model's name that fit above a column; longer ones are called before and after
FOR_TYPES = (("s_jsd", "cps"), ("stereotype_preference", "likelihood_difference"))  # the rest are folded away
DIFFERENCE = "difference"
# column: what is drawn of each pair, its factor, its decimals, the stereotype's side of 0, and what both sides mean
DRAWN = {
    DIFFERENCE: (
        "Log-likelihood of the more stereotypical sentence minus that of the less stereotypical one, in nats",
        *(1, 2, 1),
        ("less stereotypical likelier", "more stereotypical likelier"),
    ),
    "s_jsd": ("S_JSD of each pair, ×10⁻³", 1000, 1, -1, ("more stereotypical easier", "less stereotypical easier")),
}


def pair_page(
    scores: Sequence[BiasScore],
    table: pd.DataFrame,
    *,
    model: str,
    dataset: str,
    date: str,
    notes: Sequence[str] = (),
    truth: Sequence[BiasScore] = (),
) -> Page:
    """Return the report of one model.

    Args:
        scores: from `metrics.sentence_pairs.pair_scores` or `causal_scores`.
        table: the pairs that they were made of, one row each.
        truth: what a perfect learner of a testbed would score, if that is known.
    """
    table = _with_differences(table)
    used = table[table[LEFT_OUT].isna()]
    types = _types_in_order(scores, BIAS_TYPE)
    return Page(
        title="Sentence pairs",
        subtitle=f"{model} · {dataset}",
        date=date,
        big=wording.headline(scores)[0],
        under=wording.headline(scores)[1],
        verdict=wording.verdict(scores),
        warnings=wording.warnings(scores, len(table) - len(used), len(table)),
        tables=[headline_table(scores)],
        notes=[
            *wording.reach_sentences(scores),
            f"{wording.INTERVAL_IN_WORDS} {wording.DETECTABLE_IN_WORDS}" + (_PLANTED if truth else ""),
            *notes,
        ],
        sections=[
            Section("Which pairs and words", tables=[left_out_table(table), accuracy_table([scores], ("value",))]),
            _cut_section("By bias type", BIAS_TYPE, scores, truth, types),
            _spread_section([used], types, ("",)),
            _cut_section("By direction", DIRECTION, scores, truth, sentences=[_DIRECTION]),
            _truth_section(scores, truth),
            _example_section(used),
        ],
        glossary=wording.glossary(score.metric for score in scores),
        limits=wording.LIMITS,
        signature=scores[0].signature if scores else {},
    )


def pair_comparison_page(
    before_scores: Sequence[BiasScore],
    after_scores: Sequence[BiasScore],
    differences: Sequence[BiasScore],
    before_table: pd.DataFrame,
    after_table: pd.DataFrame,
    *,
    before_name: str,
    after_name: str,
    dataset: str,
    date: str,
    notes: Sequence[str] = (),
) -> Page:
    """Return the report of two models over the same pairs; `differences` is from `compare_pairs`."""
    names, sides = (before_name, after_name), _sides(before_name, after_name)
    scores, tables = (before_scores, after_scores), [_with_differences(it) for it in (before_table, after_table)]
    used = _in_both(*tables)
    types = _types_in_order(before_scores, BIAS_TYPE)
    counts = [(int(table[LEFT_OUT].notna().sum()), len(table)) for table in tables]
    big, under = wording.change_headline(differences)
    return Page(
        title="Sentence pairs, compared",
        subtitle=f"○ {visible(before_name, 120)} → ● {visible(after_name, 120)} · {dataset}",
        date=date,
        big=big,
        under=under,
        verdict=wording.change_verdict(*scores, differences, names),
        warnings=[
            warning
            for of_one, (missing, n), name in zip(scores, counts, names, strict=True)
            for warning in wording.warnings(of_one, missing, n, name)
        ],
        tables=[
            change_table("All pairs", "measure", *scores, differences, sides, [({}, metric) for metric in METRICS])
        ],
        notes=[wording.INTERVAL_IN_WORDS, *notes],
        sections=[
            Section(
                "What the comparison can show",
                [sentence] if (sentence := wording.power_sentence(differences)) else [],
                [power_table(differences)],
                first_screen=True,
            ),
            Section(
                "Which pairs and words",
                tables=[
                    *(left_out_table(table, name) for table, name in zip(tables, names, strict=True)),
                    accuracy_table(scores, sides),
                ],
            ),
            _changes_by("By bias type", BIAS_TYPE, *scores, differences, sides, types),
            _spread_section(used, types, sides),
            _changes_by("By direction", DIRECTION, *scores, differences, sides),
            _moved_section(*used, sides),
        ],
        glossary=wording.glossary((score.metric for score in (*before_scores, *after_scores)), compared=True),
        limits=wording.LIMITS,
        signature=differences[0].signature if differences else {},
        sides=sides,
    )


_PLANTED = " ◇ marks what was planted in the testbed."
_DIRECTION = (
    "A stereo pair was written to show a stereotype, an antistereo pair to show what goes against one. In both, “more” "
    "is the sentence that fits the stereotype more."
)


def _with_differences(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the difference of the log-likelihoods, and with nothing left out if it does not say."""
    reasons = table[LEFT_OUT] if LEFT_OUT in table else pd.Series(None, index=table.index, dtype=object)
    difference = table["log_likelihood_more"].astype(float) - table["log_likelihood_less"].astype(float)
    return table.assign(**{DIFFERENCE: difference, LEFT_OUT: reasons}).reset_index(drop=True)


def _in_both(before: pd.DataFrame, after: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the pairs that both models have scores of, in one order."""
    before, after = (
        table[table[LEFT_OUT].isna()].drop_duplicates(PAIR_ID).set_index(PAIR_ID) for table in (before, after)
    )
    common = before.index.intersection(after.index, sort=False)
    return [table.loc[common].reset_index() for table in (before, after)]


def _sides(before: str, after: str) -> tuple[str, str]:
    """Return what stands above the columns of the two models: their names, where they are short."""
    names = (visible(before), visible(after))
    clear = names[0] != names[1] and not {"", "measure", "change", "p", "pairs"} & {*names}
    return names if clear and max(map(len, names)) <= LONGEST_SIDE else ("before", "after")


def _types_in_order(scores: Sequence[BiasScore], cut: str) -> list[str]:
    """Return the values of a cut, the most stereotypical first by the headline's metric."""
    metric = wording.headline_metric(scores)
    towards = METRICS[metric].towards if metric else 1
    values = dict.fromkeys(str(score.group[cut]) for score in scores if list(score.group) == [cut])

    def place(value: str) -> tuple[float, str]:
        score = find(scores, metric, **{cut: value}) if metric else None
        return (math.inf if score is None or math.isnan(score.value) else -towards * score.value, value)

    return sorted(values, key=place)


def _cut_section(
    title: str,
    cut: str,
    scores: Sequence[BiasScore],
    truth: Sequence[BiasScore],
    values: Sequence[str] = (),
    sentences: Sequence[str] = (),
) -> Section:
    """Return the rows of one cut: the measures of the verdict drawn, the others folded away."""
    values = values or _types_in_order(scores, cut)
    tables = {metric: cut_table(metric, cut, scores, truth, values) for metric in METRICS if values}
    first, others = _split(tables)
    return Section(
        title,
        sentences if first else (),
        first,
        parts=[Section(f"The other measures {title[0].lower()}{title[1:]}", tables=others, folded=True)],
        first_screen=cut == BIAS_TYPE,
    )


def _split(tables: Mapping[str, Table]) -> tuple[list[Table], list[Table]]:
    """Return the tables to show at once, and the others; without rows, neither."""
    at_once = {metric for family in FOR_TYPES for metric in family}
    tables = {metric: table for metric, table in tables.items() if table.rows}
    return [tables[it] for it in tables if it in at_once], [tables[it] for it in tables if it not in at_once]


def _spread_section(used: Sequence[pd.DataFrame], types: Sequence[str], sides: Sequence[str]) -> Section:
    """Return the paper's Figure 2: how the pairs are spread around the decision boundary."""
    figures, tables = [], []
    for column, (caption, factor, decimals, towards, ends) in DRAWN.items():
        if any(column not in table for table in used):
            continue
        rows = [row for row in _spreads(used, column, factor, types) if any(map(len, row.differences.values()))]
        if not rows:
            continue
        drawing, beyond = spread_plot(caption, rows, ends, towards, decimals)
        dots = any(0 < len(values) < FEW for row in rows for values in row.differences.values())
        far = f" {beyond:,} {'pair lies' if beyond == 1 else 'pairs lie'} outside the frame."
        figures.append(Figure(caption, drawing, _BOX + (_DOTS if dots else "") + (far if beyond else "")))
        tables.append(quartiles(caption, rows, sides, decimals))
    sentences = [_BOUNDARY] if figures else []
    part = Section("The same as tables", tables=tables, folded=True)
    return Section("How the pairs are spread around the boundary", sentences, figures=figures, parts=[part])


_BOUNDARY = (
    "Each pair has one place on the line; at 0 it changes from counting for one sentence to counting for the other. "
    "Where many lie close to 0, as paper 001 found (Figure 2), a small change turns many of them, and a share of pairs "
    "is mostly chance."
)
_BOX = "The box holds the middle half of the pairs, the gap in it is the median and the open dot the mean."

_DOTS = f" Fewer than {FEW} pairs are drawn one by one."


def _spreads(used: Sequence[pd.DataFrame], column: str, factor: float, types: Sequence[str]) -> list[Spread]:
    def numbers(table: pd.DataFrame) -> np.ndarray:
        values = table[column].to_numpy(float) * factor
        return values[np.isfinite(values)]

    roles = ("before", "after")[: len(used)]
    rows = [Spread("all pairs", {role: numbers(table) for role, table in zip(roles, used, strict=True)})]
    for value in types:
        cuts = (table.loc[[str(it) == value for it in table[BIAS_TYPE]]] for table in used)
        rows.append(Spread(value, {role: numbers(cut) for role, cut in zip(roles, cuts, strict=True)}))
    return rows


def _truth_section(scores: Sequence[BiasScore], truth: Sequence[BiasScore]) -> Section:
    table = truth_table(scores, truth)
    sentence = (
        "The model learned from a grammar in which the stereotype is planted, so what a perfect learner would score is "
        "known exactly. A measured value outside its interval may be the model’s doing as well as the measure’s."
    )
    return Section("Against what was planted", [sentence] if table.rows else [], [table])


def _example_section(used: pd.DataFrame) -> Section:
    """Return the pairs with the largest differences either way and, folded away, those nearest to the boundary."""
    ordered = used[np.isfinite(used[DIFFERENCE])].sort_values([DIFFERENCE, PAIR_ID], kind="stable")
    likelier, unlikelier = _both_ends(ordered, DIFFERENCE)
    rest = ordered.drop(index=[*likelier.index, *unlikelier.index])
    nearest = rest.loc[rest[DIFFERENCE].abs().sort_values(kind="stable").index[:PAIRS_AT_BOUNDARY]]
    groups = (
        ("Where the more stereotypical sentence is likelier by most", likelier, False),
        ("Where the less stereotypical sentence is likelier by most", unlikelier, False),
        ("Pairs nearest to the boundary", nearest, True),
    )
    parts = [
        Section(title, examples=[_example(row, _of_pair(row)) for row in rows.to_dict("records")], folded=folded)
        for title, rows, folded in groups
    ]
    any_pair = any(part.shown for part in parts)
    return Section("Pairs to read", [f"{wording.OFFENSIVE} {wording.OF_ONE_PAIR}"] if any_pair else [], parts=parts)


def _both_ends(ordered: pd.DataFrame, column: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the few rows furthest above 0, and those furthest below."""
    above, below = ordered[ordered[column] > 0], ordered[ordered[column] < 0]
    return above.iloc[::-1].head(PAIRS_AT_EACH_END), below.head(PAIRS_AT_EACH_END)


def _example(row: Mapping, what: str) -> Example:
    facts = [visible(str(row[it]), LONGEST_NAME) for it in (BIAS_TYPE, DIRECTION) if isinstance(row[it], str)]
    heading = " · ".join([*facts, f"pair {visible(str(row[PAIR_ID]), LONGEST_NAME)}", what])
    more, less = differing(str(row[MORE]), str(row[LESS]))
    return Example(heading, (("more stereotypical", more), ("less stereotypical", less)))


def _of_pair(row: Mapping) -> str:
    text = f"difference {number(row[DIFFERENCE], 2, sign=True)} nats"
    if "s_jsd" in row and math.isfinite(row["s_jsd"]):
        text += f" · S_JSD {number(row['s_jsd'] * 1000, 1, sign=True)} ×10⁻³"
    return text


def differing(one: str, other: str) -> tuple[tuple[tuple[str, bool], ...], tuple[tuple[str, bool], ...]]:
    """Return both sentences in parts, each with whether it is not in the other sentence; by words, else by letters.

    >>> differing("He is old.", "She is old.")
    ((('He', True), (' is old.', False)), (('She', True), (' is old.', False)))
    """
    space = " " if " " in one and " " in other else ""
    words = [text.split(" ") if space else list(text) for text in (one, other)]
    parts: tuple[list, list] = ([], [])
    for tag, *spans in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for of_one, side, (start, end) in zip(parts, words, (spans[:2], spans[2:]), strict=True):
            if start < end:
                before = space if start else ""
                same = tag == "equal"
                if before and not same:
                    of_one.append((before, False))
                of_one.append(((before if same else "") + space.join(side[start:end]), not same))
    return tuple(parts[0]), tuple(parts[1])


def _changes_by(
    title: str,
    cut: str,
    before: Sequence[BiasScore],
    after: Sequence[BiasScore],
    differences: Sequence[BiasScore],
    sides: tuple[str, str],
    values: Sequence[str] = (),
) -> Section:
    values = values or _types_in_order(before, cut)
    tables = {}
    for metric, shown in METRICS.items():
        cuts = [({cut: value}, metric) for value in values]
        table = change_table(shown.label, cut.replace("_", " "), before, after, differences, sides, cuts)
        tables[metric] = Table(
            f"{shown.label}; ideal {number(table.ideal, 0)}", table.columns, table.rows, table.note, table.ideal
        )
    first, others = _split(tables)
    folded = Section(f"The other measures {title[0].lower()}{title[1:]}", tables=others, folded=True)
    return Section(title, tables=first, parts=[folded], first_screen=cut == BIAS_TYPE)


def _moved_section(before: pd.DataFrame, after: pd.DataFrame, sides: tuple[str, str]) -> Section:
    """Return the pairs whose difference changed most between the models, if both read the same sentences."""
    joined = before.assign(was=before[DIFFERENCE], now=after[DIFFERENCE])
    joined = joined.assign(moved=joined["now"] - joined["was"])
    joined = joined[np.isfinite(joined["moved"]) & (before[[MORE, LESS]] == after[[MORE, LESS]]).all(axis=1)]
    joined = joined.sort_values(["moved", PAIR_ID], kind="stable")
    towards, away = _both_ends(joined, "moved")

    def examples(rows: pd.DataFrame) -> list[Example]:
        return [
            _example(
                row,
                f"difference {number(row['was'], 2, sign=True)} ({sides[0]}), {number(row['now'], 2, sign=True)} "
                f"({sides[1]}), in nats",
            )
            for row in rows.to_dict("records")
        ]

    parts = [
        Section("Moved most towards the more stereotypical sentence", examples=examples(towards)),
        Section("Moved most towards the less stereotypical sentence", examples=examples(away)),
    ]
    sentences = [f"{wording.OFFENSIVE} {wording.OF_ONE_PAIR}"] if len(towards) or len(away) else []
    return Section("Pairs that changed most", sentences, parts=parts)
