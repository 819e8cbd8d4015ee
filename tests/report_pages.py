"""What tests of a family's page share: a run in memory, a page as text, its tables, and strings that would break it."""

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from markupsafe import Markup
from rich.console import Console

from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.report.figures import new_chart, styled, svg
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.report.score_sections import Table
from evenhand.evaluation.report.terminal import print_page
from evenhand.evaluation.score import BiasScore
from tests.parsed_page import assert_inert

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></title></svg><svg onload=alert(1)>",
    "&lt;b&gt; &amp; <b>bold</b>",
    "\u202egnirts desrever\u202c and \u2066isolated",
    "x" * 3000,
    "bell\x07 escape\x1b[31mred\x1b[0m null\x00 tab\t",
    "first line\nsecond | line\r\n\r\n# heading\n---\n| a | b |",
    "lone surrogate \ud800 and \u2028 separator",
    "👩🏽‍🦽 and العربية",
    "![i](http://evil.example/x.png) [l](javascript:alert(1)) <http://evil.example>",
    "`code` ``more`` ```fence``` `",
    "http://evil.example www.evil.example me@evil.example @team #1",
    "{{ 7*7 }}{% raw %}",
    "[bold red]markup[/bold red] [link=http://evil.example]x[/link]",
    "",
)


def measured(
    scores: Sequence[BiasScore], tables: dict[str, pd.DataFrame], config: Any = None, **names: str
) -> FamilyRun:
    """Return a run without a folder; `names` are the names of the measured model and the dataset."""
    if config is None:
        model, dataset = names.get("model", "a model"), names.get("dataset", "a dataset")
        prompts = SimpleNamespace(dataset=dataset, file=None, source=dataset)
        config = SimpleNamespace(model=SimpleNamespace(name=model), prompts=prompts)
    run = FamilyRun(Path("nowhere"), config)
    vars(run).update(scores=list(scores), table=tables.__getitem__, has=tables.__contains__)
    return run


@styled
def picture(label: str) -> Markup:
    """Return a chart of a line with a label."""
    figure, axes = new_chart(label, 300, 200)
    axes.plot([0, 1], [0, 1])
    axes.text(0.5, 0.5, label).set_in_layout(False)
    return svg(figure)


def assert_shows_as_text(page: Page, strings: Iterable[str] = ()) -> None:
    """Check that no form of the page runs or hides anything, and that the HTML page has the strings as text.

    Pages cut names after 60 characters or more, so only this much of each string is compared.
    """
    source = page_html(page)
    text = assert_inert(source).text.replace("\u00a0", " ")
    for form in (source, printed(page)):
        assert not {"\x1b", "\x00", "\u202e", "\u2028", "\ud800"} & set(form)
    for string in strings:
        assert re.sub(r"\s+", " ", sanitize(string, 60)).split(" … (")[0] in text, string


def assert_leads_to_a_decision(page: Page) -> None:
    """Check that the page says what to do next, and that no row or column of a table is empty."""
    assert page.verdict and (page.explanations or page.first_table)
    assert any(step.command.startswith("evenhand ") for step in page.steps)
    assert any(step.link for step in page.steps)
    for section in page.all_sections():
        assert "`" not in " ".join([section.title, *section.sentences])
        for table in section.tables:
            assert "p" not in table.columns  # "p-value"
            for row in table.rows:
                assert any(cell.text.strip("–") for cell in row.cells), row
            for place, column in enumerate(table.columns[1:]):
                cells = [row.cells[place] for row in table.rows]
                assert not cells or any(cell.text or cell.prose for cell in cells), column


def printed(page: Page) -> str:
    """Return what a log of 100 columns shows of the page."""
    console = Console(file=io.StringIO(), width=100, highlight=False, color_system=None)
    print_page(page, console)
    return console.file.getvalue()


def table_named(page: Page, start: str) -> Table:
    """Return the one table of the page whose caption begins like this."""
    sections = [part for top in page.sections for part in (top, *top.parts)]
    tables = [table for part in sections for table in part.tables]
    found = [table for table in tables if table.caption.startswith(start)]
    assert len(found) == 1, [table.caption for table in tables]
    return found[0]


def table_of(page: Page, title: str) -> Table:
    """Return the first table of the section with this title."""
    return next(part.tables[0] for part in page.sections if part.title == title)


def texts(table: Table) -> dict[str, list[str]]:
    """Return the cells of each row, by its label."""
    return {row.label: [cell.text for cell in row.cells] for row in table.rows}
