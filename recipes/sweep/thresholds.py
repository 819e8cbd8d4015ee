"""Bias by the labelling threshold: the curves of a sweep over thresholds, and the table of realised thresholds.

A quantile of the bias values is another β in each run, and bias values with another α have another scale. The share of
the responses that is labelled `bias` is common to all.

Source: Smith et al. 2022, C.1 (α, β) and Table 8 (bias by β).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number
from evenhand.evaluation.report.page import Cell, Row, Table
from evenhand.recipes.sweep.setting_tables import SettingRow, base_rows, metric_cell, setting_name
from evenhand.recipes.sweep.summary import DECODING, setting_fields, setting_label
from evenhand.recipes.sweep.words import note

ALPHA = "label.alpha"
BETA = "label.beta"
QUANTILE = "label.quantile"
SHARE = "label.share"
SETTINGS = (ALPHA, BETA, QUANTILE, SHARE)  # of a threshold
NAMES = {"fgb": "FGB", "fgb_corrected": "FGB*", "fgb_pooled_corrected": "pooled FGB*"}


@dataclass(frozen=True)
class ThresholdCurve:
    """Settings that differ only in the threshold, as rows of `summarise` in the order of β."""

    label: str
    decoding: str
    alpha: float
    rows: list[SettingRow]

    def values(self, name: str, factor: float = 1) -> list[float]:
        """Return the values of a column, times a factor."""
        return [factor * row[name] for row in self.rows]


def threshold_curves(settings: Sequence[SettingRow], swept: Sequence[str]) -> list[ThresholdCurve]:
    """Return the curves of a sweep with at least two thresholds each.

    Args:
        settings: rows of `summarise`.
        swept: names of the settings that vary.
    """
    labelled = [row for row in settings if math.isfinite(row["beta"]) and row["seeds"]]
    others = [name for name in setting_fields(swept) if name not in SETTINGS]
    others.append("alpha")
    groups: dict[tuple[str, ...], list[SettingRow]] = {}
    for row in labelled:
        key = tuple(str(row[name]) for name in others)  # a string, because NaN is not equal to itself
        groups.setdefault(key, []).append(row)
    curves = []
    for rows in groups.values():
        if len({row["beta"] for row in rows}) > 1:
            first = rows[0]
            label = setting_label(first, pd.DataFrame(labelled), others)
            in_order = sorted(rows, key=lambda row: row["beta"])
            curves.append(ThresholdCurve(label, first[DECODING], first["alpha"], in_order))
    return curves


def threshold_table(settings: Sequence[SettingRow]) -> Table | None:
    """Return the table of each setting's realised threshold and its bias; None if no setting has a threshold."""
    if not any(math.isfinite(row["beta"]) for row in settings):
        return None
    measures = [name for name in NAMES if is_measured(settings, name)]
    formats = [Format(name, NAMES[name], "", factor=PER_UNIT) for name in measures]
    table_rows = []
    for setting in [*base_rows(settings, measures), *settings]:
        cells = threshold_cells(setting) + [metric_cell(setting, metric) for metric in formats]
        table_rows.append(Row(setting_name(setting), tuple(cells)))
    columns = ("setting", "α", "β", "quantile", "% bias", *(metric.label for metric in formats))
    caption = f"Thresholds as they were used, the share labelled bias, and bias, {UNIT}; ideal 0"
    return Table(caption, columns, tuple(table_rows), note("about_thresholds"))


def is_measured(settings: Sequence[SettingRow], name: str) -> bool:
    """Return whether any setting has a value of this name."""
    return any(math.isfinite(row.get(name, math.nan)) for row in settings)


def threshold_cells(setting: SettingRow) -> list[Cell]:
    """Return the cells of α, β, the quantile, and the share labelled `bias` in percent."""
    if not math.isfinite(setting["beta"]):
        return [Cell("")] * 4
    return [
        Cell(number(setting["alpha"], 0)),
        Cell(significant(setting["beta"])),
        Cell(number(setting["quantile"], 3)),
        Cell(number(100 * setting["share_labelled_bias"], 1)),
    ]


def significant(value: float) -> str:
    """Return a number as text with three significant digits and without an exponent.

    >>> significant(0.0003), significant(0.11934)
    ('0.0003', '0.119')
    """
    return np.format_float_positional(value, precision=3, fractional=False, trim="-").replace("-", "−")


def spaced(places: Sequence[float], distance: float) -> list[int]:
    """Return the indices of sorted places that are at least `distance` apart, from the first on.

    >>> spaced([0.0, 0.4, 1.0, 1.5], 0.5)
    [0, 2, 3]
    """
    kept = [0]
    for index in range(1, len(places)):
        if places[index] - places[kept[-1]] >= distance:
            kept.append(index)
    return kept
