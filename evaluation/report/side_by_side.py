"""Pages beside each other: the families of metrics of one run under one summary, and runs side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from evenhand.evaluation.report.page import Link, Page, Section, signature_rows
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table

# What a signature says of the model, or of what it said: runs side by side are there to differ in it.
OF_MODEL = ("model.", "inputs.model", "inputs.tokenizer", "inputs.responses", "translations", "inputs.translations")
say = Sentences(__file__)


def summary_page(pages: Mapping[str, Page], links: Mapping[str, Link]) -> Page:
    """Return what the families of metrics of one run, or of one comparison, say, each with a link to its own page."""
    first = next(iter(pages.values()))
    rows = tuple(Row(page.title, (Cell(page.big), Cell(page.under, prose=True))) for page in pages.values())
    return Page(
        title=say.summary_title,
        subtitle=first.subtitle,
        date=first.date,
        big=str(len(pages)),
        under=say.summary_under,
        verdict=say.summary_verdict(len(pages)),
        warnings=[f"{page.title}: {warning}" for page in pages.values() for warning in page.warnings],
        tables=[Table(say.summary_caption, ("family", "number", "what it is"), rows)],
        sections=[Section(page.title, [page.verdict], page.tables, first_screen=True) for page in pages.values()],
        signature_lines=[line for page in pages.values() for line in page.signature_lines],
        sides=first.sides if len(first.sides) == 1 else ("before", "after"),
        links=[links[name] for name in pages],
    )


def beside_page(
    families: Mapping[str, Mapping[str, Page]], links: Sequence[Link], further: Sequence[Page] = ()
) -> Page:
    """Return several measuring runs side by side.

    Args:
        families: the page of each run by its name, of each family of metrics that two of them have at least.
        further: reports of another kind, whose first screens stand behind.
    """
    pages = next(iter(families.values()))
    names = list(dict.fromkeys(name for runs in families.values() for name in runs))
    reports = [*(page for runs in families.values() for page in runs.values()), *further]
    differing = {name: list(_differing(runs)) for name, runs in families.items()}
    return Page(
        title=say.beside_title,
        subtitle=" · ".join(names),
        date=max(page.date for page in pages.values()),
        big=str(len(names)),
        under=say.beside_under,
        verdict=say.beside_verdict(pages),
        warnings=[say.unlike(name) for name, rows in differing.items() if rows],
        tables=list(_drawn(pages)),
        notes=[say.beside_note],
        sections=[
            part
            for name, runs in families.items()
            for part in (
                *_sections(runs),
                Section(say.differing(name), tables=[Table(say.differing(name), ("setting", *runs), differing[name])]),
            )
        ]
        + [Section(page.title, [page.subtitle, page.verdict], page.tables, first_screen=True) for page in further],
        glossary=next(iter(pages.values())).glossary,
        limits=next(iter(pages.values())).limits,
        signature_lines=[line for page in reports for line in page.signature_lines],
        links=links,
    )


def _drawn(pages: Mapping[str, Page]) -> Iterator[Table]:
    """Yield a table for each measure that is drawn on the first screens, with a row for each run."""
    tops = {name: page.tables[0] for name, page in pages.items() if page.tables}
    for label in dict.fromkeys(row.label for table in tops.values() for row in table.rows if row.marks):
        rows = {name: _row(table, label) for name, table in tops.items()}
        found = [replace(row, label=name, cells=row.cells[:1]) for name, row in rows.items() if row]
        table = next(table for name, table in tops.items() if rows[name])
        caption = f"{label} ({table.caption})"
        yield Table(caption, ("run", table.columns[1]), tuple(found), ideal=table.ideal)


def _sections(pages: Mapping[str, Page]) -> Iterator[Section]:
    """Yield the tables that at least two runs have, the values of all runs beside each other."""
    tables = {name: list(_tables(page)) for name, page in pages.items()}
    for title in dict.fromkeys(title for found in tables.values() for title, _ in found):
        captions = dict.fromkeys(it.caption for found in tables.values() for of, it in found if of == title)
        made = []
        for caption in captions:
            same = {
                name: table
                for name, found in tables.items()
                if (table := next((it for _, it in found if it.caption == caption), None))
            }
            if len(same) > 1:
                made.append(_beside(caption, pages, same))
        yield Section(title, tables=[table for table in made if table.rows])


def _tables(page: Page) -> Iterator[tuple[str, Table]]:
    """Yield the tables of a page that have a value for each row, with the title of their section."""
    yield from ((page.title, table) for table in page.tables)
    for part in page.sections:
        yield from ((part.title, table) for below in (part, *part.parts) for table in below.tables if len(table.rows))


def _beside(caption: str, pages: Mapping[str, Page], same: Mapping[str, Table]) -> Table:
    """Return one column of each run's table; rows that only one of them has are left out."""
    columns = {}
    for name, table in same.items():
        side = pages[name].sides[0]
        place = table.columns.index(side) - 1 if side in table.columns[1:] else 0
        columns[name] = {row.label: row.cells[place] for row in table.rows}
    labels = dict.fromkeys(label for cells in columns.values() for label in cells)
    rows = [
        Row(label, tuple(cells.get(label, Cell("–")) for cells in columns.values()))
        for label in labels
        if sum(label in cells for cells in columns.values()) > 1
    ]
    first = next(iter(same.values()))
    return Table(caption, (first.columns[0], *columns), tuple(rows), first.note)


def _differing(pages: Mapping[str, Page]) -> Iterator[Row]:
    """Yield what the signatures of the runs differ in, beside the model."""
    told = {name: dict(signature_rows(page.signature)) for name, page in pages.items()}
    for setting in dict.fromkeys(setting for found in told.values() for setting in found):
        values = [found.get(setting, "–") for found in told.values()]
        if len(set(values)) > 1 and not setting.startswith(OF_MODEL):
            yield Row(setting, tuple(Cell(value, prose=True) for value in values))


def _row(table: Table, label: str) -> Row | None:
    return next((row for row in table.rows if row.label == label), None)
