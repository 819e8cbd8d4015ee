"""The metrics of a sweep's report, and functions that return the report's tables.

A metric's name is its column in the summary. Values are fractions of the base model's value, or changes from it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number, sanitize
from evenhand.evaluation.report.tables import Cell, Mark, Row, Table, number_cell
from evenhand.recipes.sweep.summary import Sweep, format_value, setting_label

_PERCENT = {"unit": "%", "factor": 100, "decimals": 1}
_CHANGE = {**_PERCENT, "ideal": 0, "signed": True}
_POINTS = {**_CHANGE, "unit": "points", "decimals": 2}
_CLUSTER = {"unit": UNIT, "factor": PER_UNIT, "ideal": 0, "signed": True}
_WITHIN = "Share kept of the relevance to the person: own prompt against another person’s, of the same template."

REDUCTION_METRICS = (
    Format("reduction", "all descriptors", "Share of the base model’s pooled FGB* that is gone.", **_PERCENT),
    Format("reduction_seen", "tuned on", "Reduction for descriptors that were tuned on.", **_PERCENT),
    Format("reduction_unseen", "not tuned on", "Reduction for descriptors that were not tuned on.", **_PERCENT),
)
QUALITY_METRICS = (
    Format("relevance_kept", "relevance kept", "Relevance as a share of the base model’s.", **_PERCENT),
    Format("relevance_within_template_kept", "… within the template", _WITHIN, **_PERCENT),
    Format("style_drift", "style drift", "Share of the mean style that is no longer the base model’s.", **_PERCENT),
    Format(
        "response_perplexity_change",
        "perplexity of responses",
        "Relative change of the responses’ perplexity by the base model.",
        **_CHANGE,
    ),
    Format(
        "distinct_responses_change",
        "distinct responses",
        "Relative change of the share of distinct responses.",
        **_CHANGE,
    ),
)
COST_METRICS = (
    Format("perplexity_change", "perplexity", "Relative change of the perplexity of ordinary dialogue.", **_CHANGE),
    Format("distinct_2_change", "distinct-2", "Relative change of distinct-2.", **_CHANGE),
    Format("length_change", "length", "Relative change of the mean length of a response.", **_CHANGE),
    Format("parroting_change", "repeats", "Change of the share of responses that repeat the prompt.", **_POINTS),
    Format("worst_cluster_change", "worst cluster", "Largest change of pooled SCGB* of a style cluster.", **_CLUSTER),
)
CHECK_METRICS = (
    Format(
        "reduction_confirmed",
        "removed by the second classifier",
        "Reduction measured by a style classifier that made no labels.",
        **_PERCENT,
    ),
    Format("ratio_without_tag", "without tag", "Pooled FGB* without the control tag over the base’s.", unit="× base"),
    Format("minutes", "minutes", "Minutes of tuning.", decimals=1),
)
METRICS = {it.name: it for it in (*REDUCTION_METRICS, *QUALITY_METRICS, *COST_METRICS, *CHECK_METRICS)}

QUALITY_NOTE = (
    "Relevance (how much better responses fit their prompt than another prompt; within the template: than another "
    "person’s prompt of the same template) and the perplexity of the responses are computed with the base model. A "
    "model that ignores its prompts has no relevance; random text has a high perplexity and a high distinct-2. The "
    "worst cluster is the style cluster whose pooled SCGB* rose most or fell least."
)
EFFECTS_NOTE = (
    "Means over points, in combinations of a seed and other settings that have all of these values; values and "
    "combinations with gaps are left out. Brackets are 95 % intervals of the difference from the mean over the "
    "setting’s values, and p is of an analysis of variance with the seeds as blocks, with Holm’s correction over all "
    "settings and the three outcomes. Both need two seeds."
)

Setting = Mapping[str, Any]  # a row of `evaluate_settings`


def metric_table(caption: str, settings: Sequence[Setting], metrics: Sequence[Format], note: str = "") -> Table:
    """Return a table of the metrics that any setting has, in % unless the column's title has another unit."""
    measured = [metric for metric in metrics if any(math.isfinite(row[metric.name]) for row in settings)]
    rows = tuple(Row(setting_name(row), tuple(_cell(row, metric) for metric in measured)) for row in settings)
    columns = (metric.label if metric.unit == "%" else metric.title for metric in measured)
    return Table(caption, ("setting", *columns), rows, note if measured else "")


def reduction_table(settings: Sequence[Setting]) -> Table:
    """Return a table of reductions for all descriptors (with marks), descriptors tuned on, and other descriptors."""
    caption = "Pooled FGB* removed, % of the base model’s; the line is at 100 %"
    table, rows = metric_table(caption, settings, REDUCTION_METRICS), []
    for row, setting in zip(table.rows, settings, strict=True):
        value, low, high = (100 * setting[f"reduction{end}"] for end in ("", "_low", "_high"))
        marks = (Mark("before", value, None if math.isnan(low + high) else (low, high)),)
        total = setting["seeds"] + setting["refused"]
        seeds = Cell(f"{setting['seeds']} of {total}" if setting["refused"] else str(total))
        rows.append(Row(row.label, (*row.cells, seeds), () if math.isnan(value) else marks))
    return Table(table.caption, (*table.columns, "seeds"), tuple(rows), ideal=100)


def effect_table(effects: pd.DataFrame) -> Table:
    """Return a table of the mean outcomes for each value of each swept field, from `setting_effects`."""
    outcomes, rows = [METRICS[name] for name in dict.fromkeys(effects["outcome"])], []
    for (name, value), means in effects.groupby(["field", "value"], sort=False):
        found, cells = means.set_index("outcome"), [Cell(str(means["points"].min()))]
        for metric in outcomes:
            ends = found.loc[metric.name, ["mean", "low", "high"]] if metric.name in found.index else [math.nan] * 3
            cells.append(_interval_cell(*ends, metric))
            p = found["p_value"].get(metric.name, math.nan)
            cells.append(Cell("" if math.isnan(p) else f"{p:.2g}"))
        rows.append(Row(sanitize(f"{name} {value}", 80), tuple(cells)))
    columns = [column for metric in outcomes for column in (metric.label, "p")]
    return Table("Mean over the compared points, %", ("value", "points", *columns), tuple(rows), EFFECTS_NOTE)


def refused_table(sweep: Sweep) -> Table:
    """Return a table of the points that were rejected, with the reasons."""
    rows = []
    for point in sweep.points[sweep.points["failed"].fillna("") != ""].to_dict("records"):
        reason, folder = sanitize(str(point["failed"]), 600), sanitize(str(point["folder"]), 200)
        cells = (Cell(format_value(point["seed"])), Cell(reason, prose=True), Cell(folder, prose=True))
        rows.append(Row(setting_label(point, sweep.points, sweep.swept), cells))
    return Table("Refused by a guard", ("setting", "seed", "reason", "folder"), tuple(rows))


def setting_name(setting: Setting) -> str:
    """Return the number and the label of a setting."""
    return f"{setting['number']} {setting['label']}"


def value_text(setting: Setting, name: str, has_interval: bool = False) -> str:
    """Return a value as "tuned on 94.0 %", or with its interval as "tuned on 94.0 % [92.0, 96.0]"."""
    metric = METRICS[name]
    text = f"{metric.label} {number(setting[name] * metric.factor, metric.decimals, metric.signed)} {metric.unit}"
    ends = _cell(setting, metric).interval or "without an interval" if has_interval else ""
    return f"{text} {ends}".rstrip()


def _cell(setting: Setting, metric: Format) -> Cell:
    value, ends = setting[metric.name], (f"{metric.name}_low", f"{metric.name}_high")
    # The first has no interval, as the largest change over seeds; the spread of the others over seeds is not reported.
    if metric.name in ("worst_cluster_change", "minutes", "ratio_without_tag"):
        cell = number_cell(value * metric.factor, metric.decimals, metric.signed)
        is_cluster = metric.name == "worst_cluster_change" and not math.isnan(value)
        return Cell(f"{sanitize(setting['worst_cluster'], 40)} {cell.text}") if is_cluster else cell
    return _interval_cell(value, setting[ends[0]], setting[ends[1]], metric)


def _interval_cell(value: float, low: float, high: float, metric: Format) -> Cell:
    ends = low * metric.factor, high * metric.factor
    return number_cell(value * metric.factor, metric.decimals, metric.signed, ends)
