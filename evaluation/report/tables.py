"""The tables of a report, as text and as marks to draw; the terminal, Markdown and HTML all show these."""

import math
from dataclasses import dataclass, replace

from evaluation.report.numbers import interval, number, visible
from evaluation.results import BiasScore


@dataclass(frozen=True)
class Cell:
    """A number as text and its interval; or "undefined" and the reason why; or a text of several words."""

    text: str
    interval: str = ""
    reason: str = ""
    prose: bool = False

    @property
    def full(self) -> str:
        """The text with the reason."""
        return f"{self.text}: {self.reason}" if self.reason else self.text


@dataclass(frozen=True)
class Mark:
    """A point to draw with its interval, in shown units; `role` is "before", "after" or "truth"."""

    role: str
    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Row:
    """One line of a table. `instead` stands where the marks would be; `direction` is 1 if the score rose, -1 if it
    fell, 0 if neither can be said.
    """

    label: str
    cells: tuple[Cell, ...]
    marks: tuple[Mark, ...] = ()
    direction: int = 0
    instead: str = ""


@dataclass(frozen=True)
class Table:
    """`columns` names the label column first; the rows have one cell fewer. `note` stands under the table; `ideal` is
    where the line of an unbiased model is drawn, in shown units.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    ideal: float = 0.0


def undrawn(table: Table) -> Table:
    """Return the table as numbers alone, without marks."""
    return replace(table, rows=tuple(replace(row, marks=()) for row in table.rows))


def score_cell(score: BiasScore | None, factor: float, digits: int, sign: bool = False) -> Cell:
    """Return a score times `factor` with its interval; or that it was not measured; or why it is undefined."""
    if score is None:
        return Cell("not measured")
    if math.isnan(score.value):
        return Cell("undefined", reason=visible(score.reason or "no reason was given"))
    bounds = score.interval and (score.interval[0] * factor, score.interval[1] * factor)
    return Cell(number(score.value * factor, digits, sign), interval(bounds, digits, sign))
