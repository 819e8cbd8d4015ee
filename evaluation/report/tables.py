"""Conversion of scores to tables of text and plotted marks, for the terminal, Markdown and HTML."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from evenhand.evaluation.report.metrics import Metric, metric_of
from evenhand.evaluation.report.numbers import NO_NUMBER, decimals_for_interval, interval, number, p_value, sanitize
from evenhand.evaluation.report.table_data import Cell, Mark, Row, Table
from evenhand.evaluation.score import BiasScore, find_score

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_table(table: Table) -> Table:
    """Return the table with sanitized texts and a footnote with the reasons why cells are undefined."""
    reasons = list(dict.fromkeys(cell.reason for row in table.rows for cell in row.cells if cell.reason))
    marks = {it: NO_NUMBER + (str(n).translate(SUPERSCRIPTS) if reasons[1:] else "") for n, it in enumerate(reasons, 1)}
    rows = (
        replace(
            row,
            label=sanitize(row.label),
            instead=sanitize(row.instead),
            cells=tuple(
                replace(
                    cell, text=marks.get(cell.reason) or sanitize(cell.text), tooltip=sanitize(cell.tooltip), reason=""
                )
                for cell in row.cells
            ),
        )
        for row in table.rows
    )
    footnote = "; ".join(f"{mark} undefined: {sanitize(reason).rstrip('.')}" for reason, mark in marks.items())
    return replace(
        table,
        caption=sanitize(table.caption),
        columns=tuple(map(sanitize, table.columns)),
        rows=tuple(rows),
        note=" ".join(filter(None, [sanitize(table.note), footnote and f"{footnote}."])),
    )


def without_marks(table: Table) -> Table:
    """Return the table without plotted marks."""
    return replace(table, rows=tuple(replace(row, marks=()) for row in table.rows))


def score_cell(score: BiasScore | None, decimals: int | None = None, metric: Metric | None = None) -> Cell:
    """Return a cell with the value and the interval of a score in the reported unit.

    The cell is "not measured" if the score is None, and "undefined" if the value is NaN.

    Args:
        score: the score.
        decimals: number of decimals; None: as in the metric's record.
        metric: the metric's record; None: the record that a family of metrics declares.
    """
    if score is None:
        return Cell("not measured")
    if math.isnan(score.value):
        return Cell("undefined", reason=sanitize(score.reason or "no reason recorded"))
    metric = metric or metric_of(score)
    value, *bounds = (metric.factor * it for it in (score.value, *(score.interval or (math.nan, math.nan))))
    return number_cell(value, metric.decimals if decimals is None else decimals, metric.signed, tuple(bounds))


def number_cell(value: float, decimals: int = 1, sign: bool = False, bounds: tuple[float, float] | None = None) -> Cell:
    """Return a cell with a number, or a dash for NaN, and with an interval if `bounds` are given."""
    has_interval = bounds is not None and not any(map(math.isnan, (value, *bounds)))
    decimals = decimals_for_interval(bounds, decimals) if has_interval else decimals
    return Cell(number(value, decimals, sign), interval(bounds, decimals, sign) if has_interval else "")


def count_cells(*counts: int) -> list[Cell]:
    """Return a list with a table cell for each count."""
    return [Cell(f"{count:,}") for count in counts]


def p_cell(score: BiasScore | None) -> Cell:
    """Return a cell with the p-value of a score; an empty cell if the score has no p-value."""
    has_p_value = score is not None and score.p_value is not None and math.isfinite(score.p_value)
    return Cell(p_value(score.p_value) if has_p_value else "")


def score_marks(role: str, score: BiasScore | None) -> tuple[Mark, ...]:
    """Return a tuple with the mark of a score, in the metric's reported unit; () if the score has no finite value."""
    if score is None or not math.isfinite(score.value):
        return ()
    factor = metric_of(score).factor
    bounds = score.interval and (score.interval[0] * factor, score.interval[1] * factor)
    return (Mark(role, score.value * factor, bounds),)


def score_row(label: str, score: BiasScore, *cells: Cell) -> Row:
    """Return a table row for a score: a label, the score as text, further cells, and the score as a plotted mark."""
    return Row(label, (score_cell(score), *cells), score_marks("before", score))


def truth_table(
    caption: str, scores: Sequence[BiasScore], truth: Iterable[BiasScore], label: Callable[[BiasScore], str]
) -> Table:
    """Return a table of planted scores and measured scores that shows whether each interval contains the planted score.

    Args:
        caption: the caption of the table.
        scores: the measured scores.
        truth: the planted scores; planted scores that were not measured are omitted.
        label: function that returns the label of a planted score's row.
    """
    rows = []
    for planted in truth:
        score = find_score(scores, planted.metric, **planted.group)
        if score is not None:
            inside = score.interval and score.interval[0] <= planted.value <= score.interval[1]
            verdict = "" if inside is None or math.isnan(planted.value) else "contains it" if inside else "does not"
            rows.append(Row(label(planted), (score_cell(planted), score_cell(score), Cell(verdict))))
    return Table(caption, ("measure", "planted", "measured", "interval"), tuple(rows))
