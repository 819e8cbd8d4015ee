"""Pages that summarise all families of metrics of one run, and pages that compare several runs side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from evenhand.evaluation.report.page import Link, Page, Section, signature_rows
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table

# Prefixes of signature fields that describe the model or the model's output. Runs side by side always differ in them.
MODEL_FIELDS = ("model.", "inputs.model", "inputs.tokenizer", "inputs.responses", "translations", "inputs.translations")
MAX_IN_HEADLINE = 4  # runs; the table below the headline has all
text = Sentences(__file__)


def summary_page(pages: Mapping[str, Page], links: Mapping[str, Link]) -> Page:
    """Return the summary of a run or comparison: the headline of each family of metrics, and links to their pages.

    The keys of `pages` and `links` are names of families.
    """
    first = next(iter(pages.values()))
    rows = tuple(
        Row(page.title, (Cell(page.headline_value), Cell(page.headline_caption, prose=True))) for page in pages.values()
    )
    return Page(
        title=text.summary_title,
        subtitle=first.subtitle,
        date=first.date,
        headline_value=first.headline_value,
        headline_caption=text.summary_headline_caption(first, len(pages)),
        verdict=text.summary_verdict(len(pages)),
        warnings=[f"{page.title}: {warning}" for page in pages.values() for warning in page.warnings],
        tables=[Table(text.summary_caption, ("family", "number", "meaning"), rows)],
        sections=[Section(page.title, [page.verdict], page.tables, first_screen=True) for page in pages.values()],
        signature_lines=[line for page in pages.values() for line in page.signature_lines],
        sides=first.sides if len(first.sides) == 1 else ("before", "after"),
        links=[links[name] for name in pages],
    )


def side_by_side_page(
    families: Mapping[str, Mapping[str, Page]], links: Sequence[Link], further: Sequence[Page] = ()
) -> Page:
    """Return a page that compares several runs of `evenhand measure` side by side.

    Args:
        families: {family: {run: page}}, with at least two runs for each family.
        links: links to the reports of the runs.
        further: other reports, whose verdicts and headline tables the page includes.
    """
    pages = next(iter(families.values()))
    names = list(dict.fromkeys(name for runs in families.values() for name in runs))
    reports = [*(page for runs in families.values() for page in runs.values()), *further]
    differing = {name: list(_differing_settings(runs)) for name, runs in families.items()}
    return Page(
        title=text.side_by_side_title,
        subtitle=" · ".join(names),
        date=max(page.date for page in pages.values()),
        headline_value=" · ".join(page.headline_value for page in list(pages.values())[:MAX_IN_HEADLINE]),
        headline_caption=text.side_by_side_headline_caption(list(pages)[:MAX_IN_HEADLINE], len(names), len(pages)),
        verdict=text.side_by_side_verdict(pages),
        warnings=[text.unlike(name) for name, rows in differing.items() if rows],
        tables=list(_headline_tables(pages)),
        notes=[text.side_by_side_note],
        sections=[
            part
            for name, runs in families.items()
            for part in (*_sections(runs), _settings_section(text.differing(name), runs, differing[name]))
        ]
        + [Section(page.title, [page.subtitle, page.verdict], page.tables, first_screen=True) for page in further],
        glossary=next(iter(pages.values())).glossary,
        limits=next(iter(pages.values())).limits,
        signature_lines=[line for page in reports for line in page.signature_lines],
        links=links,
    )


def _settings_section(title: str, runs: Mapping[str, Page], rows: Sequence[Row]) -> Section:
    return Section(title, tables=[Table(title, ("setting", *runs), rows)])


def _headline_tables(pages: Mapping[str, Page]) -> Iterator[Table]:
    """Yield a table for each plotted row of the pages' headline tables, with a row for each run."""
    tops = {name: page.tables[0] for name, page in pages.items() if page.tables}
    for label in dict.fromkeys(row.label for table in tops.values() for row in table.rows if row.marks):
        rows = {name: _row(table, label) for name, table in tops.items()}
        run_rows = [replace(row, label=name, cells=row.cells[:1]) for name, row in rows.items() if row]
        table = next(table for name, table in tops.items() if rows[name])
        caption = f"{label} ({table.caption})"
        yield Table(caption, ("run", table.columns[1]), tuple(run_rows), ideal=table.ideal)


def _sections(pages: Mapping[str, Page]) -> Iterator[Section]:
    """Yield a section for each section title, with the tables that at least two runs have and a column for each run."""
    tables = {name: list(_tables(page)) for name, page in pages.items()}
    for title in dict.fromkeys(title for titled in tables.values() for title, _ in titled):
        captions = dict.fromkeys(it.caption for titled in tables.values() for other, it in titled if other == title)
        joined = []
        for caption in captions:
            same = {
                name: table
                for name, titled in tables.items()
                if (table := next((it for _, it in titled if it.caption == caption), None))
            }
            if len(same) > 1:
                joined.append(_join_tables(caption, pages, same))
        yield Section(title, tables=[table for table in joined if table.rows])


def _tables(page: Page) -> Iterator[tuple[str, Table]]:
    """Yield (section title, table) for each non-empty table of a page."""
    yield from ((page.title, table) for table in page.tables)
    for part in page.sections:
        yield from ((part.title, table) for below in (part, *part.parts) for table in below.tables if len(table.rows))


def _join_tables(caption: str, pages: Mapping[str, Page], same: Mapping[str, Table]) -> Table:
    """Return a table with one column for each run and with the rows that at least two runs have."""
    columns = {}
    for name, table in same.items():
        side = pages[name].sides[0]
        column = table.columns.index(side) - 1 if side in table.columns[1:] else 0
        columns[name] = {row.label: row.cells[column] for row in table.rows}
    labels = dict.fromkeys(label for cells in columns.values() for label in cells)
    rows = [
        Row(label, tuple(cells.get(label, Cell("–")) for cells in columns.values()))
        for label in labels
        if sum(label in cells for cells in columns.values()) > 1
    ]
    first = next(iter(same.values()))
    return Table(caption, (first.columns[0], *columns), tuple(rows), first.note)


def _differing_settings(pages: Mapping[str, Page]) -> Iterator[Row]:
    """Yield a row for each setting in which the signatures of the runs differ, except for MODEL_FIELDS."""
    settings = {name: dict(signature_rows(page.signature)) for name, page in pages.items()}
    for setting in dict.fromkeys(setting for values in settings.values() for setting in values):
        values = [run.get(setting, "–") for run in settings.values()]
        if len(set(values)) > 1 and not setting.startswith(MODEL_FIELDS):
            yield Row(setting, tuple(Cell(value, prose=True) for value in values))


def _row(table: Table, label: str) -> Row | None:
    return next((row for row in table.rows if row.label == label), None)
