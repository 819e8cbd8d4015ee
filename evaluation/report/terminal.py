"""Output of a page on a terminal: verdict, warnings, first screen and notes."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.report.tables import Cell, Row, Table, format_table

LOG_WIDTH = 100
GAP = 2  # between columns
MAX_LINKS = 8
MAX_CLAIMS = 3  # of a section; the page has all
MIN_LABEL, MIN_PROSE = 24, 32  # characters; narrower labels and prose are not wrapped


@dataclass(frozen=True)
class _Column:
    """A column of a table as texts, the column's name first, with the minimum width and the width without wrapping."""

    texts: list[str]
    min_width: int
    full_width: int
    is_right_aligned: bool


def print_page(page: Page, console: Console | None = None) -> None:
    """Print the verdict, the warnings, the sentences and tables of the first screen, and the notes.

    If the output is not a terminal, the width is the environment variable COLUMNS, by default 100 characters, and
    there are no colour codes.
    """
    if console is None:
        has_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").strip("0").isdigit()
        console = Console(width=None if has_width else LOG_WIDTH, highlight=False)
    console.print(Text(sanitize(page.title), style="bold"))
    console.print(Text(sanitize(f"{page.subtitle} · {page.date}", 300), style="dim"))
    console.print()
    console.print(Text(sanitize(page.verdict), style="bold"))
    for warning in page.warnings:
        console.print(Text(f"WARNING  {sanitize(warning)}", style="bold red"))
    for sentences, tables in _first_screen(page):
        for sentence in sentences:
            console.print()
            console.print(Text(sanitize(sentence)))
        for table in tables:
            console.print()
            console.print(Text(table.caption, style="bold"))
            console.print(_rich_table(_fit_table(table, page.sides, console.width), console.width))
            if table.note:
                console.print(Text(table.note, style="dim"))
    if page.links:
        paths = ", ".join(sanitize(link.path) for link in page.links[:MAX_LINKS])
        more = f" and {len(page.links) - MAX_LINKS} more" if len(page.links) > MAX_LINKS else ""
        console.print(Padding(Text(f"Further files in this folder: {paths}{more}."), (1, 0, 0, 0)))
    for note in page.notes:
        console.print(Padding(Text(sanitize(note)), (1, 0, 0, 0)))


def _first_screen(page: Page) -> Iterator[tuple[Sequence[str], list[Table]]]:
    """Yield (sentences, tables) for the headline and for each section that belongs to the first screen."""
    for part in (part for top in page.lead for part in (top, *top.parts)):
        if part.first_screen:
            yield [*part.sentences, *(example.claim for example in part.examples[:MAX_CLAIMS])], []
    yield (), [format_table(_drop_reductions(table)) for table in page.tables if table.rows]
    for part in (part for top in page.sections for part in (top, *top.parts)):
        if part.first_screen:
            yield part.sentences, [format_table(_drop_reductions(table)) for table in part.tables if table.rows]


def _drop_reductions(table: Table) -> Table:
    """Return the table without the column `reduction`, which is too wide for a log, if this is the last column."""
    if table.columns[-1] != "reduction":
        return table
    rows = tuple(replace(row, cells=row.cells[:-1]) for row in table.rows)
    return replace(table, columns=table.columns[:-1], rows=rows)


def _fit_table(table: Table, sides: Sequence[str], width: int) -> Table:
    """Return the table, without intervals if the table is wider than `width`.

    In a comparison of two models, the interval of the change remains.
    """
    label = _label_width(table)
    label = label if len(sides) > 1 else min(label, MIN_LABEL)
    if label + sum(GAP + column.min_width for column in _columns(table)) <= width:
        return table
    is_dropped = [len(sides) < 2 or name in sides for name in table.columns[1:]]
    return replace(table, rows=tuple(_without_intervals(row, is_dropped) for row in table.rows))


def _without_intervals(row: Row, is_dropped: Sequence[bool]) -> Row:
    cells = (replace(it, interval="") if drop else it for it, drop in zip(row.cells, is_dropped, strict=True))
    return replace(row, cells=tuple(cells))


def _label_width(table: Table) -> int:
    return max(len(text) for text in (table.columns[0], *map(_label, table.rows)))


def _label(row: Row) -> str:
    return f"{row.label} (rose)" if row.direction > 0 else row.label


def _rich_table(table: Table, width: int) -> RichTable:
    """Return a table of at most `width` characters, in which names and prose are wrapped and numbers are not."""
    grid = RichTable(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    columns, label = _columns(table), _label_width(table)
    spare = width - label - sum(GAP + column.min_width for column in columns)
    grid.add_column(
        Text(table.columns[0], style="dim"), overflow="fold", width=max(min(label, 12), label + min(spare, 0))
    )
    widths = []
    for column in columns:
        extra = max(min(column.full_width - column.min_width, spare), 0)
        spare -= extra
        widths.append(column.min_width + extra)
        name = Text(column.texts[0], style="dim", justify="right" if column.is_right_aligned else "left")
        grid.add_column(name, overflow="fold", width=widths[-1])
    for i, row in enumerate(table.rows, start=1):
        texts = [
            column.texts[i].rjust(width) if column.is_right_aligned else column.texts[i]
            for column, width in zip(columns, widths, strict=True)
        ]
        grid.add_row(*map(Text, [_label(row), *texts]), style="bold red" if row.direction > 0 else None)
    return grid


def _columns(table: Table) -> list[_Column]:
    return [_column(name, [row.cells[i] for row in table.rows]) for i, name in enumerate(table.columns[1:])]


def _column(name: str, cells: Sequence[Cell]) -> _Column:
    """Return a column of cells as text: right-aligned numbers with intervals, or left-aligned prose."""
    word = max(map(len, name.split()), default=0)
    if any(cell.prose for cell in cells):
        texts = [f"{cell.text} {cell.interval}".rstrip() for cell in cells]
        longest = max(len(text) for text in (name, *texts))
        return _Column([name, *texts], max(word, min(MIN_PROSE, longest)), longest, is_right_aligned=False)
    number = max((len(cell.text) for cell in cells), default=0)
    interval = max((len(cell.interval) for cell in cells), default=0)
    texts = [f"{cell.text:>{number}} {cell.interval:>{interval}}" for cell in cells]
    texts = [text.rstrip() if not interval else text for text in texts]
    width = max(word, max(map(len, texts), default=0))
    return _Column([name, *texts], width, max(width, len(name)), is_right_aligned=True)
