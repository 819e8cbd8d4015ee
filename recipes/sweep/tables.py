"""The metrics of a sweep's report, and functions that return the report's tables.

A metric's name is its column in the summary. Values are fractions of the base model's value, or changes from it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from evenhand.evaluation.report.metrics import Metric
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, sanitize
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Mark, Row, Table, number_cell, p_cell, score_cell
from evenhand.evaluation.statistics.intervals import share_interval
from evenhand.recipes.sweep.summary import Agreement, Sweep, format_value, setting_label

_PERCENT = {"unit": "%", "factor": 100, "decimals": 1}
_CHANGE = {**_PERCENT, "ideal": 0, "signed": True}
_POINTS = {**_CHANGE, "unit": "points"}

REDUCTION_METRICS = (
    Metric("reduction", "all descriptors", "Share of the base model’s pooled FGB* that is gone.", **_PERCENT),
    Metric("reduction_seen", "tuned on", "Reduction for descriptors that were tuned on.", **_PERCENT),
    Metric("reduction_unseen", "not tuned on", "Reduction for descriptors that were not tuned on.", **_PERCENT),
)
QUALITY_METRICS = (
    Metric("relevance_kept", "relevance kept", "Relevance as a share of the base model’s.", **_PERCENT),
    Metric(
        "relevance_within_template_kept",
        "… within the template",
        "Share kept of the relevance to the person: own prompt against another person’s, of the same template.",
        **_PERCENT,
    ),
    Metric("style_drift", "style drift", "Share of the mean style that is no longer the base model’s.", **_PERCENT),
    Metric(
        "response_perplexity_change",
        "perplexity of responses",
        "Relative change of the responses’ perplexity by the base model.",
        **_CHANGE,
    ),
    Metric(
        "distinct_responses_change",
        "distinct responses",
        "Relative change of the share of distinct responses.",
        **_CHANGE,
    ),
)
COST_METRICS = (
    Metric("perplexity_change", "perplexity", "Relative change of the perplexity of ordinary dialogue.", **_CHANGE),
    Metric("distinct_2_change", "distinct-2", "Relative change of distinct-2.", **_CHANGE),
    Metric("length_change", "length", "Relative change of the mean length of a response.", **_CHANGE),
    Metric(
        "parroting_change",
        "repeats",
        "Change of the share of responses that repeat the prompt.",
        **{**_POINTS, "decimals": 2},
    ),
    Metric(
        "worst_cluster_change",
        "worst cluster",
        "Largest change of pooled SCGB* of a style cluster.",
        unit=UNIT,
        factor=PER_UNIT,
        ideal=0,
        signed=True,
    ),
)
CHECK_METRICS = (
    Metric(
        "reduction_confirmed",
        "removed by the second classifier",
        "Reduction measured by a style classifier that made no labels.",
        **_PERCENT,
    ),
    Metric("ratio_without_tag", "without tag", "Pooled FGB* without the control tag over the base’s.", unit="× base"),
    Metric("minutes", "minutes", "Minutes of tuning.", decimals=1),
)
PLAN_CORRELATION = Metric("plan_rho", "Spearman ρ", "Rank correlation of predicted and measured shares.")

NOT_MEASURED = (math.nan,) * 3  # an outcome without mean and interval

text = Sentences(__file__)

Setting = Mapping[str, Any]  # a row of `evaluate_settings`


def reduction_table(settings: Sequence[Setting]) -> Table:
    """Return a table of reductions for all descriptors (with marks), descriptors tuned on, and other descriptors."""
    caption = "Pooled FGB* removed, % of the base model’s; the line is at 100 %"
    table = _metric_table(caption, settings, REDUCTION_METRICS, "%")
    rows = tuple(
        Row(row.label, (*row.cells, Cell(_seed_count(setting))), _marks(setting))
        for row, setting in zip(table.rows, settings, strict=True)
    )
    return Table(table.caption, (*table.columns, "seeds"), rows, ideal=100)


def verdict_table(settings: Sequence[Setting]) -> Table:
    """Return a table of the verdict on each setting: the criteria that it misses, or that are inconclusive."""
    rows = tuple(Row(_setting_name(row), (Cell(text.setting_verdict(row), prose=True),)) for row in settings)
    return Table("Settings and the acceptance criteria", ("setting", "verdict"), rows)


def response_quality_table(settings: Sequence[Setting]) -> Table:
    """Return a table of the relevance, style drift, perplexity and diversity of each setting's responses."""
    caption = "Quality of the responses: comparison with the base model, %"
    table = _metric_table(caption, settings, QUALITY_METRICS, "%")
    return replace(table, note=text.response_quality_note if len(table.columns) > 1 else "")


def effect_table(effects: pd.DataFrame) -> Table:
    """Return a table of the mean outcomes for each value of each swept field, from `setting_effects`."""
    measured = [metric for metric in (*REDUCTION_METRICS, *QUALITY_METRICS) if metric.name in {*effects["outcome"]}]
    rows = []
    for (name, value), means in effects.groupby(["field", "value"], sort=False):
        by_outcome = means.set_index("outcome")[["mean", "low", "high"]].T
        cells = (
            _interval_cell(*by_outcome.get(it.name, NOT_MEASURED), it.factor, it.decimals, it.signed) for it in measured
        )
        rows.append(Row(sanitize(f"{name} {value}", 80), (Cell(str(means["points"].min())), *cells)))
    columns = ("value", "points", *(text.outcomes[metric.name] for metric in measured))
    return Table(
        "Mean over the compared points with this value, %", columns, tuple(rows), text.effects_note if rows else ""
    )


def cost_table(settings: Sequence[Setting]) -> Table:
    """Return a table of further costs of each setting, as changes from the base model."""
    table = _metric_table("Further costs: change from the base model, %", settings, COST_METRICS, "%")
    has_clusters = any(math.isfinite(row["worst_cluster_change"]) for row in settings)
    return replace(table, note=text.cost_note if has_clusters else "")


def check_table(settings: Sequence[Setting]) -> Table:
    """Return a table of two checks of each setting's reduction (second classifier, no tag), and the time of tuning."""
    return _metric_table("Two checks, and the time of tuning", settings, CHECK_METRICS)


def refused_table(sweep: Sweep) -> Table:
    """Return a table of the points that were rejected, with the reasons."""
    points = sweep.points[sweep.points["failed"].fillna("") != ""]
    rows = []
    for point in points.to_dict("records"):
        reason, folder = sanitize(str(point["failed"]), 600), sanitize(str(point["folder"]), 200)
        cells = (Cell(format_value(point["seed"])), Cell(reason, prose=True), Cell(folder, prose=True))
        rows.append(Row(setting_label(point, sweep.points, sweep.swept), cells))
    return Table("Refused by a guard", ("setting", "seed", "reason", "folder"), tuple(rows))


def plan_table(settings: Sequence[Setting]) -> Table:
    """Return a table of predicted and measured values, from the rows of `predicted_settings`."""
    rows = []
    for row in settings:
        cells = (
            number_cell(row["slope"], 2),
            _interval_cell(row["predicted_left"], row["predicted_low"], row["predicted_high"], 100, 1),
            Cell("the pilot") if row["pilot"] else number_cell(100 * row["calibrated_left"], 1),
            _interval_cell(row["left"], row["left_low"], row["left_high"], 100, 1),
            number_cell(100 * row["predicted_drift"], 1),
            _interval_cell(row["style_drift"], row["style_drift_low"], row["style_drift_high"], 100, 1),
        )
        rows.append(Row(_setting_name(row), cells))
    columns = ("setting", "slope", "predicted", "calibrated by pilot", "measured", "predicted drift", "measured drift")
    return Table("Pooled FGB* left after tuning, and style drift, %", columns, tuple(rows), text.plan_note)


def agreement_table(agreements: Sequence[Agreement]) -> Table:
    """Return a table of the shares of accurate predictions, with Wilson intervals, and of rank correlations."""
    rows = []
    for agreement in agreements:
        shares = [_share_cell(part, agreement.n) for part in (agreement.n_near, agreement.n_within_factor)]
        rho = score_cell(agreement.correlation, metric=PLAN_CORRELATION)
        rows.append(Row(agreement.name, (Cell(str(agreement.n)), *shares, rho, p_cell(agreement.correlation))))
    columns = ("predictions", "n", "within 0.1, %", "within a factor of two, %", "Spearman ρ", "p")
    return Table("Agreement of the predictions with the results", columns, tuple(rows))


def _metric_table(caption: str, settings: Sequence[Setting], metrics: Sequence[Metric], unit: str = "") -> Table:
    """Return a table of the metrics that any setting has. The caption contains `unit`, column titles other units."""
    measured = [metric for metric in metrics if any(math.isfinite(row[metric.name]) for row in settings)]
    rows = tuple(Row(_setting_name(row), tuple(_metric_cell(row, metric) for metric in measured)) for row in settings)
    columns = (metric.label if metric.unit == unit else metric.title for metric in measured)
    return Table(caption, ("setting", *columns), rows)


def _metric_cell(setting: Setting, metric: Metric) -> Cell:
    name, value = metric.name, setting[metric.name]
    # The first has no interval, as the largest change over seeds; the spread of the others over seeds is not reported.
    if name in ("worst_cluster_change", "minutes", "ratio_without_tag"):
        cell = number_cell(value * metric.factor, metric.decimals, metric.signed)
        if name == "worst_cluster_change" and not math.isnan(value):
            return Cell(f"{sanitize(setting['worst_cluster'], 40)} {cell.text}")
        return cell
    ends = setting[f"{name}_low"], setting[f"{name}_high"]
    return _interval_cell(value, *ends, metric.factor, metric.decimals, metric.signed)


def _marks(setting: Setting) -> tuple[Mark, ...]:
    value, *bounds = (100 * setting[f"reduction{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return ()
    return (Mark("before", value, None if any(map(math.isnan, bounds)) else (bounds[0], bounds[1])),)


def _setting_name(setting: Setting) -> str:
    return f"{setting['number']} {setting['label']}"


def _seed_count(setting: Setting) -> str:
    total = setting["seeds"] + setting["refused"]
    return f"{setting['seeds']} of {total}" if setting["refused"] else str(total)


def _interval_cell(value: float, low: float, high: float, factor: float, digits: int, sign: bool = False) -> Cell:
    return number_cell(value * factor, digits, sign, (low * factor, high * factor))


def _share_cell(part: int, n: int) -> Cell:
    low, high = share_interval(part, n) if n else (math.nan, math.nan)
    return _interval_cell(part / n if n else math.nan, low, high, 100, 0)
