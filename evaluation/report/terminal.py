"""The report in a terminal: the verdict, the warnings, and the tables that belong on a first screen."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from evaluation.report import tables, wording
from evaluation.report.comparison import visible
from evaluation.report.content import ReportContent

COLUMNS_OF_A_LOG = 100


def print_report(content: ReportContent, console: Console | None = None) -> None:
    """Print the headline, costs, and the cuts by style cluster and by axis.

    Where the output is not a terminal it is 100 columns wide and has no colour codes.
    """
    if console is None:
        console = Console(width=None if sys.stdout.isatty() else COLUMNS_OF_A_LOG, highlight=False)
    models = f"{content.base_model} → {content.tuned_model}" if content.tuned else content.base_model
    console.print(Text(visible(content.title), style="bold"))
    console.print(Text(visible(f"{models} · {content.date}", 300), style="dim"))
    console.print()
    console.print(Text(wording.verdict(content), style="bold"))
    for warning in wording.warnings(content):
        console.print(Text(f"WARNING  {visible(warning)}", style="bold red"))
    for sentence in (
        wording.further_sentence(content),
        wording.cost_sentence(content),
        wording.permutation_note(content),
        wording.INTERVAL_IN_WORDS,
    ):
        if sentence:
            console.print(Text(sentence))
    for table in (
        tables.headline_table(content),
        tables.cost_table(content),
        *tables.cluster_tables(content),
        *tables.axis_tables(content),
    ):
        if table.rows:
            console.print()
            console.print(Text(table.caption, style="bold"))
            console.print(rich_table(table))
    for note in content.notes:
        console.print(Padding(Text(visible(note)), (1, 0, 0, 0)))


def rich_table(table: tables.Table) -> RichTable:
    """Return a table for 100 columns: numbers whole and flush right, names and reasons broken where they must be."""
    shown = RichTable(box=None, pad_edge=False)
    table = _narrow(table)
    columns = [_aligned(name, [row.cells[place] for row in table.rows]) for place, name in enumerate(table.columns[1:])]
    shown.add_column(Text(table.columns[0], style="dim"), overflow="fold")
    for name, *texts in columns:  # a number is never broken; a name, and the reason why there is no number, may be
        widest = max(len(text) for text in (name, *texts) if not text.startswith("undefined"))
        shown.add_column(Text(name, style="dim"), overflow="fold", width=max(widest, min(16, max(map(len, texts)))))
    for place, row in enumerate(table.rows, start=1):
        label = Text(f"{row.label} (rose)", style="bold red") if row.direction > 0 else Text(row.label)
        shown.add_row(label, *(Text(column[place]) for column in columns))
    return shown


def _narrow(table: tables.Table) -> tables.Table:
    """Return the table without its reductions, which do not fit into a log's width; the reports have them."""
    if table.columns[-1] != "reduction":
        return table
    rows = tuple(replace(row, cells=row.cells[:-1]) for row in table.rows)
    return replace(table, columns=table.columns[:-1], rows=rows)


def _aligned(name: str, cells: Sequence[tables.Cell]) -> list[str]:
    """Return a column, its name first, with the numbers flush right and the intervals flush right beside them."""
    numbers = [cell.text for cell in cells if cell.text[-1:].isdigit()]
    width = max(map(len, [name, *numbers])) if numbers else 0
    beside = max(len(cell.interval) for cell in cells)
    return [name.rjust(width)] + [f"{cell.full:>{width}} {cell.interval:>{beside}}".rstrip() for cell in cells]
