"""Output of pages as HTML files, as Markdown files, and on the terminal."""

from collections.abc import Mapping
from pathlib import Path

from evenhand.evaluation.files import write_text
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.report.page import Link, Page
from evenhand.evaluation.report.side_by_side import summary_page
from evenhand.evaluation.report.terminal import print_page

REPORT = "report"


def present(folder: Path, pages: Mapping[str, Page], *, write: bool, show: bool) -> list[Path]:
    """Write and print the page of each family of metrics; return the paths of all files of the report.

    The page of a single family is report.html. The pages of several families are report_<family>.html, and report.html
    is a summary of these pages. Each page also has a Markdown file.

    Args:
        folder: the folder of the files.
        pages: the page of each family by name.
        write: whether to write the files.
        show: whether to print the pages.
    """
    stems = dict(zip([REPORT], pages.values(), strict=False))
    if len(pages) > 1:
        links = {family: Link(page.title, f"{REPORT}_{family}.html") for family, page in pages.items()}
        stems = {REPORT: summary_page(pages, links)} | {f"{REPORT}_{family}": page for family, page in pages.items()}
    if show:
        for page in pages.values():
            print_page(page)
            print()
        print(f"Report: {(folder / f'{REPORT}.html').resolve()}")
    if write:
        for stem, page in stems.items():
            write_page(folder, stem, page)
    return [folder / f"{stem}.{suffix}" for stem in stems for suffix in ("html", "md")]


def write_page(folder: Path, stem: str, page: Page) -> None:
    """Write a page to `folder`/`stem`.html and `folder`/`stem`.md, each atomically; equal pages give equal bytes.

    Raises:
        InputError: a file cannot be written.
    """
    texts = {"html": page_html(page), "md": page_markdown(page)}
    for suffix, text in texts.items():
        write_text(folder / f"{stem}.{suffix}", text)
