"""A report of any kind: a verdict, its tables and figures, as one HTML file, as Markdown and on a terminal.

A metric family builds a `Page` of plain strings, tables and figures; whatever in it came from a model or from a file
is escaped here, and hidden characters in it are written out.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from evaluation.files import write_text
from evaluation.report import plots
from evaluation.report.html import page_environment
from evaluation.report.markdown import escaped, section, signature_block, table_block
from evaluation.report.numbers import visible
from evaluation.report.tables import Table
from evaluation.report.terminal import COLUMNS_OF_A_LOG, narrow, rich_table


@dataclass(frozen=True)
class Figure:
    """A drawing with its caption, if it needs one, above and a note below; a `wide` one has its own row.

    `svg` is made with `plots.svg_…`, which escape; what is hidden in its texts is for the maker to write out.
    """

    caption: str
    svg: Markup
    note: str = ""
    wide: bool = True


@dataclass(frozen=True)
class Example:
    """Texts to read side by side: each has a name and its parts in order, every part with whether it is to be marked.

    The parts are joined as they are; a marked one should not begin or end with a space. `asked` is what the texts
    answer to.
    """

    heading: str
    texts: tuple[tuple[str, tuple[tuple[str, bool], ...]], ...]
    asked: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page; an empty one is not shown.

    Only the title and the sentences of a `folded` one are seen at first. `first_screen` prints its sentences
    and tables on the terminal too. `parts` are sections below this one, and have none below them.
    """

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    examples: Sequence[Example] = ()
    parts: Sequence["Section"] = ()
    folded: bool = False
    first_screen: bool = False

    @property
    def shown(self) -> bool:
        """Whether there is anything in it."""
        something = (self.sentences, self.figures, self.examples)
        return (
            any(map(len, something)) or any(t.rows or t.note for t in self.tables) or any(p.shown for p in self.parts)
        )


@dataclass(frozen=True)
class Page:
    """All that a report shows.

    `big` is the one large number and `under` the line that says what it is; `tables` are the headline's. `sides` heads
    the table columns whose marks are drawn: one, or two that are drawn as ○ and as ●.
    """

    title: str
    subtitle: str
    date: str
    big: str
    under: str
    verdict: str
    warnings: Sequence[str] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    sections: Sequence[Section] = ()
    glossary: Sequence[tuple[str, str]] = ()
    limits: Sequence[str] = ()
    signature: Mapping[str, Any] = field(default_factory=dict)
    sides: tuple[str, ...] = ("value",)


def write_page(folder: Path, stem: str, page: Page) -> None:
    """Write `folder`/`stem`.html and .md, each whole or not at all; the same page gives the same bytes.

    Raises:
        InputError: a file cannot be written.
    """
    texts = {"html": page_html(page), "md": page_markdown(page)}
    for suffix, text in texts.items():
        write_text(folder / f"{stem}.{suffix}", text)


def page_html(page: Page) -> str:
    """Return the page as HTML that needs no network, no script and no other file."""
    return (
        page_environment()
        .get_template("page.html.j2")
        .render(
            page=page,
            tables=[_shown(table) for table in page.tables],
            sections=[_ready(part) for part in page.sections if part.shown],
            sides=tuple(map(visible, page.sides)),
            css=plots.style(),
            body_class="single" if len(page.sides) == 1 else "",
        )
    )


def page_markdown(page: Page) -> str:
    """Return the page as GitHub-flavoured Markdown: tables and texts, no figures; ended by a line break."""
    sections = (section(escaped(part.title), _markdown_parts(part)) for part in page.sections)
    return framed_markdown(page, [*map(table_block, page.tables), *map(escaped, page.notes), *sections])


def framed_markdown(page: Page, body: Iterable[str]) -> str:
    """Return the Markdown of a page whose own part, between the verdict and how to read the numbers, is `body`."""
    parts = [
        f"# {escaped(page.title)}",
        f"{escaped(page.subtitle)} · {escaped(page.date)}",
        f"**{escaped(page.verdict)}**",
        *(f"> **Warning.** {escaped(warning)}" for warning in page.warnings),
        *body,
        section("How to read the numbers", [f"- **{escaped(word)}**: {escaped(it)}" for word, it in page.glossary]),
        section("What they do not say", [f"- {escaped(limit)}" for limit in page.limits]),
        section("Signature", [signature_block(page.signature)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def print_page(page: Page, console: Console | None = None) -> None:
    """Print the verdict, the warnings, the sentences and tables of the first screen, and the notes.

    Where the output is not a terminal it is 100 columns wide and has no colour codes.
    """
    console = print_head(page, console)
    for sentences, tables in _first_screen(page):
        for sentence in sentences:
            console.print()
            console.print(Text(visible(sentence)))
        for table in tables:
            console.print()
            console.print(Text(table.caption, style="bold"))
            console.print(rich_table(_fitting(table, page.sides, console.width)))
            if table.note:
                console.print(Text(table.note, style="dim"))
    for note in page.notes:
        console.print(Padding(Text(visible(note)), (1, 0, 0, 0)))


def print_head(page: Page, console: Console | None = None) -> Console:
    """Print the title, the verdict and the warnings; return the console, a new one if none is given."""
    if console is None:
        console = Console(width=None if sys.stdout.isatty() else COLUMNS_OF_A_LOG, highlight=False)
    console.print(Text(visible(page.title), style="bold"))
    console.print(Text(visible(f"{page.subtitle} · {page.date}", 300), style="dim"))
    console.print()
    console.print(Text(visible(page.verdict), style="bold"))
    for warning in page.warnings:
        console.print(Text(f"WARNING  {visible(warning)}", style="bold red"))
    return console


def _first_screen(page: Page) -> Iterator[tuple[Sequence[str], list[Table]]]:
    """Yield the sentences and tables of the headline and of the sections that belong to the first screen."""
    yield (), [narrow(_shown(table)) for table in page.tables if table.rows]
    for part in (part for top in page.sections for part in (top, *top.parts)):
        if part.first_screen:
            yield part.sentences, [narrow(_shown(table)) for table in part.tables if table.rows]


def _fitting(table: Table, sides: Sequence[str], width: int) -> Table:
    """Return the table without the intervals of the two sides if it would be too wide; that of the change stays."""
    columns = [
        [name, *(row.label for row in table.rows)] if place == 0 else [name] for place, name in enumerate(table.columns)
    ]
    for row in table.rows:
        for texts, cell in zip(columns[1:], row.cells, strict=True):
            texts.append(f"{cell.text} {cell.interval}" if not cell.reason else "")
    if len(sides) < 2 or sum(max(map(len, texts)) + 2 for texts in columns) <= width:
        return table
    kept = [name not in sides for name in table.columns[1:]]
    return replace(
        table,
        rows=tuple(
            replace(
                row,
                cells=tuple(it if keep else replace(it, interval="") for it, keep in zip(row.cells, kept, strict=True)),
            )
            for row in table.rows
        ),
    )


def _markdown_parts(part: Section) -> Iterator[str]:
    yield from map(escaped, part.sentences)
    yield from map(table_block, part.tables)
    if part.examples:
        yield "\n".join(_markdown_examples(part.examples))
    for below in part.parts:
        text = "\n\n".join(filter(None, _markdown_parts(below)))
        if text:
            yield f"### {escaped(below.title)}\n\n{text}"


def _markdown_examples(examples: Iterable[Example]) -> Iterator[str]:
    for example in examples:
        yield f"- {': '.join(filter(None, (escaped(example.heading), escaped(example.asked))))}"
        for name, parts in example.texts:
            text = "".join(f"**{escaped(part)}**" if marked else escaped(part) for part, marked in parts)
            yield f"  - {escaped(name)}: {text or '*empty*'}"


def _ready(part: Section) -> Section:
    """Return the section with its tables ready to be shown, and without the parts that are empty."""
    return replace(
        part,
        tables=[_shown(table) for table in part.tables],
        parts=[_ready(below) for below in part.parts if below.shown],
    )


def _shown(table: Table) -> Table:
    """Return the table with what is hidden in its texts written out."""
    rows = (
        replace(
            row,
            label=visible(row.label),
            instead=visible(row.instead),
            cells=tuple(replace(cell, text=visible(cell.text), reason=visible(cell.reason)) for cell in row.cells),
        )
        for row in table.rows
    )
    return replace(
        table,
        caption=visible(table.caption),
        columns=tuple(map(visible, table.columns)),
        rows=tuple(rows),
        note=visible(table.note),
    )
