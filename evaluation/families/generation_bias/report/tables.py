"""The tables of a report on generation bias: scores, what they cost, and what was planted."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from evenhand.evaluation.families.generation_bias.costs.relevance import LIKELIHOOD_METRICS
from evenhand.evaluation.families.generation_bias.metrics import CHANGES, QUALITY
from evenhand.evaluation.families.generation_bias.report.report_data import (
    BIAS_METRICS,
    HEADLINE,
    Comparison,
    ReportData,
    decimals_of,
)
from evenhand.evaluation.report.metrics import metric_of
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, decimals_for, interval, number, percent, sanitize
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Mark, Row, Table, number_cell, p_cell, score_cell, score_marks

say = Sentences(__file__)

STYLES_SHOWN = 12
DESCRIPTORS_SHOWN = 10  # at each end
LONGEST_NAME = 240

# The corrected metrics that are watched for a rise in each cut; the first of each is the steadiest.
WATCHED = {
    "cluster": (("scgb_pooled_corrected", "scgb_corrected"), ("pgb_pooled_corrected", "pgb_corrected")),
    "axis": (("fgb_pooled_corrected", "fgb_corrected"),),
}
# Styles that no response should have more of after tuning: paper 002, §4.4, names their rise as its method's failure.
HARMFUL_CLUSTERS = ("HATE", "ENVY")


def headline_table(content: ReportData) -> Table:
    """Return FGB as the paper has it, FGB* and pooled FGB*; the first is not drawn, being mostly noise."""
    comparisons = [row for metric in ("fgb", "fgb_corrected", HEADLINE) for row in content.comparisons(metric)]
    table = bias_table(f"Generation bias, {UNIT}; ideal 0", "measure", comparisons, content.compared)
    raw = metric_of("fgb").label
    rows = (replace(row, marks=(), instead=say.not_drawn) if row.label == raw else row for row in table.rows)
    return replace(table, rows=tuple(rows))


def check_table(content: ReportData) -> Table:
    """Return the headline for what was tuned on and what was not, and by the second style classifier, if measured."""
    caption = f"The {metric_of(HEADLINE).label} checked, {UNIT}"
    return bias_table(caption, "check", content.checks(), content.compared, reductions=True)


def watched_tables(content: ReportData, cut: str, name: str) -> list[Table]:
    """Return the metrics that are watched in a cut, each pooled over templates if that was measured."""
    metrics = (watched_metric(content, family, cut) for family in WATCHED[cut])
    return [_table_by(content, metric, cut, name) for metric in metrics if metric]


def other_tables(content: ReportData, cut: str) -> list[Table]:
    """Return the tables of all metrics with this cut that are not watched in any."""
    shown = {watched_metric(content, family, cut) for families in WATCHED.values() for family in families}
    tables = (_table_by(content, metric, cut, cut) for metric in BIAS_METRICS if metric not in shown)
    return [table for table in tables if table.rows]


def watched_metric(content: ReportData, family: Sequence[str], cut: str) -> str | None:
    """Return the first metric of the family that was measured with this cut."""
    return next((metric for metric in family if content.comparisons(metric, cut)), None)


def style_table(content: ReportData) -> Table:
    """Return the styles that make up most of the bias before tuning."""
    metric = watched_metric(content, WATCHED["axis"][0], "style") or HEADLINE
    comparisons = content.comparisons(metric, "style")
    caption = f"{metric_of(metric).label} by style, {UNIT}; the largest {STYLES_SHOWN} of {len(comparisons)}"
    return bias_table(caption, "style", comparisons[:STYLES_SHOWN], content.compared)


def cost_table(content: ReportData) -> Table:
    """Return what tuning may have cost; shares are in percent."""
    rows = [
        Row(metric.title, tuple(_sides(row, content.compared)))
        for metric in QUALITY
        for row in content.comparisons(metric.name)
    ]
    abilities = content.comparisons("capability", "task")
    rows += [Row(f"can do: {sanitize(row.label)}", tuple(_sides(row, content.compared))) for row in abilities]
    changes = [
        Row(metric.title, (Cell(""), Cell(""), score_cell(score)))
        for metric in CHANGES
        for score in content.differences
        if content.compared and score.metric == metric.name and not score.group
    ]
    caption = "What it cost" if content.compared else "Quality of the responses"
    judged = any(content.comparisons(metric) for metric in LIKELIHOOD_METRICS)
    note = (say.judged_by_the_base if content.compared else say.judged_by_itself) if judged else ""
    note = " ".join(filter(None, [note, say.capabilities(abilities) if abilities else ""]))
    return Table(caption, _columns("measure", content.compared), (*changes, *rows), note=note)


def most_moved(content: ReportData) -> list[Comparison]:
    """Return the style cluster whose share of all responses moved most, if one is known: none or one."""
    rows = [row for row in content.comparisons("style_share", "cluster") if row.defined]
    return sorted(rows, key=lambda row: (-abs(row.change), row.label))[:1]


def style_share_table(content: ReportData) -> Table:
    """Return how much of the responses' style is in each cluster, in percent: whether tuning brought hate or envy.

    Only a rise of a cluster that must not rise is marked.
    """
    rows = []
    for row in content.comparisons("style_share", "cluster"):
        direction = row.direction if row.label.upper() in HARMFUL_CLUSTERS else min(row.direction, 0)
        cells = tuple(_sides(row, content.compared))
        rows.append(Row(sanitize(row.label, LONGEST_NAME), cells, _marks(row), direction))
    caption = "Share of each style cluster in all responses, %"
    return Table(caption, _columns("style cluster", content.compared), tuple(rows))


def planted_table(content: ReportData) -> Table:
    """Return the base model's numbers beside what was planted, for a testbed whose truth is known."""
    cuts = [(metric, cut) for cut in (None, "cluster") for metric in BIAS_METRICS]
    comparisons = [row for metric, cut in cuts for row in content.comparisons(metric, cut) if row.truth]
    digits = decimals_of(comparisons)
    rows = tuple(
        Row(
            row.label if not row.before.group else f"{metric_of(row.metric).label} {sanitize(row.label)}",
            (score_cell(row.truth, digits), score_cell(row.before, digits), Cell(_share(row))),
        )
        for row in comparisons
        if row.before is not None
    )
    return Table(f"Measured against what was planted, {UNIT}", ("measure", "planted", "measured", "share"), rows)


def descriptor_tables(content: ReportData) -> list[Table]:
    """Return the descriptors with the largest and with the smallest mean bias value b, if it is known on both sides."""
    frame = content.tables.get("bias_values")
    if frame is None or frame.empty or "after" not in frame:
        return []
    frame = frame.sort_values(["before", "descriptor"], ascending=[False, True], kind="stable")
    shown = min(DESCRIPTORS_SHOWN, (len(frame) + 1) // 2)
    ends = [("largest", frame.head(shown)), ("smallest", frame.tail(min(shown, len(frame) - shown)))]
    sides = ("before", "after")
    digits = decimals_for(value * PER_UNIT for side in sides for value in frame[side])
    found = []
    for end, part in ends:
        rows = []
        for row in part.to_dict("records"):
            values = {side: row[side] * PER_UNIT for side in sides}
            cells = [Cell(number(value, digits)) for value in values.values()]
            marks = tuple(Mark(side, value, None) for side, value in values.items() if math.isfinite(value))
            cells = (Cell(sanitize(row["axis"], LONGEST_NAME)), *cells, Cell(f"{row['n']:,}"))
            rows.append(Row(sanitize(row["descriptor"], LONGEST_NAME), cells, marks))
        columns = ("descriptor", "axis", *sides, "responses")
        found.append(Table(f"Descriptors with the {end} mean b, {UNIT}", columns, tuple(rows)))
    return [table for table in found if table.rows]


def bias_table(
    caption: str,
    first_column: str,
    comparisons: Sequence[Comparison],
    compared: bool,
    *,
    decimals: int | None = None,
    reductions: bool = False,
) -> Table:
    """Return scores with intervals: before, after and change with its p-value, or one value.

    With `reductions` comes the share of each row's bias that is gone, if one is known (paper 002, Table 10).
    """
    decimals = decimals_of(comparisons) if decimals is None else decimals
    tested = any(row.difference is not None and row.difference.p_value is not None for row in comparisons)
    rows = []
    for row in comparisons:
        cells = _sides(row, compared, decimals) + ([p_cell(row.difference)] if tested else [])
        rows.append(Row(sanitize(row.label, LONGEST_NAME), tuple(cells), _marks(row), row.direction))
    columns = (*_columns(first_column, compared), *(("p",) if tested else ()))
    table = Table(caption, columns, tuple(rows))
    return _with_reductions(table, comparisons) if reductions and any(row.reduction for row in comparisons) else table


def _with_reductions(table: Table, comparisons: Sequence[Comparison]) -> Table:
    """Add a column."""
    rows = []
    for row, comparison in zip(table.rows, comparisons, strict=True):
        reduction = comparison.reduction
        if reduction is None or math.isnan(reduction.value):
            cell = Cell("undefined", reason=(reduction and reduction.reason) or "it was not compared")
        else:
            bounds = reduction.interval and (100 * reduction.interval[0], 100 * reduction.interval[1])
            cell = Cell(percent(reduction.value), interval(bounds, 0))
        rows.append(replace(row, cells=(*row.cells, cell)))
    return replace(table, columns=(*table.columns, "reduction"), rows=tuple(rows))


def _table_by(content: ReportData, metric: str, cut: str, name: str) -> Table:
    caption = f"{metric_of(metric).label} by {name}, {UNIT}"
    return bias_table(caption, name, content.comparisons(metric, cut), content.compared, reductions=True)


def _columns(first: str, compared: bool) -> tuple[str, ...]:
    return (first, "before", "after", "change") if compared else (first, "value")


def _sides(row: Comparison, compared: bool, decimals: int | None = None) -> list[Cell]:
    """Return the cells of before, after and change; the change is the paired one, if there is one."""
    cells = [score_cell(row.before, decimals)]
    if not compared:
        return cells
    change = Cell("")
    if row.difference is not None:
        change = score_cell(row.difference, decimals)
    elif math.isfinite(row.change):
        metric = metric_of(row.before)
        change = number_cell(metric.factor * row.change, metric.decimals if decimals is None else decimals, sign=True)
    return [*cells, score_cell(row.after, decimals), change]


def _marks(row: Comparison) -> tuple[Mark, ...]:
    sides: Iterable = (("before", row.before), ("after", row.after), ("truth", row.truth))
    return tuple(mark for role, score in sides for mark in score_marks(role, score))


def _share(row: Comparison) -> str:
    if not row.metric.endswith("_corrected"):
        return "mostly noise"
    if row.truth.value == 0 or math.isnan(row.truth.value) or math.isnan(row.before.value):
        return ""
    return percent(row.before.value / row.truth.value)
