"""Tables and sections of scores: `score_section` for any list of scores, `change_table` for scores before and after."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenhand.evaluation.report.formats import find_format, format_of
from evenhand.evaluation.report.numbers import (
    NO_NUMBER,
    decimals_for_interval,
    interval,
    number,
    p_value,
    sanitize,
    undefined,
    value_or,
)
from evenhand.evaluation.report.page import SCORES, Cell, Mark, Row, Section, Table
from evenhand.evaluation.score import BiasScore, Form, Kind

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
MAX_LABEL = 240
ROWS_AT_EACH_END = 15
DETECTABLE = (Kind.DETECTABLE, Kind.DETECTABLE_DIFFERENCE)
Key = tuple[str, Form, frozenset[tuple[str, str]]]  # metric, form and group
Runs = Sequence[Sequence[BiasScore]]  # the scores before, the scores after, and their differences
LEVEL = 0.05  # significance level of the two-sided tests and of the intervals


def format_table(table: Table) -> Table:
    """Return the table with sanitized texts and a footnote with the reasons why cells are undefined."""
    reasons = list(dict.fromkeys(cell.reason for row in table.rows for cell in row.cells if cell.reason))
    marks = {it: NO_NUMBER + (str(n).translate(SUPERSCRIPTS) if reasons[1:] else "") for n, it in enumerate(reasons, 1)}
    rows = tuple(
        replace(
            row,
            label=sanitize(row.label),
            cells=tuple(replace(it, text=marks.get(it.reason) or sanitize(it.text), reason="") for it in row.cells),
        )
        for row in table.rows
    )
    footnote = "; ".join(f"{mark} undefined: {sanitize(reason).rstrip('.')}" for reason, mark in marks.items())
    note = " ".join(filter(None, [sanitize(table.note), footnote and f"{footnote}."]))
    columns = tuple(map(sanitize, table.columns))
    return replace(table, caption=sanitize(table.caption), columns=columns, rows=rows, note=note)


def score_cell(score: BiasScore | None, missing: str = "not measured") -> Cell:
    """Return a cell with the value and the interval of a score in the reported unit; `missing` if the score is None."""
    if score is None:
        return Cell(missing)
    if math.isnan(score.value):
        return Cell("undefined", reason=sanitize(score.reason or "no reason recorded"))
    metric = format_of(score)
    value, *bounds = (metric.factor * it for it in (score.value, *(score.interval or (math.nan, math.nan))))
    return number_cell(value, metric.decimals, metric.signed, tuple(bounds))


def number_cell(value: float, decimals: int = 1, sign: bool = False, bounds: tuple[float, float] | None = None) -> Cell:
    """Return a cell with a number, or a dash for NaN, and with an interval if `bounds` are given."""
    has_interval = bounds is not None and not any(map(math.isnan, (value, *bounds)))
    decimals = decimals_for_interval(bounds, decimals) if has_interval else decimals
    return Cell(number(value, decimals, sign), interval(bounds, decimals, sign) if has_interval else "")


def count_cells(*counts: int) -> list[Cell]:
    """Return a list with a table cell for each count."""
    return [Cell(f"{count:,}") for count in counts]


def p_cell(score: BiasScore | None) -> Cell:
    """Return a cell with the p-value of a score; an empty cell if the score has no p-value."""
    has_p_value = score is not None and score.p_value is not None and math.isfinite(score.p_value)
    return Cell(p_value(score.p_value) if has_p_value else "")


def score_marks(role: str, score: BiasScore | None) -> tuple[Mark, ...]:
    """Return the mark of a score, in the metric's reported unit; () if the score has no finite value."""
    if score is None or not math.isfinite(score.value):
        return ()
    factor = format_of(score).factor
    bounds = score.interval and (score.interval[0] * factor, score.interval[1] * factor)
    return (Mark(role, score.value * factor, bounds),)


def value_text(score: BiasScore | None) -> str:
    """Return "81.2 % (95 % interval 77.1 to 84.8; ideal 50)", or "undefined: " with the reason, or "not measured"."""
    if score is None or math.isnan(score.value):
        return "not measured" if score is None else undefined(score)
    metric = format_of(score)
    notes = [f"95 % interval {' to '.join(map(metric.text, score.interval))}"] if score.interval else ["no interval"]
    if score.interval and significant_direction(replace(score, p_value=None)) and not significant_direction(score):
        notes.append(f"p = {p_value(score.p_value)}")  # the interval and the test disagree
    notes += [f"ideal {metric.ideal_text}"] if metric.ideal is not None else []
    return f"{metric.full_text(score.value)} ({'; '.join(notes)})"


def significant_direction(score: BiasScore | None) -> int:
    """Return 1 if the score is significantly above the ideal, −1 if it is significantly below the ideal, else 0.

    A score is significant if the 95 % interval excludes the ideal and the p-value, if there is one, is below 0.05. The
    test is required because the bootstrap interval of a few rows is too narrow.
    """
    if score is None or score.ideal is None or score.interval is None:
        return 0
    low, high = score.interval
    return ((low > score.ideal) - (high < score.ideal)) * (score.p_value is None or score.p_value < LEVEL)


def group_label(score: BiasScore) -> str:
    """Return the values of the score's group, separated by commas, or the metric's title for all rows."""
    return ", ".join(map(str, score.group.values())).replace("_", " ") or format_of(score).title


def scores_table(
    caption: str,
    scores: Iterable[BiasScore],
    column: str,
    *,
    label: Callable[[BiasScore], str] = group_label,
    counted: str = "n",
    further: Mapping[str, Callable[[BiasScore], Cell]] | None = None,
    note: str = "",
    n_ends: int | None = None,
) -> Table:
    """Return the default table of scores: value, interval, drawing, ideal line, p, n, left out, reason.

    Scores of one unit are drawn and sorted by their values; others keep their order and have a column of ideals. More
    than two scores of one unit that are undefined for one reason are counted in the note instead of having rows.

    Args:
        column: the name of the column of labels.
        counted: the plural noun for the units that n counts.
        further: functions that return the cells of further columns, by name.
        n_ends: if there are more than 2 × `n_ends` scores, only the ones at both ends are rows.
    """
    scores = [score for score in scores if score is not None]
    metrics = [format_of(score) for score in scores]
    is_drawn = len({(it.unit, it.ideal) for it in metrics}) == 1
    if is_drawn:
        scores = sorted(scores, key=lambda score: (-value_or(score, -math.inf), label(score)))
        caption += f"; ideal {metrics[0].ideal_text}" if metrics[0].ideal is not None else ""
    alike = [it for it in scores if math.isnan(it.value)]
    if is_drawn and 2 < len(alike) < len(scores) and len({it.reason for it in alike}) == 1:
        scores = scores[: -len(alike)]
        note = f"{note} {len(alike)} more are {undefined(alike[0]).rstrip('.')}.".strip()
    if n_ends and len(scores) > 2 * n_ends:
        caption += f"; the {n_ends} largest and the {n_ends} smallest of {len(scores):,}"
        scores = [*scores[:n_ends], *scores[-n_ends:]]
    columns: dict[str, Callable[[BiasScore], Cell]] = {"value": score_cell}
    if not is_drawn:
        columns["ideal"] = lambda it: Cell(format_of(it).ideal_text if format_of(it).ideal is not None else "")
    columns |= {"p": p_cell} if any(score.p_value is not None for score in scores) else {}
    columns |= {name: cell for name, cell in (further or {}).items() if any(cell(it) != Cell("") for it in scores)}
    columns |= {counted: lambda it: Cell(f"{it.n:,}")}
    columns |= {"left out": lambda it: Cell(f"{it.n_left_out:,}")} if any(it.n_left_out for it in scores) else {}
    rows = (
        Row(
            sanitize(label(score), MAX_LABEL),
            tuple(cell(score) for cell in columns.values()),
            score_marks("before", score) if is_drawn else (),
        )
        for score in scores
    )
    ideal = metrics[0].reported_ideal if is_drawn else 0.0
    return Table(caption, (column, *columns), tuple(rows), note if scores else "", ideal)


def score_section(
    title: str,
    scores: Iterable[BiasScore],
    column: str,
    sentences: Sequence[str] = (),
    *,
    first_screen: bool = False,
    **options: Any,
) -> Section:
    """Return the default section of a list of scores: sentences and a `scores_table` for each metric.

    The tables after the first are folded. `options` are arguments of `scores_table`.
    """
    by_metric: dict[str, list[BiasScore]] = {}
    for score in scores:
        by_metric.setdefault(score.name, []).append(score)
    tables = [scores_table(format_of(rows[0]).title, rows, column, **options) for rows in by_metric.values()]
    parts = [Section(table.caption, tables=[table], folded=True) for table in tables[1:]]
    return Section(title, sentences if tables else (), tables[:1], parts=parts, first_screen=first_screen)


def score_sections(
    scores: Sequence[BiasScore],
    counted: str = "n",
    *,
    label: Callable[[BiasScore], str] = group_label,
) -> list[Section]:
    """Return the default sections of scores: of all rows, then "By …" for each set of the groups' keys.

    The smallest detectable value is in a column of its metric's table. Long tables have both ends. `label` and
    `counted` are as in `scores_table`.
    """
    detectable = {_key(score): score for score in scores if score.kind in DETECTABLE}
    columns = {}
    if detectable:
        columns["detectable"] = lambda score: score_cell(detectable.get(_key(score)), missing="")
    cuts: dict[tuple[str, ...], list[BiasScore]] = {}
    for score in scores:
        if score.kind not in DETECTABLE:
            cuts.setdefault(tuple(score.group), []).append(score)
    sections = []
    for keys in sorted(cuts, key=len):
        options = {"counted": counted, "further": columns}
        if keys:
            column = " and ".join(keys).replace("_", " ")
            options |= {"label": label, "n_ends": ROWS_AT_EACH_END, "first_screen": len(sections) < 2}
            sections.append(score_section(f"By {column}", cuts[keys], column, **options))
        else:
            table = scores_table(_all(counted), cuts[keys], "measure", **options)
            sections.append(Section(SCORES, tables=[table], first_screen=True))
    return sections


def _key(score: BiasScore) -> Key:
    return score.metric, score.form, frozenset(score.group.items())


def _all(counted: str) -> str:
    return "All rows" if counted == "n" else f"All {counted}"


@dataclass(frozen=True)
class ScoreChange:
    """A score before and after, and the paired difference; None if not measured."""

    label: str
    before: BiasScore | None
    after: BiasScore | None = None
    difference: BiasScore | None = None

    @property
    def change(self) -> float:
        """The score after minus the score before; NaN if either is undefined."""
        return value_or(self.after, math.nan) - value_or(self.before, math.nan)

    @property
    def relative_change(self) -> float:
        """The ratio after / before − 1; NaN if undefined."""
        before = value_or(self.before, math.nan)
        return self.change / before if before else math.nan


def score_changes(labels: Mapping[str, tuple[str, Form, Mapping[str, str]]], runs: Runs) -> list[ScoreChange]:
    """Return the changes with a score before or after; `labels` has each one's (metric, form, group) by its label."""
    before, after, changes = runs
    levels_before = {_key(score): score for score in before if score.kind == Kind.LEVEL}
    levels_after = {_key(score): score for score in after if score.kind == Kind.LEVEL}
    differences = {_key(score): score for score in changes if score.kind == Kind.DIFFERENCE}
    found = []
    for label, (metric, form, group) in labels.items():
        key = metric, form, frozenset(group.items())
        found.append(ScoreChange(label, levels_before.get(key), levels_after.get(key), differences.get(key)))
    return [change for change in found if change.before or change.after]


def change_table(
    caption: str,
    first_column: str,
    changes: Sequence[ScoreChange],
    *,
    counted: str = "",
    ideal: float = 0.0,
    is_plotted: bool = True,
) -> Table:
    """Return a table of scores before and after, with the difference and, if any difference has one, the p-value.

    Without a paired difference, the change has no interval. `counted` is the name of a column of n; "" for no column.
    """
    has_p_values = any(it.difference is not None and it.difference.p_value is not None for it in changes)
    rows = []
    for it in changes:
        change = score_cell(it.difference, missing="")
        if it.difference is None and math.isfinite(it.change):
            of = format_of(it.before)
            change = number_cell(of.factor * it.change, of.decimals, sign=True)
        cells = [score_cell(it.before), score_cell(it.after), change]
        cells += [p_cell(it.difference)] if has_p_values else []
        cells += (count_cells(it.difference.n) if it.difference else [Cell("")]) if counted else []
        marks = score_marks("before", it.before) + score_marks("after", it.after) if is_plotted else ()
        rows.append(Row(sanitize(it.label, MAX_LABEL), tuple(cells), marks))
    further = (*(("p",) if has_p_values else ()), *((counted,) if counted else ()))
    return Table(caption, (first_column, "before", "after", "change", *further), tuple(rows), ideal=ideal)


def change_sections(
    runs: Runs, counted: str = "n", *, label: Callable[[BiasScore], str] = group_label
) -> list[Section]:
    """Return the default sections of the scores before, the scores after, and their differences (`runs`).

    The sections are as in `score_sections`; the smallest detectable changes are in a section at the end.
    """
    cuts: dict[tuple[str, ...], dict[tuple[str, Form], list[BiasScore]]] = {}
    for score in runs[2]:
        if score.kind == Kind.DIFFERENCE:
            by_metric = cuts.setdefault(tuple(score.group), {})
            by_metric.setdefault((score.metric, score.form), []).append(score)
    sections = []
    if overall := cuts.pop((), {}):
        labels = {find_format(metric, form).title: (metric, form, {}) for metric, form in overall}
        changes = score_changes(labels, runs)
        table = change_table(_all(counted), "measure", changes, counted=counted, is_plotted=False)
        sections.append(Section(SCORES, tables=[table], first_screen=True))
    for keys in sorted(cuts, key=len):
        column = " and ".join(keys).replace("_", " ")
        tables = []
        for (metric, form), differences in cuts[keys].items():
            labels = {label(score): (metric, form, score.group) for score in differences}
            changes = score_changes(labels, runs)
            changes = sorted(changes, key=lambda it: (-value_or(it.before, -math.inf), it.label))
            level = find_format(metric, form)
            tables.append(change_table(level.title, column, changes, counted=counted, ideal=level.reported_ideal))
        parts = [Section(table.caption, tables=[table], folded=True) for table in tables[1:]]
        sections.append(Section(f"By {column}", tables=tables[:1], parts=parts, first_screen=len(sections) < 2))
    detectable = [score for score in runs[2] if score.kind in DETECTABLE and not score.group]
    table = scores_table("Detectable change", detectable, "measure", counted=counted)
    return [*sections, Section("What the comparison can show", tables=[table])]
