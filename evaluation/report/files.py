"""Pages → files: HTML and Markdown, each whole or not at all, and the terminal."""

from collections.abc import Mapping
from pathlib import Path

from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.report.terminal import print_page
from evenhand.evaluation.runs.files import write_text

REPORT = "report"


def present(folder: Path, pages: Mapping[str, Page], *, write: bool, show: bool) -> list[Path]:
    """Write the report of each family of metrics into the folder, and print it, as asked; return the files' paths.

    The first family's page is report.html, a further one's is called by the family as well.
    """
    files: list[Path] = []
    for family, page in pages.items():
        stem = f"{REPORT}_{family}" if files else REPORT
        files += [folder / f"{stem}.html", folder / f"{stem}.md"]
        if show:
            print_page(page)
        if write:
            write_page(folder, stem, page)
        if show:
            print(f"\nReport: {files[-2].resolve()}")
    return files


def write_page(folder: Path, stem: str, page: Page) -> None:
    """Write `folder`/`stem`.html and .md, each whole or not at all; the same page gives the same bytes.

    Raises:
        InputError: a file cannot be written.
    """
    texts = {"html": page_html(page), "md": page_markdown(page)}
    for suffix, text in texts.items():
        write_text(folder / f"{stem}.{suffix}", text)
