"""Tables and sections of scores: `score_section` for any list of scores, `change_table` for scores before and after."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from evenhand.evaluation.report.formats import find_format, format_of
from evenhand.evaluation.report.numbers import (
    decimals_for_interval,
    first_of,
    interval,
    number,
    p_value,
    sanitize,
    undefined,
    value_or,
)
from evenhand.evaluation.report.page import SCORES_TITLE, Cell, Link, Mark, Row, Section, Table
from evenhand.evaluation.score import BiasScore, Direction, Form, Kind, shown_direction, why_not_comparable

MAX_LABEL = 240
MAX_ROWS = 10  # rows of a long table
LONG = 15  # rows from which a table is long
ROWS_AT_EACH_END = 15
MAX_UNDEFINED = 5  # labels of undefined scores in a note
P_VALUE = "p-value"  # the name of a column
KEY_NAMES = {"axis": "group of people", "tuned": "use in tuning"}  # words for keys of groups, in titles and columns
DETECTABLE = (Kind.DETECTABLE, Kind.DETECTABLE_DIFFERENCE)
ScoreKey = tuple[str, Form, frozenset[tuple[str, str]]]  # metric, form and group
Runs = Sequence[Sequence[BiasScore]]  # the scores before, the scores after, and their differences


def score_cell(score: BiasScore | None, missing: str = "not measured") -> Cell:
    """Return a cell with the value and the interval of a score in the reported unit; `missing` if the score is None."""
    if score is None:
        return Cell(missing)
    if math.isnan(score.value):
        return Cell("undefined", reason=sanitize(score.reason or "no reason recorded"))
    metric = format_of(score)
    bounds = None
    if score.interval is not None:
        bounds = (metric.factor * score.interval[0], metric.factor * score.interval[1])
    return number_cell(metric.factor * score.value, metric.decimals, metric.signed, bounds)


def number_cell(value: float, decimals: int = 1, sign: bool = False, bounds: tuple[float, float] | None = None) -> Cell:
    """Return a cell with a number, or a dash for NaN, and with an interval if `bounds` are given."""
    if bounds is None or math.isnan(value) or math.isnan(bounds[0]) or math.isnan(bounds[1]):
        return Cell(number(value, decimals, sign))
    decimals = decimals_for_interval(bounds, decimals)
    return Cell(number(value, decimals, sign), interval(bounds, decimals, sign))


def count_cells(*counts: int) -> list[Cell]:
    """Return a list with a table cell for each count."""
    return [Cell(f"{count:,}") for count in counts]


def p_cell(score: BiasScore | None) -> Cell:
    """Return a cell with the p-value of a score; an empty cell if the score has no p-value."""
    if score is None or score.p_value is None or math.isnan(score.p_value):
        return Cell("")
    return Cell(p_value(score.p_value))


def score_marks(role: str, score: BiasScore | None) -> tuple[Mark, ...]:
    """Return the mark of a score, in the metric's reported unit; () if the score has no finite value."""
    if score is None or not math.isfinite(score.value):
        return ()
    factor = format_of(score).factor
    bounds = None
    if score.interval is not None:
        bounds = (score.interval[0] * factor, score.interval[1] * factor)
    return (Mark(role, score.value * factor, bounds),)


def value_text(score: BiasScore | None) -> str:
    """Return "81.2 % (95 % interval 77.1 to 84.8; ideal 50)", or "undefined: " with the reason, or "not measured"."""
    if score is None or math.isnan(score.value):
        return "not measured" if score is None else undefined(score)
    metric = format_of(score)
    notes = ["no interval"]
    if score.interval is not None:
        low, high = score.interval
        # As many decimals as in a table: else a small score and its interval read as 0.
        decimals = decimals_for_interval((metric.factor * low, metric.factor * high), metric.decimals)
        metric = replace(metric, decimals=decimals)
        notes = [f"95 % interval {metric.text(low)} to {metric.text(high)}"]
        by_interval = shown_direction(replace(score, p_value=None))
        is_shown = by_interval in (Direction.ABOVE, Direction.BELOW)
        if score.p_value is not None and is_shown and shown_direction(score) != by_interval:
            notes.append(f"p = {p_value(score.p_value)}")  # the interval and the test disagree
    if metric.ideal is not None:
        notes.append(f"ideal {metric.ideal_text}")
    return f"{metric.full_text(score.value)} ({'; '.join(notes)})"


def group_label(score: BiasScore) -> str:
    """Return the values of the score's group, separated by commas, or the metric's title for all rows."""
    return ", ".join(map(str, score.group.values())).replace("_", " ") or format_of(score).title


def scores_table(
    caption: str,
    scores: Iterable[BiasScore | None],
    column: str,
    *,
    label: Callable[[BiasScore], str] = group_label,
    further: Mapping[str, Callable[[BiasScore], Cell]] | None = None,
    note: str = "",
    max_rows: int | None = None,
) -> Table:
    """Return the default table of scores: value, interval, drawing, ideal line, p-value, n, left out.

    Scores of one unit are drawn and sorted by their values; others keep their order and have a column of ideals. The
    note names the scores that are undefined, with the reasons; they have no rows.

    Args:
        column: the name of the column of labels.
        further: functions that return the cells of further columns, by name.
        max_rows: if there are more than LONG scores, the number of rows, of the scores furthest from the ideal.
    """
    given = [score for score in scores if score is not None]
    undefined_scores = [score for score in given if math.isnan(score.value)]
    shown = [score for score in given if not math.isnan(score.value)]
    notes = [note] if note and given else []
    notes += _undefined_notes([label(score) for score in undefined_scores], undefined_scores)
    formats = [format_of(score) for score in shown]
    is_drawn = len({(each.unit, each.ideal) for each in formats}) == 1
    ideal = formats[0].ideal if is_drawn else None
    if ideal is not None:
        caption += f"; ideal {formats[0].ideal_text}"
    rest = None
    if max_rows is not None and len(shown) > max(max_rows, LONG):
        center = 0.0 if ideal is None else ideal
        caption += f"; the {max_rows} furthest from {formats[0].factor * center:g} of {len(shown):,}"
        shown = sorted(shown, key=lambda score: (-abs(score.value - center), label(score)))[:max_rows]
        rest = Link("All are in scores.csv.", "scores.csv")
    if is_drawn:
        shown = sorted(shown, key=lambda score: (-score.value, label(score)))
    columns = _score_columns(shown, is_drawn, further or {})
    rows = []
    for score in shown:
        cells = tuple(cell(score) for cell in columns.values())
        marks = score_marks("before", score) if is_drawn else ()
        rows.append(Row(sanitize(label(score), MAX_LABEL), cells, marks))
    return Table(
        caption=caption,
        columns=(column, *columns),
        rows=tuple(rows),
        note=" ".join(notes),
        ideal=formats[0].reported_ideal if is_drawn else 0.0,
        link=rest,
    )


def _score_columns(
    scores: Sequence[BiasScore], is_drawn: bool, further: Mapping[str, Callable[[BiasScore], Cell]]
) -> dict[str, Callable[[BiasScore], Cell]]:
    """Return the columns of a table of scores by name, without columns that would be nearly empty."""
    columns: dict[str, Callable[[BiasScore], Cell]] = {"value": score_cell}
    if not is_drawn:
        columns["ideal"] = _ideal_cell
    if 2 * sum(score.p_value is not None for score in scores) > len(scores):
        columns[P_VALUE] = p_cell
    for name, cell in further.items():
        if any(cell(score) != Cell("") for score in scores):
            columns[name] = cell
    heading = n_heading(scores)
    columns[heading] = lambda score: n_cell(score, heading)
    if any(score.n_left_out for score in scores):
        columns["left out"] = lambda score: Cell(f"{score.n_left_out:,}")
    return columns


def n_heading(scores: Iterable[BiasScore]) -> str:
    """Return the heading of a column of n: the noun of what all scores count, or "n" if they count several things."""
    nouns = {score.n_of for score in scores}
    return (nouns.pop() if len(nouns) == 1 else "") or "n"


def n_cell(score: BiasScore | None, heading: str) -> Cell:
    """Return the cell of a score's n, with its noun if the heading of the column is another word."""
    if score is None:
        return Cell("")
    noun = "" if score.n_of == heading else f" {score.n_of}"
    return Cell(f"{score.n:,}{noun}".rstrip())


def _ideal_cell(score: BiasScore) -> Cell:
    metric = format_of(score)
    return Cell("" if metric.ideal is None else metric.ideal_text)


def _undefined_notes(labels: Sequence[str], scores: Sequence[BiasScore]) -> list[str]:
    """Return a sentence for each reason why scores are undefined, with the labels of the first of these scores."""
    by_reason: dict[str, list[str]] = {}
    for label, score in zip(labels, scores, strict=True):
        reason = sanitize(score.reason or "no reason recorded").rstrip(".")
        by_reason.setdefault(reason, []).append(sanitize(label, MAX_LABEL))
    notes = []
    for reason, names in by_reason.items():
        notes.append(f"Undefined for {first_of(names, MAX_UNDEFINED)}: {reason}.")
    return notes


def score_section(
    title: str,
    scores: Iterable[BiasScore | None],
    column: str,
    sentences: Sequence[str] = (),
    *,
    first_screen: bool = False,
    label: Callable[[BiasScore], str] = group_label,
    further: Mapping[str, Callable[[BiasScore], Cell]] | None = None,
    max_rows: int | None = None,
) -> Section:
    """Return the default section of a list of scores: sentences and a `scores_table` for each metric.

    The tables after the first are folded. A metric without any defined score has no table if another metric has one.
    `label`, `further` and `max_rows` are as in `scores_table`.
    """
    by_metric: dict[str, list[BiasScore]] = {}
    for score in scores:
        if score is not None:
            by_metric.setdefault(score.name, []).append(score)
    tables = []
    for of_metric in by_metric.values():
        title_of_metric = format_of(of_metric[0]).title
        tables.append(
            scores_table(
                title_of_metric,
                of_metric,
                column,
                label=label,
                further=further,
                max_rows=max_rows,
            )
        )
    tables = [table for table in tables if table.rows] or tables[:1]
    parts = [Section(table.caption, tables=[table], folded=True) for table in tables[1:]]
    return Section(title, sentences if tables else (), tables[:1], parts=parts, first_screen=first_screen)


def score_sections(
    scores: Sequence[BiasScore],
    *,
    label: Callable[[BiasScore], str] = group_label,
) -> list[Section]:
    """Return the default sections of scores: of all rows, then "By …" for each set of the groups' keys.

    The smallest detectable value is in a column of its metric's table. Long tables have the scores furthest from the
    ideal. `label` is as in `scores_table`.
    """
    detectable = {_key(score): score for score in scores if score.kind in DETECTABLE}
    columns: dict[str, Callable[[BiasScore], Cell]] = {}
    if detectable:
        columns["detectable"] = lambda score: score_cell(detectable.get(_key(score)), missing="")
    cuts: dict[tuple[str, ...], list[BiasScore]] = {}
    for score in scores:
        if score.kind not in DETECTABLE:
            cuts.setdefault(tuple(score.group), []).append(score)
    sections: list[Section] = []
    for keys in sorted(cuts, key=len):
        if not keys:
            table = scores_table(_all(cuts[keys]), cuts[keys], "measure", further=columns)
            sections.append(Section(SCORES_TITLE, tables=[table], first_screen=True))
            continue
        section = score_section(
            f"By {keys_text(keys)}",
            cuts[keys],
            keys_text(keys),
            first_screen=len(sections) < 2,
            label=label,
            further=columns,
            max_rows=MAX_ROWS,
        )
        sections.append(section)
    return sections


def keys_text(keys: Sequence[str]) -> str:
    """Return the names of columns as words, such as "group of people" for an axis."""
    return " and ".join(KEY_NAMES.get(key, key.replace("_", " ")) for key in keys)


def _key(score: BiasScore) -> ScoreKey:
    return score.metric, score.form, frozenset(score.group.items())


def _all(scores: Iterable[BiasScore]) -> str:
    noun = n_heading(scores)
    return "All rows" if noun == "n" else f"All {noun}"


@dataclass(frozen=True)
class ScoreChange:
    """A score before and after, and the paired difference; None if not measured."""

    label: str
    before: BiasScore | None
    after: BiasScore | None = None
    difference: BiasScore | None = None

    @property
    def is_defined(self) -> bool:
        """Whether the score before, the score after or the difference has a value."""
        return any(
            score is not None and math.isfinite(score.value) for score in (self.before, self.after, self.difference)
        )

    @property
    def why_no_change(self) -> str:
        """Why the score after minus the score before would mean nothing; "" if nothing says so."""
        if self.before is None or self.after is None:
            return ""
        return why_not_comparable(self.before, self.after)

    @property
    def change(self) -> float:
        """The score after minus the score before; NaN if either is undefined, or if they are not comparable."""
        if self.why_no_change:
            return math.nan
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
    with_n: bool = False,
    ideal: float = 0.0,
    is_plotted: bool = True,
) -> Table:
    """Return a table of scores before and after, with the difference and, if most differences have one, the p-value.

    Without a paired difference, the change has no interval. If `with_n`, there is a column of the n of the differences.
    The note names the scores that are undefined before and after; they have no rows.
    """
    shown = [change for change in changes if change.is_defined]
    with_p_value = [change for change in shown if change.difference and change.difference.p_value is not None]
    has_p_values = 2 * len(with_p_value) > len(shown)
    columns = [first_column, "before", "after", "change"]
    if has_p_values:
        columns.append(P_VALUE)
    heading = n_heading(change.difference for change in shown if change.difference)
    if with_n:
        columns.append(heading)
    rows = []
    for change in shown:
        cells = [score_cell(change.before), score_cell(change.after), _difference_cell(change)]
        if has_p_values:
            cells.append(p_cell(change.difference))
        if with_n:
            cells.append(n_cell(change.difference, heading))
        marks: tuple[Mark, ...] = ()
        if is_plotted:
            marks = score_marks("before", change.before) + score_marks("after", change.after)
        rows.append(Row(sanitize(change.label, MAX_LABEL), tuple(cells), marks))
    undefined_scores = {}
    for change in changes:
        score = change.before or change.after or change.difference
        if score is not None and not change.is_defined:
            undefined_scores[change.label] = score
    notes = _undefined_notes(list(undefined_scores), list(undefined_scores.values()))
    return Table(caption, tuple(columns), tuple(rows), " ".join(notes), ideal=ideal)


def _difference_cell(change: ScoreChange) -> Cell:
    if change.difference is None and change.why_no_change:
        return Cell("undefined", reason=sanitize(change.why_no_change))
    if change.difference is None and change.before is not None and math.isfinite(change.change):
        metric = format_of(change.before)
        return number_cell(metric.factor * change.change, metric.decimals, sign=True)
    return score_cell(change.difference, missing="")


def change_sections(runs: Runs, *, label: Callable[[BiasScore], str] = group_label) -> list[Section]:
    """Return the default sections of the scores before, the scores after, and their differences (`runs`).

    The sections are as in `score_sections`; the smallest detectable changes are in a section at the end.
    """
    _, _, all_changes = runs
    cuts: dict[tuple[str, ...], dict[tuple[str, Form], list[BiasScore]]] = {}
    for score in all_changes:
        if score.kind == Kind.DIFFERENCE:
            by_metric = cuts.setdefault(tuple(score.group), {})
            by_metric.setdefault((score.metric, score.form), []).append(score)
    sections = []
    overall = cuts.pop((), {})
    if overall:
        labels = {find_format(metric, form).title: (metric, form, {}) for metric, form in overall}
        changes = score_changes(labels, runs)
        caption = _all(score for scores in overall.values() for score in scores)
        table = change_table(caption, "measure", changes, with_n=True, is_plotted=False)
        sections.append(Section(SCORES_TITLE, tables=[table], first_screen=True))
    for keys in sorted(cuts, key=len):
        tables = []
        for (metric, form), differences in cuts[keys].items():
            labels = {label(score): (metric, form, score.group) for score in differences}
            changes = score_changes(labels, runs)
            changes = sorted(changes, key=lambda change: (-value_or(change.before, -math.inf), change.label))
            level = find_format(metric, form)
            table = change_table(level.title, keys_text(keys), changes, with_n=True, ideal=level.reported_ideal)
            tables.append(table)
        tables = [table for table in tables if table.rows] or tables[:1]
        parts = [Section(table.caption, tables=[table], folded=True) for table in tables[1:]]
        is_first = len(sections) < 2
        sections.append(Section(f"By {keys_text(keys)}", tables=tables[:1], parts=parts, first_screen=is_first))
    detectable = [score for score in all_changes if score.kind in DETECTABLE and not score.group]
    table = scores_table("Detectable change", detectable, "measure")
    return [*sections, Section("What the comparison can show", tables=[table])]
