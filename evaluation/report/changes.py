"""Scores before and after a change, such as tuning, and tables of them, for all families of metrics."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evenhand.evaluation.report.metrics import metric_of
from evenhand.evaluation.report.numbers import sanitize, value_or
from evenhand.evaluation.report.table_data import Cell, Mark, Row, Table
from evenhand.evaluation.report.tables import count_cells, number_cell, p_cell, score_cell, score_marks
from evenhand.evaluation.score import BiasScore, find_score

MAX_LABEL = 240


@dataclass(frozen=True)
class ScoreChange:
    """A score before and after, the paired difference, and the planted score of a testbed; None if not measured."""

    label: str
    before: BiasScore | None
    after: BiasScore | None = None
    difference: BiasScore | None = None
    truth: BiasScore | None = None

    @property
    def change(self) -> float:
        """The score after minus the score before; NaN if either is undefined."""
        return value_or(self.after, math.nan) - value_or(self.before, math.nan)

    @property
    def relative_change(self) -> float:
        """The ratio after / before − 1; NaN if undefined."""
        before = value_or(self.before, math.nan)
        return self.change / before if before else math.nan

    @property
    def is_defined(self) -> bool:
        """Whether the scores before and after have a value."""
        return math.isfinite(self.change)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The plotted marks of the scores before and after and of the planted score."""
        sides = (("before", self.before), ("after", self.after), ("truth", self.truth))
        return tuple(mark for role, score in sides for mark in score_marks(role, score))


def score_changes(
    labels: Mapping[str, tuple[str, Mapping[str, str]]], runs: Sequence[Sequence[BiasScore]]
) -> list[ScoreChange]:
    """Return the changes of scores; a change without a score before and after is omitted.

    Args:
        labels: (metric, group) of each change by label.
        runs: the scores before, the scores after, and the differences.
    """
    changes = []
    for label, (metric, group) in labels.items():
        names = (metric, metric, f"{metric}_difference")
        scores = (find_score(run, name, **group) for run, name in zip(runs, names, strict=True))
        changes.append(ScoreChange(label, *scores))
    return [it for it in changes if it.before or it.after]


def change_cells(change: ScoreChange, decimals: int | None = None) -> list[Cell]:
    """Return the cells before, after and change. Without a paired difference, the change has no interval."""
    cell = Cell("")
    if change.difference is not None:
        cell = score_cell(change.difference, decimals)
    elif change.is_defined:
        metric = metric_of(change.before)
        cell = number_cell(metric.factor * change.change, metric.decimals if decimals is None else decimals, sign=True)
    return [score_cell(change.before, decimals), score_cell(change.after, decimals), cell]


def change_table(
    caption: str,
    first_column: str,
    changes: Sequence[ScoreChange],
    *,
    sides: tuple[str, str] = ("before", "after"),
    counted: str = "",
    ideal: float = 0.0,
    decimals: int | None = None,
    is_plotted: bool = True,
    direction: Callable[[ScoreChange], int] = lambda change: 0,
) -> Table:
    """Return a table of scores before and after, with the difference and, if any difference has one, the p-value.

    Args:
        caption: the caption of the table.
        first_column: the name of the column of labels.
        changes: the rows.
        sides: names of the columns before and after.
        counted: the plural noun for the units that n counts, as the name of a column of n; "" for no such column.
        ideal: the value at which plots have a line.
        decimals: number of decimals; None: as in the metric's record.
        is_plotted: whether rows have marks.
        direction: function that returns the `direction` of a row.
    """
    has_p_values = any(it.difference is not None and it.difference.p_value is not None for it in changes)
    rows = []
    for it in changes:
        cells = change_cells(it, decimals)
        cells += [p_cell(it.difference)] if has_p_values else []
        cells += (count_cells(it.difference.n) if it.difference else [Cell("")]) if counted else []
        rows.append(Row(sanitize(it.label, MAX_LABEL), tuple(cells), it.marks if is_plotted else (), direction(it)))
    further = (*(("p",) if has_p_values else ()), *((counted,) if counted else ()))
    return Table(caption, (first_column, *sides, "change", *further), tuple(rows), ideal=ideal)
