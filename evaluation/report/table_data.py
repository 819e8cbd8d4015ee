"""Data classes for a table in a report: cells, rows and plotted marks. `tables` converts scores to cells."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A cell of a table: a number as `text` with an `interval`, or an undefined number with a `reason`, or prose.

    The reason is printed in a footnote. `prose` is true for words instead of a number. In HTML, a cell can have a
    `shade` from −1 (blue) to 1 (orange), a `tooltip`, and bold text.
    """

    text: str
    interval: str = ""
    reason: str = ""
    prose: bool = False
    shade: float = 0.0
    tooltip: str = ""
    bold: bool = False


@dataclass(frozen=True)
class Mark:
    """A plotted value with an interval, in the metric's reported unit. `role` is "before", "after" or "truth"."""

    role: str
    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Row:
    """One row of a table.

    `instead` is a text in place of the plot, for a row without marks. `href` is the target of a link from the label.
    `direction` is 1 if the score rose significantly, −1 if the score fell significantly, else 0.
    """

    label: str
    cells: tuple[Cell, ...]
    marks: tuple[Mark, ...] = ()
    direction: int = 0
    instead: str = ""
    href: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption above and a note below.

    The first of the `columns` contains the rows' labels, so a row has one cell fewer than there are columns. Plots have
    a line at `ideal`, the value of an unbiased model in the reported unit. In HTML, readers can filter the rows by the
    values of the columns `filters`.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    ideal: float = 0.0
    filters: tuple[str, ...] = ()

    @property
    def is_map(self) -> bool:
        """Whether the table is a heat map, that is, has a shaded cell."""
        return any(cell.shade for row in self.rows for cell in row.cells)
