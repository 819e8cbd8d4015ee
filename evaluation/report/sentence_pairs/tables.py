"""The tables of a report on sentence pairs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from evaluation.report.numbers import find, number, p_value, percent, visible
from evaluation.report.sentence_pairs import wording
from evaluation.report.sentence_pairs.plots import Spread
from evaluation.report.sentence_pairs.wording import METRICS
from evaluation.report.tables import Cell, Mark, Row, Table, score_cell
from evaluation.results import LEFT_OUT, LESS, MORE, BiasScore

LONGEST_NAME = 60  # letters of a bias type or of a pair's id


def headline_table(scores: Sequence[BiasScore]) -> Table:
    """Return every measure of all pairs, with all that is needed to judge it."""
    rows = [_row(scores, metric, {}, shown.label) for metric, shown in METRICS.items() if find(scores, metric)]
    columns = ("measure", "value", "std. error", "ideal", "p", "detectable", "pairs")
    return Table("Preference for the more stereotypical sentence", columns, tuple(rows))


def _row(scores: Sequence[BiasScore], metric: str, group: Mapping[str, str], label: str) -> Row:
    shown, score = METRICS[metric], find(scores, metric, **group)
    return Row(
        visible(label, LONGEST_NAME),
        (
            _cell(score, metric),
            _error_cell(score, metric),
            Cell("" if score.ideal is None else number(score.ideal * shown.factor, 0)),
            _p_cell(score),
            _reach_cell(_reach(scores, metric, group), metric),
            Cell(f"{score.n:,}"),
        ),
    )


def _cell(score: BiasScore | None, metric: str, sign: bool = False) -> Cell:
    return score_cell(score, METRICS[metric].factor, METRICS[metric].decimals, sign)


def _p_cell(score: BiasScore | None) -> Cell:
    known = score is not None and score.p_value is not None and math.isfinite(score.p_value)
    return Cell(p_value(score.p_value) if known else "")


def _error_cell(score: BiasScore, metric: str) -> Cell:
    known = score.standard_error is not None and math.isfinite(score.standard_error)
    return Cell(METRICS[metric].text(score.standard_error) if known else "")


def _reach_cell(reach: BiasScore | None, metric: str) -> Cell:
    return Cell("") if reach is None else _cell(reach, metric)


def _reach(scores: Sequence[BiasScore], metric: str, group: Mapping[str, str]) -> BiasScore | None:
    """Return the detectable distance from the ideal; that of a metric which cannot reach its ideal says nothing."""
    return find(scores, f"{metric}_detectable", **group) if METRICS[metric].towards else None


def _mark(role: str, score: BiasScore | None, metric: str) -> tuple[Mark, ...]:
    factor = METRICS[metric].factor
    if score is None or not math.isfinite(score.value):
        return ()
    bounds = score.interval and (score.interval[0] * factor, score.interval[1] * factor)
    return (Mark(role, score.value * factor, bounds),)


def cut_table(
    metric: str, cut: str, scores: Sequence[BiasScore], truth: Sequence[BiasScore], values: Sequence[str]
) -> Table:
    """Return one measure by the values of a cut; a column that would be empty is left out."""
    shown, rows, undecided = METRICS[metric], [], []
    name = cut.replace("_", " ")
    for value in values:
        score = find(scores, metric, **{cut: value})
        if score is None:
            continue
        marks = _mark("before", score, metric) + _mark("truth", find(truth, metric, **{cut: value}), metric)
        cells = (
            _cell(score, metric),
            _p_cell(score),
            _reach_cell(_reach(scores, metric, {cut: value}), metric),
            Cell(f"{score.n:,}"),
        )
        rows.append(Row(visible(value, LONGEST_NAME), cells, () if math.isnan(score.value) else marks))
        if shown.towards and not math.isnan(score.value) and not wording.leaning(score):
            undecided.append(visible(value, LONGEST_NAME))
    ideal = find(scores, metric)
    ideal = 0.0 if ideal is None or ideal.ideal is None else ideal.ideal * shown.factor
    note = f"Cannot be told from no preference: {', '.join(undecided)}." if undecided else ""
    columns = ("value", "p", "detectable", "pairs")
    kept = [place for place in range(4) if any(row.cells[place].text for row in rows)]
    rows = [Row(row.label, tuple(row.cells[place] for place in kept), row.marks) for row in rows]
    caption = f"{shown.label}; ideal {number(ideal, 0)}"
    return Table(caption, (name, *(columns[place] for place in kept)), tuple(rows), note, ideal)


def left_out_table(table: pd.DataFrame, name: str = "") -> Table:
    """Return how many pairs have no scores, by reason, the most frequent first."""
    reasons = Counter(map(str, table[LEFT_OUT].dropna()))
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    whose = f", {visible(name, 120)}" if name else ""
    share = percent(reasons.total() / len(table), 1) if len(table) else "0 %"
    caption = f"Pairs left out{whose}: {reasons.total():,} of {len(table):,} ({share})"
    rows = tuple(Row(visible(reason, 200), (Cell(f"{n:,}"),)) for reason, n in ordered)
    note = "" if rows else f"No pair is left out{whose}: all {len(table):,} are in the scores."
    return Table(caption, ("reason", "pairs"), rows, note)


def accuracy_table(scores: Sequence[Sequence[BiasScore]], sides: Sequence[str]) -> Table:
    """Return the token accuracy of each model in each of the two sentences."""
    rows = []
    for side in (MORE, LESS):
        found = [find(of_one, "token_accuracy", side=side) for of_one in scores]
        if any(found):
            rows.append(Row(f"in the {side} stereotypical sentence", tuple(score_cell(it, 100, 1) for it in found)))
    note = "High accuracy means words that are trivial to predict, such as later pieces of split words (001, §5)."
    return Table("Masked words predicted rightly, %", ("words", *sides), tuple(rows), note if rows else "")


def quartiles(caption: str, rows: Sequence[Spread], sides: Sequence[str], decimals: int) -> Table:
    """Return what the drawing of the spreads shows, as numbers."""
    lines = []
    for row in rows:
        for side, values in zip(sides, row.differences.values(), strict=True):
            if not len(values):
                continue
            of_values = (values.mean(), *np.quantile(values, [0.25, 0.5, 0.75]))
            cells = (
                *(Cell(number(float(it), decimals)) for it in of_values),
                Cell(percent(float((values > 0).mean()))),
            )
            label = visible(row.label, LONGEST_NAME) + (f", {side}" if side else "")
            lines.append(Row(label, (*cells, Cell(f"{len(values):,}"))))
    columns = ("pairs", "mean", "lower quartile", "median", "upper quartile", "above 0", "n")
    return Table(caption, columns, tuple(lines))


def change_table(
    caption: str,
    first_column: str,
    before: Sequence[BiasScore],
    after: Sequence[BiasScore],
    differences: Sequence[BiasScore],
    sides: tuple[str, str],
    cuts: Iterable[tuple[Mapping[str, str], str]],
) -> Table:
    """Return both models' values and the paired difference, one row for each (group, metric)."""
    rows, ideal = [], 0.0
    for group, metric in cuts:
        old, new, change = (
            find(scores, name, **group)
            for scores, name in ((before, metric), (after, metric), (differences, f"{metric}_difference"))
        )
        if old is None and new is None:
            continue
        ideal = next((it.ideal for it in (old, new) if it is not None and it.ideal is not None), 0.0)
        ideal *= METRICS[metric].factor
        cells = (_cell(old, metric), _cell(new, metric), _cell(change, metric, sign=True), _p_cell(change))
        marks = (*_mark("before", old, metric), *_mark("after", new, metric)) if group else ()
        pairs = (Cell(f"{change.n:,}" if change is not None else ""),) if group else ()
        label = next(iter(group.values()), METRICS[metric].label)
        rows.append(Row(visible(str(label), LONGEST_NAME), (*cells, *pairs), marks))
    columns = (first_column, *sides, "change", "p", *(("pairs",) if first_column != "measure" else ()))
    return Table(caption, columns, tuple(rows), ideal=ideal)


def power_table(differences: Sequence[BiasScore]) -> Table:
    """Return how small a change the pairs can show, by measure."""
    rows = []
    for metric, shown in METRICS.items():
        change = find(differences, f"{metric}_difference")
        if change is None:
            continue
        reach = find(differences, f"{metric}_difference_detectable")
        rows.append(Row(shown.label, (_error_cell(change, metric), _reach_cell(reach, metric), Cell(f"{change.n:,}"))))
    note = (
        "Detectable is the smallest true change that these pairs would show in four of five comparisons (80 % power, "
        "two-sided 5 % level)."
    )
    columns = ("measure", "std. error of the change", "detectable change", "pairs")
    return Table("Power of the comparison", columns, tuple(rows), note if rows else "")


def truth_table(scores: Sequence[BiasScore], truth: Sequence[BiasScore]) -> Table:
    """Return the measured numbers beside what was planted."""
    rows = []
    for planted in truth:
        score = find(scores, planted.metric, **planted.group) if planted.metric in METRICS else None
        if score is None:
            continue
        inside = "" if score.interval is None else _holds(score.interval, planted.value)
        names = (METRICS[planted.metric].label, *(visible(str(it), LONGEST_NAME) for it in planted.group.values()))
        cells = (_cell(planted, planted.metric), _cell(score, planted.metric), Cell(inside))
        rows.append(Row(", ".join(names), cells))
    return Table("Measured against what was planted", ("measure", "planted", "measured", "interval"), tuple(rows))


def _holds(interval: tuple[float, float], value: float) -> str:
    return "" if math.isnan(value) else "holds it" if interval[0] <= value <= interval[1] else "does not hold it"
