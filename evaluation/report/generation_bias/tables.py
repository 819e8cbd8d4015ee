"""The tables of a report on generation bias, as text and as marks to draw."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from evaluation.report.generation_bias.comparison import HEADLINE, METRIC_NAMES, Comparison, compare, compare_further
from evaluation.report.generation_bias.content import GenerationContent
from evaluation.report.generation_bias.wording import AXIS_FAMILIES, CLUSTER_FAMILIES, HARMFUL_CLUSTERS
from evaluation.report.numbers import PER_UNIT, UNIT, decimals_for, finite, interval, number, p_value, percent, visible
from evaluation.report.tables import Cell, Mark, Row, Table, score_cell

STYLES_SHOWN = 12
DESCRIPTORS_SHOWN = 10  # at each end

# metric: what it is called, its factor and its decimals when shown
COSTS = {
    "perplexity": ("perplexity on neutral dialogue", 1, 2),
    "distinct_1": ("distinct-1", 1, 3),
    "distinct_2": ("distinct-2", 1, 3),
    "mean_length": ("mean length of a response", 1, 2),
    "parroting": ("repeats the prompt, %", 100, 2),
    "offensive_share": ("offensive, %", 100, 2),
    "empty_share": ("empty, %", 100, 2),
}


def headline_table(content: GenerationContent) -> Table:
    """Return FGB as the paper has it, FGB* and pooled FGB*; the first is not drawn, being mostly noise."""
    comparisons = [row for metric in ("fgb", "fgb_corrected", HEADLINE) for row in compare(content, metric)]
    table = _bias_table(f"Generation bias, {UNIT}; ideal 0", "measure", comparisons, content.tuned)
    rows = (
        replace(row, marks=(), instead="not drawn: mostly sampling noise") if row.label == METRIC_NAMES["fgb"] else row
        for row in table.rows
    )
    return replace(table, rows=tuple(rows))


def further_table(content: GenerationContent) -> Table:
    """Return the headline for what was tuned on and what was not, and by the second style classifier, if measured."""
    comparisons = compare_further(content)
    table = _bias_table(f"The {METRIC_NAMES[HEADLINE]} checked, {UNIT}", "check", comparisons, content.tuned)
    return with_reductions(table, comparisons)


def cluster_tables(content: GenerationContent) -> list[Table]:
    """Return SCGB* and PGB* by style cluster, each pooled over templates if that was measured."""
    return _tables_by(content, "cluster", "style cluster", CLUSTER_FAMILIES)


def axis_tables(content: GenerationContent) -> list[Table]:
    """Return FGB* by demographic axis, pooled over templates if that was measured."""
    return _tables_by(content, "axis", "axis", AXIS_FAMILIES)


def other_tables(content: GenerationContent, cut: str) -> list[Table]:
    """Return the tables of all metrics with this cut that `cluster_tables` and `axis_tables` leave out."""
    shown = {family_metric(content, family, cut) for family in (*CLUSTER_FAMILIES, *AXIS_FAMILIES)}
    tables = (_table_of(content, metric, cut, cut) for metric in METRIC_NAMES if metric not in shown)
    return [table for table in tables if table.rows]


def style_table(content: GenerationContent) -> Table:
    """Return the styles that make up most of the bias before tuning."""
    metric = family_metric(content, AXIS_FAMILIES[0], "style") or HEADLINE
    comparisons = compare(content, metric, "style")
    caption = f"{METRIC_NAMES[metric]} by style, {UNIT}; the largest {STYLES_SHOWN} of {len(comparisons)}"
    return _bias_table(caption, "style", comparisons[:STYLES_SHOWN], content.tuned)


def cost_table(content: GenerationContent) -> Table:
    """Return what tuning may have cost; shares are in percent."""
    rows = []
    for metric, (name, factor, digits) in COSTS.items():
        for row in compare(content, metric):
            cells = [score_cell(row.before, factor, digits)]
            if content.tuned:
                cells += [score_cell(row.after, factor, digits), _change(row, factor, digits)]
            rows.append(Row(name, tuple(cells)))
    columns = ("measure", "before", "after", "change") if content.tuned else ("measure", "value")
    return Table("What it cost" if content.tuned else "Quality of the responses", columns, tuple(rows))


def style_share_table(content: GenerationContent) -> Table:
    """Return how much of the responses' style is in each cluster, in percent: whether tuning brought hate or envy.

    Only a rise of a cluster that must not rise is marked.
    """
    comparisons = compare(content, "style_share", "cluster")
    columns = ("style cluster", "before", "after", "change") if content.tuned else ("style cluster", "value")
    rows = []
    for row in comparisons:
        cells = [score_cell(row.before, 100, 2)]
        if content.tuned:
            cells += [score_cell(row.after, 100, 2), _change(row, 100, 2)]
        direction = row.direction if row.label.upper() in HARMFUL_CLUSTERS else min(row.direction, 0)
        rows.append(Row(visible(row.label, 120), tuple(cells), _marks(row, 100), direction))
    return Table("Share of each style cluster in all responses, %", columns, tuple(rows))


def truth_table(content: GenerationContent) -> Table:
    """Return the base model's numbers beside what was planted, for a testbed whose truth is known."""
    comparisons = [row for metric in METRIC_NAMES for row in compare(content, metric) if row.truth]
    comparisons += [row for metric in METRIC_NAMES for row in compare(content, metric, "cluster") if row.truth]
    digits = _decimals(comparisons)
    rows = tuple(
        Row(
            row.label if not row.before.group else f"{METRIC_NAMES[row.metric]} {visible(row.label)}",
            (score_cell(row.truth, PER_UNIT, digits), score_cell(row.before, PER_UNIT, digits), Cell(_share(row))),
        )
        for row in comparisons
        if row.before is not None
    )
    return Table(f"Measured against what was planted, {UNIT}", ("measure", "planted", "measured", "share"), rows)


def plan_table(content: GenerationContent) -> Table:
    """Return the threshold plan, the chosen threshold pointed out."""
    plan = content.threshold_plan
    if plan is None:
        return Table("", (), ())
    rows = tuple(
        Row(
            f"α {row.alpha:g}",
            (
                Cell(number(row.quantile)),
                Cell(f"{row.beta:.3g}".replace("-", "−")),
                Cell(percent(row.share_labelled_bias)),
                _fraction_cell(row.predicted_fgb_left, row.lower, row.upper),
                Cell(
                    ("yes" if row.trusted else "no") + (", chosen" if plan.is_chosen(row.alpha, row.quantile) else "")
                ),
            ),
        )
        for row in plan.table.sort_values(["alpha", "quantile"], kind="stable").itertuples()
    )
    columns = ("α", "quantile of b", "β", "labelled bias", "predicted left", "trusted")
    return Table("Predicted pooled FGB* left after tuning, % of before", columns, rows)


def descriptor_tables(content: GenerationContent) -> list[Table]:
    """Return the descriptors with the largest and with the smallest mean bias value b."""
    frame = content.descriptors
    if frame is None or frame.empty:
        return []
    frame = frame.sort_values(["before", "descriptor"], ascending=[False, True], kind="stable")
    shown = min(DESCRIPTORS_SHOWN, (len(frame) + 1) // 2)
    ends = [("largest", frame.head(shown)), ("smallest", frame.tail(min(shown, len(frame) - shown)))]
    roles = ("before", "after") if "after" in frame else ("before",)
    digits = decimals_for(value * PER_UNIT for role in roles for value in frame[role])
    columns = ("descriptor", "axis", *(("before", "after") if len(roles) == 2 else ("mean b",)), "responses")
    return [
        Table(
            f"Descriptors with the {end} mean b, {UNIT}",
            columns,
            tuple(
                Row(
                    visible(row["descriptor"], 120),
                    (
                        Cell(visible(row["axis"], 120)),
                        *(Cell(_value_text(row[role], digits) or "undefined") for role in roles),
                        Cell(f"{row['n']:,}"),
                    ),
                    tuple(Mark(role, row[role] * PER_UNIT, None) for role in roles if math.isfinite(row[role])),
                )
                for row in part.to_dict("records")
            ),
        )
        for end, part in ends
        if len(part)
    ]


def family_metric(content: GenerationContent, family: Sequence[str], cut: str) -> str | None:
    """Return the first metric of the family that was measured with this cut."""
    return next((metric for metric in family if compare(content, metric, cut)), None)


def _tables_by(content: GenerationContent, cut: str, name: str, families: Iterable[Sequence[str]]) -> list[Table]:
    metrics = (family_metric(content, family, cut) for family in families)
    return [_table_of(content, metric, cut, name) for metric in metrics if metric]


def _table_of(content: GenerationContent, metric: str, cut: str, name: str) -> Table:
    caption, comparisons = f"{METRIC_NAMES[metric]} by {name}, {UNIT}", compare(content, metric, cut)
    return with_reductions(_bias_table(caption, name, comparisons, content.tuned), comparisons)


def with_reductions(table: Table, comparisons: Sequence[Comparison]) -> Table:
    """Return the table with a column more, the share of each row's bias that is gone (paper 002, Table 10).

    What has no reduction gets a dash, and the reason stands under the table once for all rows.
    """
    if not any(row.reduction for row in comparisons):
        return table
    rows, reasons = [], {}
    for row, comparison in zip(table.rows, comparisons, strict=True):
        reduction = comparison.reduction
        if reduction is None or math.isnan(reduction.value):
            reasons[(reduction and reduction.reason) or "it was not compared"] = None
            cell = Cell("–")
        else:
            bounds = reduction.interval and (100 * reduction.interval[0], 100 * reduction.interval[1])
            cell = Cell(percent(reduction.value), interval(bounds, 0))
        rows.append(replace(row, cells=(*row.cells, cell)))
    note = f"–: no reduction is defined: {'; '.join(map(visible, reasons))}." if reasons else ""
    return replace(table, columns=(*table.columns, "reduction"), rows=tuple(rows), note=note)


def _bias_table(caption: str, first_column: str, comparisons: Sequence[Comparison], tuned: bool) -> Table:
    digits = _decimals(comparisons)
    tested = any(row.difference is not None and row.difference.p_value is not None for row in comparisons)
    rows = []
    for row in comparisons:
        cells = [score_cell(row.before, PER_UNIT, digits)]
        if tuned:
            cells += [score_cell(row.after, PER_UNIT, digits), _change(row, PER_UNIT, digits)]
        if tested:
            p = row.difference and row.difference.p_value
            cells.append(Cell("" if p is None else p_value(p)))
        rows.append(Row(visible(row.label, 120), tuple(cells), _marks(row, PER_UNIT), row.direction))
    columns = (
        (first_column, "before", "after", "change", *(("p",) if tested else ())) if tuned else (first_column, "value")
    )
    return Table(caption, columns, tuple(rows))


def _marks(row: Comparison, factor: float) -> tuple[Mark, ...]:
    return tuple(
        Mark(role, score.value * factor, score.interval and tuple(bound * factor for bound in score.interval))
        for role, score in (("before", row.before), ("after", row.after), ("truth", row.truth))
        if math.isfinite(finite(score, math.nan))
    )


def _decimals(comparisons: Iterable[Comparison]) -> int:
    scores = (score for row in comparisons for score in (row.before, row.after, row.truth) if score is not None)
    return decimals_for(score.value * PER_UNIT for score in scores)


def _change(row: Comparison, factor: float, digits: int) -> Cell:
    if row.difference is not None:
        return score_cell(row.difference, factor, digits, sign=True)
    before, after = finite(row.before, math.nan), finite(row.after, math.nan)
    return Cell(_value_text(after - before, digits, factor, sign=True))


def _share(row: Comparison) -> str:
    if not row.metric.endswith("_corrected"):
        return "mostly noise"
    if row.truth.value == 0 or math.isnan(row.truth.value) or math.isnan(row.before.value):
        return ""
    return percent(row.before.value / row.truth.value)


def _value_text(value: float, digits: int, factor: float = PER_UNIT, sign: bool = False) -> str:
    return "" if math.isnan(value) else number(value * factor, digits, sign)


def _fraction_cell(value: float, lower: float, upper: float) -> Cell:
    if math.isnan(value):
        return Cell("undefined")
    bounds = "" if math.isnan(lower) or math.isnan(upper) else f"[{number(100 * lower, 0)}, {number(100 * upper, 0)}]"
    return Cell(percent(value), bounds)
