"""Output of pages as HTML files and on the terminal."""

from collections.abc import Mapping
from pathlib import Path

from evenhand.evaluation.files import write_text
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.page import Link, Page
from evenhand.evaluation.report.side_by_side import summary_page
from evenhand.evaluation.report.terminal import print_page

REPORT = "report"


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
    files = dict(zip([REPORT], pages.values(), strict=False))
    if len(pages) > 1:
        links = [Link(page.title, f"{REPORT}_{family}.html") for family, page in pages.items()]
        files = {REPORT: summary_page(pages, links)} | {f"{REPORT}_{family}": page for family, page in pages.items()}
    if show:
        for page in pages.values():
            print_page(page)
            print()
        print(f"Report: {(folder / f'{REPORT}.html').resolve()}")
    paths = {folder / f"{stem}.html": page for stem, page in files.items()}
    for path, page in paths.items() if write else ():
        write_text(path, page_html(page))
    return paths
