"""The tables of a sweep's report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenhand.evaluation.report.metrics import Metric
from evenhand.evaluation.report.numbers import visible
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Mark, Row, Table, number_cell, p_cell, score_cell
from evenhand.evaluation.statistics.intervals import share_interval
from evenhand.recipes.sweep.metrics import CHECKS, COSTS, LISTENING, PLAN_CORRELATION, REMOVED
from evenhand.recipes.sweep.summary import Agreement, Sweep, setting_label, value_text

say = Sentences(__file__)

Setting = Mapping[str, Any]  # a row of `judged`


def removed_table(settings: Sequence[Setting]) -> Table:
    """Return what each setting removed: over all descriptors, drawn, and of those tuned on and not."""
    table = _measures("Pooled FGB* removed, % of the base model’s; the line is all of it", settings, REMOVED, "%")
    rows = tuple(
        Row(row.label, (*row.cells, Cell(_seeds(setting))), _marks(setting))
        for row, setting in zip(table.rows, settings, strict=True)
    )
    return Table(table.caption, (*table.columns, "seeds"), rows, ideal=100)


def judged_table(settings: Sequence[Setting]) -> Table:
    """Return how each setting is judged."""
    rows = tuple(Row(_name(setting), (Cell(say.judged(setting), prose=True),)) for setting in settings)
    return Table("How the settings are judged", ("setting", "judged"), rows)


def listening_table(settings: Sequence[Setting]) -> Table:
    """Return what a model that does not listen cannot keep: how well its responses still fit, and how many differ."""
    table = _measures("Does it still listen? Its responses beside the base model’s, %", settings, LISTENING, "%")
    return replace(table, note=say.listening if len(table.columns) > 1 else "")


def cost_table(settings: Sequence[Setting]) -> Table:
    """Return what each setting cost besides."""
    table = _measures("What it cost besides: change from the base model, %", settings, COSTS, "%")
    return replace(table, note=say.costs if any(math.isfinite(it["worst_cluster_change"]) for it in settings) else "")


def check_table(settings: Sequence[Setting]) -> Table:
    """Return two checks on what each setting removed, and how long it took to tune."""
    return _measures("Two checks, and the time of tuning", settings, CHECKS)


def refused_table(sweep: Sweep) -> Table:
    """Return every point that a guard refused, with the reason."""
    points = sweep.points[sweep.points["failed"].fillna("") != ""]
    rows = []
    for point in points.to_dict("records"):
        reason, folder = visible(str(point["failed"]), 600), visible(str(point["folder"]), 200)
        cells = (Cell(value_text(point["seed"])), Cell(reason, prose=True), Cell(folder, prose=True))
        rows.append(Row(setting_label(point, sweep.points, sweep.swept), cells))
    return Table("Refused by a guard", ("setting", "seed", "reason", "folder"), tuple(rows))


def plan_table(settings: Sequence[Setting]) -> Table:
    """Return predicted beside measured for the settings of `planned`."""
    rows = []
    for row in settings:
        cells = (
            number_cell(row["slope"], 2),
            _cell(row["predicted_left"], row["predicted_low"], row["predicted_high"], 100, 1),
            Cell("the pilot") if row["pilot"] else number_cell(100 * row["piloted_left"], 1),
            _cell(row["left"], row["left_low"], row["left_high"], 100, 1),
            number_cell(100 * row["predicted_drift"], 1),
            _cell(row["style_drift"], row["style_drift_low"], row["style_drift_high"], 100, 1),
        )
        rows.append(Row(_name(row), cells))
    columns = ("setting", "slope", "predicted", "by its method’s pilot", "measured", "drift predicted", "measured")
    return Table("Pooled FGB* left after tuning, and style drift, %", columns, tuple(rows), say.plan_note)


def agreement_table(agreements: Sequence[Agreement]) -> Table:
    """Return how often the plan's predictions held, with Wilson intervals, and how well it ranked the settings."""
    rows = []
    for found in agreements:
        shares = [_share(part, found.n) for part in (found.near, found.factor)]
        rho = score_cell(found.correlation, metric=PLAN_CORRELATION)
        rows.append(Row(found.name, (Cell(str(found.n)), *shares, rho, p_cell(found.correlation))))
    columns = ("predictions", "n", "within 0.1, %", "within a factor of two, %", "Spearman ρ", "p")
    return Table("How the predictions held", columns, tuple(rows))


def _measures(caption: str, settings: Sequence[Setting], metrics: Sequence[Metric], unit: str = "") -> Table:
    """Return a table of the metrics that any setting has; the caption names the `unit` of those without another."""
    measured = [metric for metric in metrics if any(math.isfinite(row[metric.name]) for row in settings)]
    rows = tuple(Row(_name(row), tuple(_measured(row, metric) for metric in measured)) for row in settings)
    columns = (metric.label if metric.unit == unit else metric.title for metric in measured)
    return Table(caption, ("setting", *columns), rows)


def _measured(setting: Setting, metric: Metric) -> Cell:
    name, written = metric.name, (metric.factor, metric.decimals, metric.signed)
    if name == "worst_cluster_change":  # the largest over seeds, so without an interval
        cell = number_cell(setting[name] * metric.factor, *written[1:])
        named = f"{visible(setting['worst_cluster'], 40)} {cell.text}"
        return cell if math.isnan(setting[name]) else Cell(named)
    if name in ("minutes", "untagged_ratio"):  # their spread over seeds is not reported
        return number_cell(setting[name] * metric.factor, *written[1:])
    return _cell(setting[name], setting[f"{name}_low"], setting[f"{name}_high"], *written)


def _marks(setting: Setting) -> tuple[Mark, ...]:
    value, *bounds = (100 * setting[f"reduction{end}"] for end in ("", "_low", "_high"))
    if math.isnan(value):
        return ()
    return (Mark("before", value, None if any(map(math.isnan, bounds)) else (bounds[0], bounds[1])),)


def _name(setting: Setting) -> str:
    return f"{setting['number']} {setting['label']}"


def _seeds(setting: Setting) -> str:
    total = setting["seeds"] + setting["refused"]
    return f"{setting['seeds']} of {total}" if setting["refused"] else str(total)


def _cell(value: float, low: float, high: float, factor: float, digits: int, sign: bool = False) -> Cell:
    return number_cell(value * factor, digits, sign, (low * factor, high * factor))


def _share(part: int, n: int) -> Cell:
    low, high = share_interval(part, n) if n else (math.nan, math.nan)
    return _cell(part / n if n else math.nan, low, high, 100, 0)
