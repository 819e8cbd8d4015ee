"""Output of a page on a terminal: the verdict, the warnings, the sections of the first screen, and the notes."""

import os
import sys
from dataclasses import replace
from textwrap import wrap

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Page, Table
from evenhand.evaluation.report.tables import format_table

LOG_WIDTH = 100
MAX_LINKS = 8


def print_page(page: Page, console: Console | None = None) -> None:
    """Print the page; if the output is not a terminal, in COLUMNS or 100 characters and without colour codes."""
    if console is None:
        has_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").strip("0").isdigit()
        console = Console(width=None if has_width else LOG_WIDTH, highlight=False)

    def line(text: str, style: str = "", space: int = 1) -> None:
        console.print(Padding(Text(sanitize(text), style=style), (space, 0, 0, 0)))

    line(page.title, "bold", 0)
    line(f"{page.subtitle} · {page.date}"[:300], "dim", 0)
    line(page.verdict, "bold")
    line(f"{page.headline_value}  {page.headline_caption}")
    for explanation in page.explanations:
        line(explanation)
    for warning in page.warnings:
        line(f"WARNING  {warning}", "bold red", 0)
    for section in page.all_sections():
        if section.first_screen:
            for sentence in (*section.sentences, *(example.claim for example in section.examples if example.claim)):
                line(sentence)
            for table in map(format_table, section.tables):
                if table.rows:
                    line(table.caption or section.title, "bold")
                    console.print(_rich_table(table, page, console))
                if table.note:
                    line(table.note, "dim", 0)
    for note in page.notes:
        line(note)
    if page.steps:
        line("What to do next", "bold")
    for step in page.steps:
        line(step.text, space=0)
        if step.command:
            line(f"    {step.command}", space=0)
    if page.links:
        more = f" and {len(page.links) - MAX_LINKS} more" if len(page.links) > MAX_LINKS else ""
        line(f"Further files in this folder: {', '.join(link.path for link in page.links[:MAX_LINKS])}{more}.")


def _rich_table(table: Table, page: Page, console: Console) -> RichTable:
    grid = _grid(table)
    if Measurement.get(console, console.options.update(max_width=1000), grid).maximum <= console.width:
        return grid
    dropped = [len(page.sides) < 2 or name in page.sides for name in table.columns[1:]]
    rows = [
        replace(
            row, cells=[replace(it, interval="") if drop else it for it, drop in zip(row.cells, dropped, strict=True)]
        )
        for row in table.rows
    ]
    return _grid(replace(table, rows=rows))


def _grid(table: Table) -> RichTable:
    grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    labels = [table.columns[0], *(row.label for row in table.rows)]
    grid.add_column(Text(table.columns[0]), overflow="fold", min_width=min(12, max(map(len, labels))))
    texts = [[f"{cell.text} {cell.interval}".rstrip() for cell in row.cells] for row in table.rows]
    for place, name in enumerate(table.columns[1:]):
        column = [row.cells[place] for row in table.rows]
        is_prose = any(cell.prose for cell in column)
        width = max((len(cell.interval) for cell in column), default=0)
        for row, cell in zip(texts, column, strict=True):
            row[place] += " " * (width - len(cell.interval) + 1) * bool(width and not cell.interval)
        longest = max((len(row[place]) for row in texts), default=0)
        header = name if is_prose else "\n".join(wrap(name, max(12, longest)))
        grid.add_column(Text(header), justify="left" if is_prose else "right", overflow="fold", no_wrap=not is_prose)
    for row, cells in zip(table.rows, texts, strict=True):
        grid.add_row(*map(Text, (row.label, *cells)))
    return grid
