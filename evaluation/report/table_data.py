"""The data of a table in a report: cells, rows, and plotted marks. `tables` converts scores to cells."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A number as text with an interval, or "undefined" with a `reason` for the footnote, or `prose`.

    In HTML, a cell can have a `shade` from −1 (blue) to 1 (orange), a `tooltip`, and bold text.
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
    """A plotted value with its interval, in the reported unit; `role` is "before", "after" or "truth"."""

    role: str
    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Row:
    """One row of a table.

    `instead` is the text of a row without marks. `href` is the target of a link from the label. `direction` is 1 if the
    score rose significantly, −1 if it fell significantly, else 0.
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

    The first of the `columns` contains the labels, so rows have one cell fewer. Plots have a line at `ideal`, the value
    of an unbiased model in the reported unit. In HTML, rows can be filtered by the values of the columns `filters`.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    ideal: float = 0.0
    filters: tuple[str, ...] = ()

    @property
    def is_map(self) -> bool:
        """Whether the table is a heat map."""
        return any(cell.shade for row in self.rows for cell in row.cells)
