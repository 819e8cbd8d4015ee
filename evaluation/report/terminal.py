"""Tables in a terminal."""

from collections.abc import Sequence
from dataclasses import replace

from rich.table import Table as RichTable
from rich.text import Text

from evaluation.report.tables import Cell, Table

COLUMNS_OF_A_LOG = 100


def rich_table(table: Table) -> RichTable:
    """Return a table for 100 columns: numbers whole and flush right, names and reasons broken where they must be."""
    shown = RichTable(box=None, pad_edge=False)
    columns = [_aligned(name, [row.cells[place] for row in table.rows]) for place, name in enumerate(table.columns[1:])]
    shown.add_column(Text(table.columns[0], style="dim"), overflow="fold")
    for name, *texts in columns:  # a number is never broken; a name, and the reason why there is no number, may be
        widest = max(len(text) for text in (name, *texts) if not text.startswith("undefined"))
        shown.add_column(Text(name, style="dim"), overflow="fold", width=max(widest, min(16, max(map(len, texts)))))
    for place, row in enumerate(table.rows, start=1):
        label = Text(f"{row.label} (rose)", style="bold red") if row.direction > 0 else Text(row.label)
        shown.add_row(label, *(Text(column[place]) for column in columns))
    return shown


def narrow(table: Table) -> Table:
    """Return the table without its reductions, which do not fit into a log's width; the reports have them."""
    if table.columns[-1] != "reduction":
        return table
    rows = tuple(replace(row, cells=row.cells[:-1]) for row in table.rows)
    return replace(table, columns=table.columns[:-1], rows=rows, note="")


def _aligned(name: str, cells: Sequence[Cell]) -> list[str]:
    """Return a column, its name first, with the numbers flush right and the intervals flush right beside them."""
    numbers = [cell.text for cell in cells if cell.text[-1:].isdigit()]
    width = max(map(len, [name, *numbers])) if numbers else 0
    beside = max(len(cell.interval) for cell in cells)
    return [name.rjust(width)] + [f"{cell.full:>{width}} {cell.interval:>{beside}}".rstrip() for cell in cells]
