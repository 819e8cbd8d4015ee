"""Tables of a sweep's settings: one row for each setting, and rows of the base model."""

import math
from collections.abc import Sequence
from typing import Any

from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.page import Cell, Row, Table
from evenhand.evaluation.report.score_sections import number_cell
from evenhand.recipes.sweep.summary import BASE, DECODING, THRESHOLD_COLUMNS, WITHOUT_INTERVAL

SettingRow = dict[str, Any]  # a row of `summarise`


def base_rows(settings: Sequence[SettingRow], columns: Sequence[str]) -> list[SettingRow]:
    """Return the base model as a row like a setting's, for each decoding, with the values of `columns`."""
    by_decoding: dict[str, list[SettingRow]] = {}
    for setting in settings:
        by_decoding.setdefault(setting[DECODING], []).append(setting)
    rows = []
    for decoding, group in by_decoding.items():
        measured = max(group, key=lambda setting: setting["seeds"])
        row: SettingRow = dict.fromkeys(THRESHOLD_COLUMNS, math.nan)
        row["number"] = 0
        row["label"] = "base model" if len(by_decoding) == 1 else f"base model, {decoding}"
        row[DECODING] = decoding
        for name in columns:
            for end in ("", "_low", "_high"):
                row[f"{name}{end}"] = measured[f"{BASE}{name}{end}"]
        rows.append(row)
    return rows


def setting_name(setting: SettingRow) -> str:
    """Return the number and the label of a setting."""
    return f"{setting['number']} {setting['label']}"


def metric_table(caption: str, settings: Sequence[SettingRow], metrics: Sequence[Format], note: str = "") -> Table:
    """Return a table of the metrics that any setting has, in % unless the column's title has another unit."""
    measured = [metric for metric in metrics if any(math.isfinite(row[metric.name]) for row in settings)]
    rows = []
    for setting in settings:
        cells = tuple(metric_cell(setting, metric) for metric in measured)
        rows.append(Row(setting_name(setting), cells))
    columns = ["setting"]
    columns += [metric.label if metric.unit == "%" else metric.title for metric in measured]
    return Table(caption, tuple(columns), tuple(rows), note if measured else "")


def metric_cell(setting: SettingRow, metric: Format) -> Cell:
    """Return the cell of a setting's value, with its interval if the metric has one."""
    value = metric.factor * setting[metric.name]
    if metric.name in WITHOUT_INTERVAL:
        return number_cell(value, metric.decimals, metric.signed)
    low = metric.factor * setting[f"{metric.name}_low"]
    high = metric.factor * setting[f"{metric.name}_high"]
    return number_cell(value, metric.decimals, metric.signed, (low, high))
