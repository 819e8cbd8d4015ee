"""The data of a table in a report: cells, rows, and marks to plot. How scores become cells is in `tables`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A number as text and its interval; or "undefined" and the reason, which a note gives; or several words.

    In HTML a cell can have a `shade` from −1 (all blue) to 1 (all orange), a `tooltip`, and be `bold`.
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
    """One row of a table. `instead` replaces missing marks. `direction` is 1 if the score rose significantly, −1 if it
    fell, else 0.
    """

    label: str
    cells: tuple[Cell, ...]
    marks: tuple[Mark, ...] = ()
    direction: int = 0
    instead: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption above and a note below.

    The first of the `columns` is that of the labels; rows have one cell fewer. `ideal` is the value of an unbiased
    model, where plots have a line, in the reported unit.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    ideal: float = 0.0

    @property
    def is_map(self) -> bool:
        """Whether the table is a map: cells have shades."""
        return any(cell.shade for row in self.rows for cell in row.cells)
