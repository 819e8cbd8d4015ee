"""Output of a page on a terminal: some sections, the notes, and last, above the next prompt, what to see first."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from evenhand.evaluation.report.numbers import first_of, sanitize
from evenhand.evaluation.report.page import Cell, Page, Table, format_table

LOG_WIDTH = 100
MAX_COMMAND = 100_000  # characters
MAX_LINKS = 8
MAX_TURNED_ROWS = 4  # of a table that is too wide: with its columns as rows, these are columns


class _Console(Console):
    """A console that raises BrokenPipeError when its output is closed; rich would end the program, with status 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def print_page(page: Page, console: Console | None = None) -> None:
    """Print the page; if the output is not a terminal, in COLUMNS or 100 characters and without colour codes."""
    if console is None:
        has_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").strip("0").isdigit()
        console = _Console(width=None if has_width else LOG_WIDTH, highlight=False)

    def line(text: str, style: str = "", space: int = 1) -> None:
        console.print(Padding(Text(sanitize(text), style=style), (space, 0, 0, 0)))

    def print_table(given: Table, title: str = "") -> None:
        table = format_table(given)
        if table.rows:
            line(table.caption or title, "bold")
            for part in _rich_tables(table, console):
                console.print(part)
        if table.note:
            line(table.note, "dim", 0)

    line(page.title, "bold", 0)
    line(f"{page.subtitle} · {page.date}"[:300], "dim", 0)
    for section in page.all_sections():
        if section.first_screen:
            claims = [example.claim for example in section.examples if example.claim]
            for sentence in [*section.sentences, *claims]:
                line(sentence)
            for table in section.tables:
                print_table(table, section.title)
    for note in [*page.notes, *page.private_notes]:
        line(note)
    line(page.verdict, "bold")
    top = f"{page.headline_value}  {page.headline_caption}".strip()
    if top:
        line(top)
    if page.first_table:
        print_table(page.first_table)
    for explanation in page.explanations:
        line(explanation)
    for warning in page.warnings:
        line(f"WARNING  {warning}", "bold red", 0)
    if page.steps:
        line("What to do next", "bold")
    for step in page.steps:
        line(step.text, space=0)
        target = step.command or (step.link.path if step.link else "")
        if target:  # on one line, which can be pasted whole
            console.print(Text(f"    {sanitize(target, MAX_COMMAND)}"), soft_wrap=True)
    if page.links:
        line(f"Further files in this folder: {first_of([link.path for link in page.links], MAX_LINKS)}.")


def _rich_tables(table: Table, console: Console) -> list[RichTable]:
    """Return the table as it fits into the console.

    If it is too wide, intervals are below their values. If it still is, its columns become rows if it has few rows;
    otherwise it is split into several tables, each with some of the columns.
    """
    grid = _grid(table)
    if _measured(grid, console).maximum <= console.width:
        return [grid]
    stacked = _grid(table, "\n")
    if _measured(stacked, console).minimum <= console.width:
        return [stacked]
    if len(table.rows) <= MAX_TURNED_ROWS:
        return [_turned(table)]
    n_columns = len(table.columns) - 1
    parts = [stacked]
    for size in reversed(range(1, n_columns)):
        parts = [_grid(_with_columns(table, slice(start, start + size)), "\n") for start in range(0, n_columns, size)]
        if all(_measured(part, console).minimum <= console.width for part in parts):
            break
    return parts


def _measured(grid: RichTable, console: Console) -> Measurement:
    """Return the widths that a table needs if texts are folded, and if none is."""
    return Measurement.get(console, console.options.update(max_width=1000), grid)


def _with_columns(table: Table, chosen: slice) -> Table:
    """Return a table with its first column, and with some of the others."""
    rows = tuple(replace(row, cells=row.cells[chosen]) for row in table.rows)
    return replace(table, columns=(table.columns[0], *table.columns[1:][chosen]), rows=rows)


def _turned(table: Table) -> RichTable:
    """Return the table with a row for each of its columns, and a column for each of its rows."""
    grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    grid.add_column(Text(table.columns[0]), overflow="fold")
    for row in table.rows:
        grid.add_column(Text(row.label), justify="right", overflow="fold")
    for place, name in enumerate(table.columns[1:]):
        cells = [row.cells[place] for row in table.rows]
        grid.add_row(Text(name), *(Text(f"{cell.text} {cell.interval}".rstrip()) for cell in cells))
    return grid


def _grid(table: Table, between: str = " ") -> RichTable:
    """Return the table with a space or a line break between values and intervals."""
    grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    labels = [table.columns[0], *(row.label for row in table.rows)]
    grid.add_column(Text(table.columns[0]), overflow="fold", min_width=min(12, max(len(label) for label in labels)))
    columns = []
    for place, name in enumerate(table.columns[1:]):
        cells = [row.cells[place] for row in table.rows]
        texts = (
            _aligned(cells) if between == " " else [f"{cell.text}{between}{cell.interval}".rstrip() for cell in cells]
        )
        columns.append(texts)
        if any(cell.prose for cell in cells):
            grid.add_column(Text(name), justify="left", overflow="fold")
        else:
            longest = max((len(line) for text in texts for line in text.splitlines()), default=0)
            header = wrap(name, max(12, longest))
            least = max([longest, *map(len, header)])
            grid.add_column(Text("\n".join(header)), justify="right", overflow="fold", no_wrap=True, min_width=least)
    for place, row in enumerate(table.rows):
        grid.add_row(Text(row.label), *(Text(texts[place]) for texts in columns))
    return grid


def _aligned(cells: Sequence[Cell]) -> list[str]:
    """Return the texts of a column's cells with their intervals, or with spaces where the others have an interval."""
    width = max((len(cell.interval) for cell in cells), default=0)
    texts = []
    for cell in cells:
        text = f"{cell.text} {cell.interval}".rstrip()
        if width and not cell.interval:
            text += " " * (width + 1)
        texts.append(text)
    return texts
