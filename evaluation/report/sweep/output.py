"""A sweep's report on the terminal, as Markdown, and as one HTML file that needs no network and no script."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd
from markupsafe import Markup
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from evaluation.files import write_text
from evaluation.report import plots
from evaluation.report.html import page_environment
from evaluation.report.markdown import escaped, section
from evaluation.report.numbers import visible
from evaluation.report.page import Page, framed_markdown, print_head
from evaluation.report.sweep import plots as sweep_plots
from evaluation.report.sweep import tables as sweep_tables
from evaluation.report.sweep import wording
from evaluation.report.sweep.summary import (
    Agreement,
    SweepContent,
    plan_agreement,
    planned,
    several_thresholds,
    summarise,
)
from evaluation.report.tables import Cell, Table

PLAN_NOTE = (
    "Predicted by the threshold plan from the labelled responses alone, before any tuning; its brackets say what other "
    "descriptors would give, not how far the prediction may be off. Settings are ranked as means over their seeds. "
    "Shares have Wilson’s 95 % interval; p is two-sided, exact up to eight settings, and takes settings as independent."
)
_BRACKETS = re.compile(r"\[[−+\d.,∞ ]+\]")  # an interval; what else stands in its place is the name of a cluster
SHORT_WITH_INTERVALS = 5  # columns; 100 characters hold no more
PANELS = (("perplexity", "Pooled FGB* removed, against perplexity"), ("distinct_2", "The same, against distinct-2"))


@dataclass(frozen=True)
class _Report:
    """The tables and sentences that stand in all three forms."""

    content: SweepContent

    @cached_property
    def summary(self) -> pd.DataFrame:
        return summarise(self.content.points, self.content.swept)

    @cached_property
    def planned(self) -> pd.DataFrame | None:
        """The settings that put the plan to the test; None where there were no thresholds to compare."""
        return planned(self.summary) if several_thresholds(self.content.points) else None

    @cached_property
    def agreements(self) -> list[Agreement]:
        return [] if self.planned is None else plan_agreement(self.planned)

    @property
    def removed(self) -> Table:
        return sweep_tables.removed_table(self.summary, self.content)

    @property
    def costs(self) -> Table:
        return sweep_tables.cost_table(self.summary, self.content)

    @property
    def refused(self) -> Table:
        return sweep_tables.refused_table(self.content)

    @property
    def plan(self) -> Table:
        rows = self.summary.head(0) if self.planned is None else self.planned
        return sweep_tables.plan_table(rows, self.summary, self.content)

    @property
    def agreement(self) -> Table:
        return sweep_tables.agreement_table(self.agreements)

    @property
    def page(self) -> Page:
        """What is above and below the sweep's own tables and plots."""
        big, under = wording.headline(self.summary, self.content.bar)
        counts = (_counted(len(self.content.points), "point"), _counted(len(self.summary), "setting"))
        return Page(
            title=self.content.title,
            subtitle=f"{visible(self.content.base_model)} · {' in '.join(counts)}",
            date=self.content.date,
            big=big,
            under=under,
            verdict=wording.verdict(self.summary, self.content.bar, self.content.swept),
            warnings=wording.warnings(self.summary),
            notes=[wording.bar_in_words(self.content.bar), *self.content.notes],
            glossary=wording.READING,
            limits=wording.LIMITS,
        )

    @property
    def plan_verdict(self) -> str:
        return wording.plan_verdict(self.agreements) if self.agreements else ""


def write_sweep_html(path: Path, content: SweepContent) -> None:
    """Write the report; the same content gives the same bytes.

    Raises:
        InputError: the file cannot be written.
        ValueError: `content.points` is not as `SweepContent` says.
    """
    write_text(path, sweep_html(content))


def write_sweep_markdown(path: Path, content: SweepContent) -> None:
    """Write the report; the same content gives the same bytes.

    Raises:
        InputError: the file cannot be written.
        ValueError: `content.points` is not as `SweepContent` says.
    """
    write_text(path, sweep_markdown(content))


def sweep_html(content: SweepContent) -> str:
    """Return the page; names that came from users are escaped, and hidden characters in them are written out."""
    report = _Report(content)
    return (
        page_environment()
        .get_template("sweep/sweep.html.j2")
        .render(
            page=report.page,
            css=plots.style() + Markup(Path(__file__).with_name("sweep.css").read_text(encoding="utf-8")),
            body_class="sweep",
            words=sweep_tables.WORDS,
            intervals=wording.INTERVALS,
            front=wording.FRONT,
            removed=report.removed,
            costs=report.costs,
            refused=report.refused,
            legend=sweep_plots.legend(report.summary, report.summary[report.summary["reduction"].notna()]),
            plan_legend=[] if report.planned is None else sweep_plots.legend(report.summary, report.planned),
            met=sweep_plots.key_mark(filled=True),
            not_met=sweep_plots.key_mark(),
            panels=_panels(report),
            plan_panel=report.agreements and sweep_plots.plan_panel(report.planned, report.summary, content),
            plan_verdict=report.plan_verdict,
            plan_note=PLAN_NOTE,
            agreement=report.agreement,
            plan=report.plan,
        )
    )


def _counted(n: int, thing: str) -> str:
    return f"{n} {thing}{'' if n == 1 else 's'}"


def _panels(report: _Report) -> list[tuple[str, Markup]]:
    """Return the plots of the costs that were measured, each with its caption."""
    summary = report.summary[report.summary["reduction"].notna()]
    return [
        (caption, sweep_plots.cost_panel(report.summary, report.content, cost))
        for cost, caption in PANELS
        if summary[f"{cost}_change"].notna().any()
    ]


def sweep_markdown(content: SweepContent) -> str:
    """Return the report as GitHub-flavoured Markdown, without the plots, ended by a line break."""
    report = _Report(content)
    body = [
        *map(escaped, report.page.notes),
        *(_grid(table) for table in (report.removed, report.costs)),
        escaped(f"{wording.INTERVALS} {wording.FRONT}"),
        section("Refused by a guard", [_grid(report.refused, titled=False)]),
        section(
            "The threshold plan, put to the test",
            [escaped(report.plan_verdict), _grid(report.agreement), _grid(report.plan), escaped(PLAN_NOTE)]
            if report.agreements
            else [],
        ),
    ]
    return framed_markdown(report.page, body)


def _grid(table: Table, titled: bool = True) -> str:
    """Return a table under its caption; words are flush left, numbers flush right."""
    if not table.rows:
        return ""
    rule = [":---" if name in sweep_tables.WORDS else "---:" for name in table.columns]
    body = ([escaped(row.label), *map(_cell, row.cells)] for row in table.rows)
    lines = [_line(map(escaped, table.columns)), _line(rule), *map(_line, body)]
    return (f"{escaped(table.caption)}:\n\n" if titled else "") + "\n".join(lines)


def _cell(cell: Cell) -> str:
    beside = cell.interval if _BRACKETS.fullmatch(cell.interval) else escaped(cell.interval)
    return f"{escaped(cell.full)} {beside}".rstrip()


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def print_sweep(content: SweepContent, console: Console | None = None) -> None:
    """Print the verdict, the warnings and the tables.

    Where the output is not a terminal it is 100 columns wide and has no colour codes.
    """
    report = _Report(content)
    console = print_head(report.page, console)
    console.print(Text(wording.bar_in_words(content.bar)))
    removed, judged = _parted(report.removed)
    _print_tables(console, removed, judged, _short(report.costs), report.refused)
    if report.agreements:
        console.print(Padding(Text(report.plan_verdict), (1, 0, 0, 0)))
        _print_tables(console, report.agreement, _short(report.plan))
    for sentence in (wording.INTERVALS, wording.FRONT, *map(visible, content.notes)):
        console.print(Padding(Text(sentence), (1, 0, 0, 0)))


def _print_tables(console: Console, *shown: Table) -> None:
    for table in shown:
        if table.rows:
            console.print()
            console.print(Text(table.caption, style="bold"))
            console.print(_rich_table(table))


def _parted(table: Table) -> tuple[Table, Table]:
    """Return a table without its last column, and that column alone: both together are too wide for a terminal."""
    if not table.rows:
        return table, table
    numbers = Table(table.caption, table.columns[:-1], tuple(replace(row, cells=row.cells[:-1]) for row in table.rows))
    words = tuple(replace(row, cells=row.cells[-1:]) for row in table.rows)
    return numbers, Table("How the settings are judged", (table.columns[0], table.columns[-1]), words)


def _short(table: Table) -> Table:
    """Return a table that repeats neither the settings' names nor, of what a setting cost, the intervals.

    A terminal has no room for either; the settings' numbers are the key to the first table.
    """
    keep = [place for place, name in enumerate(table.columns[1:]) if name != "setting"]
    rows = (replace(row, cells=tuple(row.cells[place] for place in keep)) for row in table.rows)
    if len(keep) > SHORT_WITH_INTERVALS:  # a cluster's name stands in the place of an interval, and stays
        rows = (replace(row, cells=tuple(map(_without_brackets, row.cells))) for row in rows)
    return Table(table.caption, (table.columns[0], *(table.columns[place + 1] for place in keep)), tuple(rows))


def _without_brackets(cell: Cell) -> Cell:
    return Cell(cell.text) if _BRACKETS.fullmatch(cell.interval) else cell


def _rich_table(table: Table) -> RichTable:
    """Return a table in which words are folded and numbers, flush right, are not."""
    shown = RichTable(box=None, pad_edge=False, header_style="dim")
    for name in table.columns:
        if name in sweep_tables.WORDS:
            shown.add_column(Text(name), overflow="fold", ratio=1 if name in ("reason", "judged") else None)
        else:
            shown.add_column(Text(name), justify="right", overflow="fold")
    for row in table.rows:
        cells = [Text(f"{cell.full} {cell.interval}".rstrip()) for cell in row.cells]
        shown.add_row(Text(row.label), *cells, style="bold red" if row.direction > 0 else None)
    return shown
