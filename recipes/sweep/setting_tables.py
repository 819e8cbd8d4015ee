"""Tables of a sweep's settings: one row for each setting, and rows of the base model."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Cell, Row, Table
from evenhand.evaluation.report.score_sections import number_cell
from evenhand.evaluation.score import display_name
from evenhand.recipes.sweep.summary import BASE, DECODING, THRESHOLD_COLUMNS, WITHOUT_INTERVAL, swept_value_text

SettingRow = dict[str, Any]  # a row of `summarise`
MEASURED_BY = "measure."  # begins the names of the settings that change the base model's measurement, too
TUNED_ALONE = "measure.model.adapter_strength"  # except this one


def base_rows(settings: Sequence[SettingRow], columns: Sequence[str]) -> list[SettingRow]:
    """Return each base model as a row like a setting's, with the values of `columns`.

    Settings have the same base model if their decoding and all swept settings of its measurement are equal.
    """
    names = _base_settings(settings[0])
    bases: dict[tuple[str, ...], list[SettingRow]] = {}
    for setting in settings:
        bases.setdefault(_base_key(setting), []).append(setting)
    rows = []
    for key, group in bases.items():
        measured = max(group, key=lambda setting: setting["seeds"])
        row: SettingRow = dict.fromkeys(THRESHOLD_COLUMNS, math.nan)
        row |= {"number": 0, "seeds": measured["seeds"] or measured["refused"], "refused": 0, "refused_because": ""}
        row["label"] = ", ".join(["base model", *_differing_parts(key, list(bases), names)])
        row |= {name: measured[name] for name in (DECODING, *names)}
        for name in columns:
            for end in ("", "_low", "_high"):
                row[f"{name}{end}"] = measured[f"{BASE}{name}{end}"]
        rows.append(row)
    return rows


def is_of_base(name: str) -> bool:
    """Return whether a swept setting changes the measurement of the base model."""
    return name.startswith(MEASURED_BY) and name != TUNED_ALONE


def _base_settings(row: SettingRow) -> list[str]:
    """Return the names of the swept settings that change the measurement of the base model."""
    return [name for name in row if is_of_base(name)]


def _base_key(row: SettingRow) -> tuple[str, ...]:
    """Return the decoding and the values of `_base_settings`, as texts; "" for one that is not swept here."""
    values = [row[name] for name in (DECODING, *_base_settings(row))]
    return tuple("" if pd.isna(value) else swept_value_text(value) for value in values)


def _differing_parts(key: Sequence[str], keys: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """Return the parts of a base model's key that others do not have: the decoding, and the values of the names."""
    parts = []
    for place, (name, value) in enumerate(zip(["", *names], key, strict=True)):
        if value and len({other[place] for other in keys}) > 1:
            parts.append(swept_part(name, value))
    return parts


def swept_part(name: str, value: object) -> str:
    """Return a swept setting of a base model and its value, such as "model gpt2"; without a name, the value alone."""
    title = name.rsplit(".", 1)[-1]
    return sanitize(f"{title} {display_name(swept_value_text(value))}".strip(), 80)


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
