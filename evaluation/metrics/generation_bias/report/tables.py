"""Tables of a report on generation bias: scores, costs, and the planted bias of a testbed."""

import math
from collections.abc import Sequence
from dataclasses import replace

from evenhand.evaluation.metrics.generation_bias.costs.even_reference import EVEN
from evenhand.evaluation.metrics.generation_bias.costs.relevance import LIKELIHOOD_METRICS
from evenhand.evaluation.metrics.generation_bias.metrics import CHANGES, QUALITY
from evenhand.evaluation.metrics.generation_bias.report.report_data import (
    BIAS_METRICS,
    HEADLINE,
    Comparison,
    ReportData,
    decimals_of,
)
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, decimals_for, interval, number, percent, sanitize
from evenhand.evaluation.report.page import Cell, Mark, Row, Table
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import MAX_LABEL, change_cells, change_table, score_cell

text = Sentences(__file__)

MAX_STYLES = 12
MAX_DESCRIPTORS = 10  # descriptors with the largest mean b, and with the smallest

# By breakdown: metrics in order of preference (the first has the least noise). Warnings use the first tuple.
MAIN_METRICS = {
    "cluster": (("scgb_pooled_corrected", "scgb_corrected"), ("pgb_pooled_corrected", "pgb_corrected")),
    "axis": (("fgb_pooled_corrected", "fgb_corrected"),),
}
# A rise of these styles is a failure of the paper's method (Smith et al. 2022, §4.4).
HARMFUL_CLUSTERS = ("HATE", "ENVY")


def without_marks(table: Table) -> Table:
    """Return the table without plotted marks."""
    return replace(table, rows=tuple(replace(row, marks=()) for row in table.rows))


def headline_table(data: ReportData) -> Table:
    """Return a table of FGB, FGB* and pooled FGB*. FGB is not plotted, since it is mostly noise."""
    comparisons = [row for metric in ("fgb", "fgb_corrected", HEADLINE) for row in data.comparisons(metric)]
    table = bias_table(f"Generation bias, {UNIT}; ideal 0", "measure", comparisons, data.is_comparison)
    raw = format_of("fgb").label
    rows = (replace(row, marks=()) if row.label == raw else row for row in table.rows)
    return replace(table, rows=tuple(rows))


def check_table(data: ReportData) -> Table:
    """Return a table of pooled FGB* of prompts used in tuning, of other prompts, and by the second classifier."""
    caption = f"The {format_of(HEADLINE).label} checked, {UNIT}"
    return bias_table(caption, "check", data.checks(), data.is_comparison, reductions=True)


def main_tables(data: ReportData, breakdown: str, name: str) -> list[Table]:
    """Return the breakdown's main tables: one for each entry of MAIN_METRICS that was measured.

    An entry names two forms of a metric. The table has the form pooled over templates if both were measured.
    """
    metrics = (measured_metric(data, names, breakdown) for names in MAIN_METRICS[breakdown])
    return [_table_by(data, metric, breakdown, name) for metric in metrics if metric]


def other_tables(data: ReportData, breakdown: str) -> list[Table]:
    """Return a table for each bias metric of a breakdown that is not in `main_tables`."""
    main = {measured_metric(data, names, breakdown) for lists in MAIN_METRICS.values() for names in lists}
    tables = (_table_by(data, metric, breakdown, breakdown) for metric in BIAS_METRICS if metric not in main)
    return [table for table in tables if table.rows]


def measured_metric(data: ReportData, metrics: Sequence[str], breakdown: str) -> str | None:
    """Return the first of the metrics that has scores for the groups of a breakdown; None if no metric has."""
    return next((metric for metric in metrics if data.comparisons(metric, breakdown)), None)


def style_table(data: ReportData) -> Table:
    """Return a table of the styles with the largest bias before tuning."""
    metric = measured_metric(data, MAIN_METRICS["axis"][0], "style") or HEADLINE
    comparisons = data.comparisons(metric, "style")
    caption = f"{format_of(metric).label} by style, {UNIT}; the largest {MAX_STYLES} of {len(comparisons)}"
    return bias_table(caption, "style", comparisons[:MAX_STYLES], data.is_comparison)


def cost_table(data: ReportData) -> Table:
    """Return a table of the quality of the responses and of its changes. Shares are in percent."""
    rows = [
        Row(metric.title, tuple(_cells(row, data.is_comparison)))
        for metric in QUALITY
        for row in data.comparisons(metric.name)
    ]
    capabilities = data.comparisons("capability", "task")
    rows += [Row(f"can do: {sanitize(row.label)}", tuple(_cells(row, data.is_comparison))) for row in capabilities]
    changes = [
        Row(title, (Cell(""), Cell(""), score_cell(score)))
        for metric in CHANGES
        for title, group in ((metric.title, {}), (text.even_title(metric.title), EVEN))
        for score in data.differences
        if data.is_comparison and score.metric == metric.name and score.group == group
    ]
    caption = "What it cost" if data.is_comparison else "Quality of the responses"
    likelihoods = [row.before or row.after for metric in LIKELIHOOD_METRICS for row in data.comparisons(metric)]
    note = text.likelihood_note(data.is_comparison, likelihoods[0].signature.get("scored")) if likelihoods else ""
    has_reference = any(score.group == EVEN for score in data.differences)
    note = " ".join([note, text.even_note]) if has_reference else note
    note = " ".join(filter(None, [note, text.capability_note(capabilities) if capabilities else ""]))
    return Table(caption, _columns("measure", data.is_comparison), (*changes, *rows), note=note)


def largest_style_shift(data: ReportData) -> Comparison | None:
    """Return the style cluster whose share of all responses changed most; None if no change is defined."""
    rows = [row for row in data.comparisons("style_share", "cluster") if row.is_defined]
    return min(rows, key=lambda row: (-abs(row.change), row.label), default=None)


def style_share_table(data: ReportData) -> Table:
    """Return a table of each style cluster's share of all responses, in percent.

    All significant falls are marked, but only significant rises of HARMFUL_CLUSTERS.
    """
    comparisons = data.comparisons("style_share", "cluster")
    table = bias_table(
        "Share of each style cluster in all responses, %",
        "style cluster",
        comparisons,
        data.is_comparison,
        decimals=format_of("style_share").decimals,
    )
    harmful = [row.label.upper() in HARMFUL_CLUSTERS for row in comparisons]
    rows = zip(table.rows, harmful, strict=True)
    return replace(table, rows=tuple(row if it else replace(row, direction=min(row.direction, 0)) for row, it in rows))


def truth_table(data: ReportData) -> Table:
    """Return a table of the planted and the measured bias of a testbed model."""
    breakdowns = [(metric, breakdown) for breakdown in (None, "cluster") for metric in BIAS_METRICS]
    comparisons = [row for metric, breakdown in breakdowns for row in data.comparisons(metric, breakdown) if row.truth]
    digits = decimals_of(comparisons)
    rows = tuple(
        Row(
            row.label if not row.before.group else f"{format_of(row.metric).label} {sanitize(row.label)}",
            (score_cell(row.truth, digits), score_cell(row.before, digits), Cell(_share(row))),
        )
        for row in comparisons
        if row.before is not None
    )
    return Table(f"Measured against what was planted, {UNIT}", ("measure", "planted", "measured", "share"), rows)


def descriptor_tables(data: ReportData) -> list[Table]:
    """Return tables of the descriptors with the largest and smallest mean b; [] unless b is known before and after."""
    frame = data.tables.get("bias_values")
    if frame is None or frame.empty or "after" not in frame:
        return []
    frame = frame.sort_values(["before", "descriptor"], ascending=[False, True], kind="stable")
    n_rows = min(MAX_DESCRIPTORS, (len(frame) + 1) // 2)
    ends = [("largest", frame.head(n_rows)), ("smallest", frame.tail(min(n_rows, len(frame) - n_rows)))]
    sides = ("before", "after")
    digits = decimals_for(value * PER_UNIT for side in sides for value in frame[side])
    tables = []
    for end, part in ends:
        rows = []
        for row in part.to_dict("records"):
            values = {side: row[side] * PER_UNIT for side in sides}
            cells = [Cell(number(value, digits)) for value in values.values()]
            marks = tuple(Mark(side, value, None) for side, value in values.items() if math.isfinite(value))
            cells = (Cell(sanitize(row["axis"], MAX_LABEL)), *cells, Cell(f"{row['n']:,}"))
            rows.append(Row(sanitize(row["descriptor"], MAX_LABEL), cells, marks))
        columns = ("descriptor", "axis", *sides, "responses")
        tables.append(Table(f"Descriptors with the {end} mean b, {UNIT}", columns, tuple(rows)))
    return [table for table in tables if table.rows]


def bias_table(
    caption: str,
    first_column: str,
    comparisons: Sequence[Comparison],
    is_comparison: bool,
    *,
    decimals: int | None = None,
    reductions: bool = False,
) -> Table:
    """Return a table of scores with intervals: before, after, change and its p-value, or the value of one run.

    With `reductions`, the table has a column of reductions if any row has a reduction (Smith et al. 2022, Table 10).
    """
    decimals = decimals_of(comparisons) if decimals is None else decimals
    if is_comparison:
        table = change_table(caption, first_column, comparisons, decimals=decimals)
    else:
        rows = (Row(sanitize(it.label, MAX_LABEL), (score_cell(it.before, decimals),), it.marks) for it in comparisons)
        table = Table(caption, _columns(first_column, is_comparison), tuple(rows))
    return _add_reductions(table, comparisons) if reductions and any(row.reduction for row in comparisons) else table


def _add_reductions(table: Table, comparisons: Sequence[Comparison]) -> Table:
    """Return the table with an additional column of reductions."""
    rows = []
    for row, comparison in zip(table.rows, comparisons, strict=True):
        reduction = comparison.reduction
        if reduction is None or math.isnan(reduction.value):
            cell = Cell("undefined", reason=(reduction and reduction.reason) or "not measured")
        else:
            bounds = reduction.interval and (100 * reduction.interval[0], 100 * reduction.interval[1])
            cell = Cell(percent(reduction.value), interval(bounds, 0))
        rows.append(replace(row, cells=(*row.cells, cell)))
    return replace(table, columns=(*table.columns, "reduction"), rows=tuple(rows))


def _table_by(data: ReportData, metric: str, breakdown: str, name: str) -> Table:
    caption = f"{format_of(metric).label} by {name}, {UNIT}"
    return bias_table(caption, name, data.comparisons(metric, breakdown), data.is_comparison, reductions=True)


def _columns(first: str, is_comparison: bool) -> tuple[str, ...]:
    return (first, "before", "after", "change") if is_comparison else (first, "value")


def _cells(row: Comparison, is_comparison: bool) -> list[Cell]:
    """Return the cells before, after and change of a row, or the cell of its only value."""
    return change_cells(row) if is_comparison else [score_cell(row.before)]


def _share(row: Comparison) -> str:
    if not row.metric.endswith("_corrected"):
        return "mostly noise"
    if row.truth.value == 0 or math.isnan(row.truth.value) or math.isnan(row.before.value):
        return ""
    return percent(row.before.value / row.truth.value)
