"""Output of pages as HTML files and on the terminal, and pages that summarise several runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from evenhand.evaluation.files import write_text
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.numbers import NO_NUMBER
from evenhand.evaluation.report.page import SCORES_TITLE, Cell, Link, Page, Row, Section, Table, near, signature_rows
from evenhand.evaluation.report.terminal import print_page
from evenhand.evaluation.report.words import COMMON, note

REPORT = "report"
# Prefixes of signature fields that describe the model or the model's output. Runs side by side always differ in them.
MODEL_FIELDS = ("model.", "inputs.model", "inputs.tokenizer", "inputs.responses", "translations", "inputs.translations")


def present(folder: Path, pages: Mapping[str, Page], *, write: bool, show: bool) -> dict[Path, Page]:
    """Write and print the page of each family of metrics; return them by the paths of the files.

    The page of a single family is report.html. The pages of several families are report_<family>.html, and report.html
    is a summary of these pages.

    Args:
        folder: the folder of the files.
        pages: the page of each family by name.
        write: whether to write the files.
        show: whether to print the pages.

    Raises:
        InputError: a file cannot be written.
    """
    report_file = folder / f"{REPORT}.html"
    if len(pages) == 1:
        (only,) = pages.values()
        files = {report_file: only}
    else:
        links = [Link(page.title, f"{REPORT}_{family}.html") for family, page in pages.items()]
        files = {report_file: summary_page(pages, links)}
        for family, page in pages.items():
            files[folder / f"{REPORT}_{family}.html"] = page
    if write:
        for path, page in files.items():
            write_text(path, page_html(page))
    if show:
        with suppress(BrokenPipeError):  # `| head` has seen enough; the run is finished all the same
            for page in pages.values():
                print_page(page)
                print()
            print(f"Report: {near(report_file.resolve())}")
    return files


def summary_page(pages: Mapping[str, Page], links: Sequence[Link]) -> Page:
    """Return the summary of a run or comparison: the verdict of each family, and links to their pages."""
    first = next(iter(pages.values()))
    return replace(
        first,
        title="All families of metrics",
        headline_caption=f"{first.title}: {first.headline_caption} (the first of {len(pages)} families of metrics)",
        verdict=note(COMMON, "several_families", n=len(pages)),
        warnings=[f"{page.title}: {warning}" for page in pages.values() for warning in page.warnings],
        sections=[Section(page.title, [page.verdict], _first_tables(page)) for page in pages.values()],
        first_table=None,
        explanations=(),
        notes=(),
        private_notes=(),
        glossary=(),
        limits=(),
        signature={},
        links=links,
        signature_lines=[line for page in pages.values() for line in page.signature_lines],
        facts=None,
    )


def _first_tables(page: Page) -> Sequence[Table]:
    if page.first_table:
        return [page.first_table]
    return next((section.tables for section in page.sections if section.title == SCORES_TITLE), ())


def side_by_side_page(
    families: Mapping[str, Mapping[str, Page]],
    links: Sequence[Link],
    further: Sequence[Page] = (),
    first: Sequence[Section] = (),
    *,
    are_paired: bool = True,
) -> Page:
    """Return a page that compares several runs of `evenhand measure` side by side.

    Args:
        families: {family: {run: page}}, with at least two runs for each family.
        links: links to the reports of the runs.
        further: other reports, whose verdicts and first tables the page includes.
        first: the first sections of the page.
        are_paired: whether the runs have prompts in common, so that two of them can be compared.
    """
    pages_of_first = next(iter(families.values()))
    first_page = next(iter(pages_of_first.values()))
    names = list(dict.fromkeys(name for runs in families.values() for name in runs))
    pages = [page for runs in families.values() for page in runs.values()] + list(further)
    settings = {name.replace("_", " "): _settings_table(runs) for name, runs in families.items()}
    headlines = {name: page.headline_value for name, page in pages_of_first.items() if page.headline_value}
    without = [name for name in pages_of_first if name not in headlines]
    warnings = []
    in_language = [name for name, page in pages_of_first.items() if _is_of_requested_language(page)]
    if 0 < len(in_language) < len(pages_of_first):
        warnings.append(note(COMMON, "headlines_in_language", names=in_language))
    for name, table in settings.items():
        if table.rows:
            warnings.append(note(COMMON, "other_settings", family=name, table=table.caption))
    sections = list(first)
    for runs in families.values():
        sections += _joined_sections(runs)
    sections += [Section(table.caption, tables=[table]) for table in settings.values()]
    for page in further:
        section = Section(page.title, [page.subtitle, page.verdict], _first_tables(page), first_screen=True)
        sections.append(section)
    return Page(
        title="Runs side by side",
        subtitle=" · ".join(names),
        date=max(page.date for page in pages),
        headline_value=" · ".join(headlines.values()),
        headline_caption=f"headlines of {', '.join(headlines)}; {len(names)} runs in all" if headlines else "",
        verdict=note(COMMON, "headlines", numbers=headlines, without=without),
        warnings=warnings,
        notes=[note(COMMON, "about_single_intervals", are_paired=are_paired)],
        sections=sections,
        glossary=first_page.glossary,
        limits=first_page.limits,
        signature_lines=[line for page in pages for line in page.signature_lines],
        links=links,
    )


def _is_of_requested_language(page: Page) -> bool:
    """Return whether the number at the top of a page leaves out answers in another language than the request."""
    size = page.facts.size if page.facts else None
    return bool(size and size.values.get("in_language"))


def _joined_sections(pages: Mapping[str, Page]) -> Iterator[Section]:
    """Yield a section for each table that several pages have, with a column for each of these pages."""
    found: dict[tuple[str, str], dict[str, Table]] = {}
    for name, page in pages.items():
        for section in page.all_sections():
            for table in section.tables:
                found.setdefault((section.title, table.caption), {})[name] = table
    for n, ((title, caption), tables) in enumerate(found.items()):
        if len(tables) < 2:
            continue
        rows = _joined_rows(pages, tables)
        if rows:
            first_name, first_table = next(iter(tables.items()))
            value_column = _value_column(first_table, pages[first_name])
            label = ", ".join(first_table.columns[:value_column])
            about = f"{first_table.columns[value_column]} of each run. {first_table.note}".rstrip()
            joined = Table(caption, (label, *tables), rows, about)
            yield Section(title, tables=[joined], first_screen=n == 0)


def _joined_rows(pages: Mapping[str, Page], tables: Mapping[str, Table]) -> tuple[Row, ...]:
    """Return a row for each label that several tables have, with the value of each page's table.

    What stands before the value, such as the person and the style, is the label. A label that a table has twice is in
    no row: nothing says which of its rows belongs to which.
    """
    cells: dict[str, dict[str, Cell]] = {}
    for name, table in tables.items():
        place = _value_column(table, pages[name]) - 1
        rows_of_label: dict[str, list[Cell]] = {}
        for row in table.rows:
            if len(row.cells) > place:
                label = ", ".join([row.label, *(cell.text for cell in row.cells[:place])])
                rows_of_label.setdefault(label, []).append(row.cells[place])
        cells[name] = {label: found[0] for label, found in rows_of_label.items() if len(found) == 1}
    rows = []
    for label in dict.fromkeys(label for cells_of_run in cells.values() for label in cells_of_run):
        found = [cells_of_run.get(label) for cells_of_run in cells.values()]
        if sum(cell is not None for cell in found) > 1:
            rows.append(Row(label, tuple(Cell(NO_NUMBER) if cell is None else cell for cell in found)))
    return tuple(rows)


def _value_column(table: Table, page: Page) -> int:
    """Return the column of a table that pages side by side show: of the page's first side, or else the first number."""
    if page.sides[0] in table.columns[1:]:
        return table.columns.index(page.sides[0])
    for column in range(1, len(table.columns)):
        if not all(row.cells[column - 1].prose for row in table.rows if len(row.cells) >= column):
            return column
    return 1


def _settings_table(pages: Mapping[str, Page]) -> Table:
    settings = {name: dict(signature_rows(page.signature)) for name, page in pages.items()}
    rows = []
    for setting in dict.fromkeys(setting for values in settings.values() for setting in values):
        values = [run.get(setting, NO_NUMBER) for run in settings.values()]
        if len(set(values)) > 1 and not setting.startswith(MODEL_FIELDS):
            rows.append(Row(setting, tuple(Cell(value, prose=True) for value in values)))
    title = next(iter(pages.values())).title
    return Table(f"Settings that differ between the runs: {title}", ("setting", *pages), tuple(rows))
