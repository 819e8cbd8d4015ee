"""Tables of the report on sentence pairs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.evaluation.families.sentence_pairs.metrics import PREFERENCES
from evenhand.evaluation.families.sentence_pairs.plots import Spread
from evenhand.evaluation.report import tables
from evenhand.evaluation.report.changes import change_table, score_changes
from evenhand.evaluation.report.formatted_scores import formatted_score
from evenhand.evaluation.report.metrics import metric_of
from evenhand.evaluation.report.numbers import number, percent, sanitize
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import (
    Cell,
    Mark,
    Row,
    Table,
    count_cells,
    number_cell,
    p_cell,
    score_cell,
    score_marks,
)
from evenhand.evaluation.score import LEFT_OUT, LESS, MORE, BiasScore, find_score

MAX_NAME_LENGTH = 60  # characters of a bias type or of a pair's id
text = Sentences(__file__)
Scores = Sequence[BiasScore]


def headline_table(scores: Scores) -> Table:
    """Return a table of all metrics over all pairs, with standard error, ideal, p-value and detectable distance."""
    rows = {it.title: _cells(scores, it.name) for it in PREFERENCES if find_score(scores, it.name)}
    columns = ("value", "std. error", "ideal", "p", "detectable", "pairs")
    return _score_table("Preference for the more stereotypical sentence", "measure", columns, rows)


def cut_table(metric: str, cut: str, values: Iterable[str], scores: Scores, truth: Scores) -> Table:
    """Return a table of a metric with a row and chart marks for each value of the column `cut`; omit empty columns."""
    by_value = {value: it for value in values if (it := formatted_score(scores, metric, **{cut: value}))}
    rows = {value: _cells(scores, metric, **{cut: value}) for value in by_value}
    marks = {
        value: score_marks("before", it.score) + score_marks("truth", find_score(truth, metric, **{cut: value}))
        for value, it in by_value.items()
        if it.is_defined
    }
    columns = ("value", "p", "detectable", "pairs")
    columns = [name for name in columns if any(cells[name].text for cells in rows.values())]
    insignificant = [
        sanitize(value, MAX_NAME_LENGTH)
        for value, it in by_value.items()
        if it.metric.stereotype_side and it.is_defined and not it.stereotype_direction
    ]
    note = text.not_significant(insignificant) if insignificant else ""
    table = _score_table(_caption(metric), cut.replace("_", " "), columns, rows, note, marks)
    return replace(table, ideal=metric_of(metric).reported_ideal)


def left_out_table(table: pd.DataFrame, name: str = "") -> Table:
    """Return a table of the reasons why pairs have no scores, with the number of pairs, most frequent first.

    `name` is the name of the model for the caption, or "".
    """
    reasons = Counter(map(str, table[LEFT_OUT].dropna()))
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    suffix = f", {sanitize(name, 120)}" if name else ""
    rows = tuple(Row(sanitize(reason, 200), tuple(count_cells(n))) for reason, n in ordered)
    note = "" if rows else text.none_left_out(len(table), suffix)
    return Table(text.left_out(reasons.total(), len(table), suffix), ("reason", "pairs"), rows, note)


def accuracy_table(scores: Sequence[Scores], sides: Sequence[str]) -> Table:
    """Return a table of each model's token accuracy in the more and in the less stereotypical sentences."""
    rows = []
    for side in (MORE, LESS):
        accuracies = [find_score(model_scores, "token_accuracy", side=side) for model_scores in scores]
        if any(accuracies):
            rows.append(Row(f"in the {side} stereotypical sentence", tuple(score_cell(it) for it in accuracies)))
    note = text.accuracy if rows else ""
    return Table("Masked words predicted correctly, %", ("words", *sides), tuple(rows), note)


def quartile_table(caption: str, spreads: Iterable[Spread], sides: Sequence[str], decimals: int) -> Table:
    """Return a table of mean, quartiles and share above 0 of the differences in each row of a distribution chart."""
    columns = ("mean", "lower quartile", "median", "upper quartile", "above 0", "n")
    rows = []
    for spread in spreads:
        for side, values in zip(sides, spread.differences.values(), strict=True):
            if len(values):
                numbers = (values.mean(), *np.quantile(values, [0.25, 0.5, 0.75]))
                cells = [number_cell(float(it), decimals) for it in numbers]
                cells += [Cell(percent(float((values > 0).mean()))), *count_cells(len(values))]
                label = sanitize(spread.label, MAX_NAME_LENGTH) + (f", {side}" if side else "")
                rows.append(Row(label, tuple(cells)))
    return Table(caption, ("pairs", *columns), tuple(rows))


def headline_change_table(runs: Sequence[Scores], sides: tuple[str, str]) -> Table:
    """Return a table of each metric over all pairs: the values of both models and the paired difference.

    `runs` are the scores before and after, and the changes.
    """
    changes = score_changes({it.title: (it.name, {}) for it in PREFERENCES}, runs)
    return change_table("All pairs", "measure", changes, sides=sides, counted="pairs", is_plotted=False)


def cut_change_table(
    metric: str, cut: str, values: Iterable[str], runs: Sequence[Scores], sides: tuple[str, str]
) -> Table:
    """Return a table of a metric of both models, and the paired difference, for each value of the column `cut`."""
    labels = {sanitize(value, MAX_NAME_LENGTH): (metric, {cut: value}) for value in values}
    ideal, column = metric_of(metric).reported_ideal, cut.replace("_", " ")
    changes = score_changes(labels, runs)
    return change_table(_caption(metric), column, changes, sides=sides, counted="pairs", ideal=ideal)


def power_table(changes: Scores) -> Table:
    """Return a table of the smallest change of each metric that the comparison can detect."""
    rows = {
        it.title: _cells(changes, f"{it.name}_difference")
        for it in PREFERENCES
        if find_score(changes, f"{it.name}_difference")
    }
    names = {"std. error": "std. error of the change", "detectable": "detectable change", "pairs": "pairs"}
    table = _score_table("Power of the comparison", "measure", names, rows, text.power_of_comparison if rows else "")
    return replace(table, columns=("measure", *names.values()))


def truth_table(scores: Scores, truth: Scores) -> Table:
    """Return a table of the measured and the planted scores."""

    def label(score: BiasScore) -> str:
        cuts = (sanitize(str(it), MAX_NAME_LENGTH) for it in score.group.values())
        return ", ".join((metric_of(score).title, *cuts))

    return tables.truth_table(
        "Measured against what was planted",
        scores,
        [score for score in truth if score.metric in {it.name for it in PREFERENCES}],
        label,
    )


def _score_table(
    caption: str,
    first_column: str,
    columns: Iterable[str],
    rows: Mapping[str, Mapping[str, Cell]],
    note: str = "",
    marks: Mapping[str, tuple[Mark, ...]] | None = None,
) -> Table:
    table_rows = (
        Row(sanitize(label, MAX_NAME_LENGTH), tuple(cells[name] for name in columns), (marks or {}).get(label, ()))
        for label, cells in rows.items()
    )
    return Table(caption, (first_column, *columns), tuple(table_rows), note)


def _caption(metric: str) -> str:
    return f"{metric_of(metric).title}; ideal {metric_of(metric).ideal_text}"


def _cells(scores: Scores, name: str, **group: str) -> dict[str, Cell]:
    """Return the cells of one score, by column.

    A metric that cannot reach its ideal has no detectable distance from it, but its change has a detectable size.
    """
    metric, score = metric_of(name), find_score(scores, name, **group)
    detectable, is_change = find_score(scores, f"{name}_detectable", **group), name.endswith("_difference")
    error = math.nan if score.standard_error is None else score.standard_error
    return {
        "value": score_cell(score),
        "std. error": Cell(number(metric.factor * error, metric.decimals) if math.isfinite(error) else ""),
        "ideal": Cell(metric.ideal_text),
        "p": p_cell(score),
        "detectable": score_cell(detectable) if detectable and (metric.stereotype_side or is_change) else Cell(""),
        "pairs": count_cells(score.n)[0],
    }
