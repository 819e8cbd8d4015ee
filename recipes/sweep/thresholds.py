"""Bias by the labelling threshold β: the table of realised thresholds, and the chart of an ablation over thresholds.

A quantile of the bias values is another β in each run, so settings with a β and settings with a quantile are shown on
one axis, by the β that was used. Bias values with another α have another scale, and so another chart.

Source: Smith et al. 2022, C.1 (α, β) and Table 8 (bias by β).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Chart
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from evenhand.evaluation.report.figures import (
    AFTER_COLOR,
    BEFORE_COLOR,
    INK,
    MUTED,
    PAPER,
    WIDE,
    ZERO,
    new_chart,
    set_ticks,
    styled,
)
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number, tick_number
from evenhand.evaluation.report.page import Cell, Row, Table
from evenhand.recipes.sweep.setting_tables import SettingRow, base_rows, metric_cell, setting_name
from evenhand.recipes.sweep.summary import CORRECTED, DECODING, setting_fields, setting_label

ALPHA = "label.alpha"
BETA = "label.beta"
QUANTILE = "label.quantile"
NAMES = {"fgb": "FGB", "fgb_corrected": "FGB*", "fgb_pooled_corrected": "pooled FGB*"}
TABLE_NOTE = (
    "β is the threshold of the bias value b: responses with b > β are labelled bias. Where a quantile is set, β is the "
    "mean over the seeds. FGB contains the noise of the responses; FGB* and pooled FGB* do not."
)
THRESHOLD_NOTE = (
    "Bias by the threshold β; above, the share of the training responses that is labelled bias. Filled dots: β was "
    "set; hollow dots: a quantile was set. Bands are 95 % intervals. A horizontal band is a model without a threshold."
)
CURVE_COLORS = (AFTER_COLOR, "#2f7d32", "#6a3d9a", "#8c1d40")
REFERENCE_COLORS = (MUTED, BEFORE_COLOR, "#8a6d00", "#00796b")
PANELS_IN_A_ROW = 3
PANEL_HEIGHT = 215  # pixels
LEGEND_HEIGHT = 60  # pixels
MIN_DISTANCE = 0.14  # between tick labels of the axes of β, as a share of the axis


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
    others = [name for name in setting_fields(swept) if name not in (ALPHA, BETA, QUANTILE)]
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
    return Table(caption, columns, tuple(table_rows), TABLE_NOTE)


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


def threshold_charts(settings: Sequence[SettingRow], swept: Sequence[str]) -> dict[str, Chart]:
    """Return a chart of bias by β for each decoding and each α, by the name of its file."""
    groups: dict[tuple[str, float], list[ThresholdCurve]] = {}
    for curve in threshold_curves(settings, swept):
        groups.setdefault((curve.decoding, curve.alpha), []).append(curve)
    charts = {}
    for (decoding, alpha), curves in groups.items():
        name = "thresholds" if len(groups) == 1 else f"thresholds_{len(charts) + 1}"
        same_decoding = [row for row in settings if row[DECODING] == decoding]
        measured = [row for row in same_decoding if row["seeds"]]
        refused = [row["beta"] for row in same_decoding if row["alpha"] == alpha and not row["seeds"]]
        label = f"Bias by the threshold β, α = {alpha:g}, {decoding}"
        charts[name] = threshold_chart(label, curves, measured, refused)
    return charts


@styled
def threshold_chart(
    label: str, curves: Sequence[ThresholdCurve], measured: Sequence[SettingRow], refused: Sequence[float]
) -> Chart:
    """Return a chart with a panel for FGB, FGB*, pooled FGB* and the SCGB of each style cluster, by β.

    Args:
        curves: curves with one decoding and one α.
        measured: all settings with this decoding; those without a threshold are horizontal bands.
        refused: each β whose models were all refused by a guard.
    """
    panels = panel_titles(measured)
    references = base_rows(measured, list(panels))
    references += [row for row in measured if math.isnan(row["beta"])]
    n_rows = math.ceil(len(panels) / PANELS_IN_A_ROW)
    n_columns = min(PANELS_IN_A_ROW, len(panels))
    height = LEGEND_HEIGHT + PANEL_HEIGHT * n_rows
    figure, grid = new_chart(label, WIDE, height, nrows=n_rows, ncols=n_columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes, (name, title) in zip(grid.flat[: len(panels)], panels.items(), strict=True):
        for color, reference in zip(REFERENCE_COLORS, references, strict=False):
            draw_reference(axes, reference, name, color)
        for color, curve in zip(CURVE_COLORS, curves, strict=False):
            draw_curve(axes, curve, name, color)
        if name in CORRECTED:  # the others are far from 0, the value without bias, because they contain noise
            axes.axhline(0, color=ZERO, linewidth=1)
        axes.set_title(f"{title}, {UNIT}", pad=10)
        set_ticks(axes, "y", 5, tick_number)
        draw_axes(axes, curves, refused)
        if refused:
            bottom = axes.get_xaxis_transform()  # y is a share of the axis
            axes.plot(refused, [0.05] * len(refused), "x", color=INK, transform=bottom)
    figure.legend(handles=legend_handles(curves, references, refused), loc="outside lower center", ncols=5)
    return figure


def panel_titles(measured: Sequence[SettingRow]) -> dict[str, str]:
    """Return the titles of the panels that were measured, by the names of their columns."""
    titles = dict(NAMES)
    for name in measured[0]:
        metric, _, cluster = name.partition(": ")
        if metric == "scgb" and not cluster.endswith(("_low", "_high")):
            titles[name] = f"SCGB: {cluster}"
    return {name: title for name, title in titles.items() if is_measured(measured, name)}


def draw_reference(axes: Axes, setting: SettingRow, name: str, color: str) -> None:
    """Draw a model without a threshold as a horizontal line, with its interval as a band."""
    value = PER_UNIT * setting[name]
    if math.isfinite(value):
        axes.axhline(value, color=color, linewidth=1.5, linestyle=(0, (4, 2)))
        axes.axhspan(PER_UNIT * setting[f"{name}_low"], PER_UNIT * setting[f"{name}_high"], color=color, alpha=0.12)


def draw_curve(axes: Axes, curve: ThresholdCurve, name: str, color: str) -> None:
    """Draw the values of a curve with their intervals as a band; where a quantile was set, the dot is hollow."""
    betas = curve.values("beta")
    values = curve.values(name, PER_UNIT)
    low = curve.values(f"{name}_low", PER_UNIT)
    high = curve.values(f"{name}_high", PER_UNIT)
    axes.fill_between(betas, low, high, color=color, alpha=0.2)
    axes.plot(betas, values, color=color, linewidth=1.5)
    faces = [PAPER if has_quantile(row) else color for row in curve.rows]
    axes.scatter(betas, values, s=34, c=faces, edgecolors=color, linewidths=1.5, zorder=3)


def has_quantile(setting: SettingRow) -> bool:
    """Return whether a setting sets a quantile, and not β."""
    return math.isfinite(setting.get(QUANTILE, math.nan))


def draw_axes(axes: Axes, curves: Sequence[ThresholdCurve], refused: Sequence[float]) -> None:
    """Draw the axis of β, which is logarithmic if every β is positive, and above it the shares labelled `bias`.

    Ticks are at the values of β that were used, because a logarithmic axis of one decade would have one tick.
    """
    shares = {row["beta"]: row["share_labelled_bias"] for curve in curves for row in curve.rows}
    betas = sorted({*shares, *refused})
    places = betas
    if betas[0] > 0:
        places = [math.log(beta) for beta in betas]
        axes.set_xscale("log")
    ticks = [betas[index] for index in spaced(places, MIN_DISTANCE * (places[-1] - places[0]))]
    with_share = [beta for beta in ticks if beta in shares]
    axes.set_xticks(ticks, [significant(beta) for beta in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("β (above: share labelled bias)")
    above = axes.secondary_xaxis("top")
    above.set_xticks(with_share, [f"{100 * shares[beta]:.0f} %" for beta in with_share])
    above.xaxis.set_minor_locator(NullLocator())
    above.spines["top"].set_visible(False)


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


def legend_handles(
    curves: Sequence[ThresholdCurve], references: Sequence[SettingRow], refused: Sequence[float]
) -> list[Artist]:
    """Return the entries of the legend: lines of curves, marks, and bands of models without a threshold."""
    handles: list[Artist] = []
    for color, curve in zip(CURVE_COLORS, curves, strict=False):
        handles.append(Line2D([], [], color=color, marker="o", label=curve.label))
    if any(has_quantile(row) for row in chain.from_iterable(curve.rows for curve in curves)):
        handles.append(Line2D([], [], color=MUTED, marker="o", markerfacecolor=PAPER, linestyle="", label="quantile"))
    if refused:
        handles.append(Line2D([], [], color=INK, marker="x", linestyle="", label="refused by a guard"))
    for color, reference in zip(REFERENCE_COLORS, references, strict=False):
        handles.append(Patch(facecolor=color, alpha=0.4, label=reference["label"]))
    return handles


def write_charts(folder: Path, charts: dict[str, Chart]) -> list[Path]:
    """Write each chart as PNG and PDF, on white; return the paths of the files."""
    files = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in charts.items():
        for suffix, metadata in (("png", {}), ("pdf", {"CreationDate": None, "Creator": None, "Producer": None})):
            path = folder / f"{name}.{suffix}"
            with matplotlib.rc_context({"pdf.fonttype": 42}):  # TrueType, so that the PDF's text can be edited
                chart.savefig(path, dpi=200, facecolor="white", metadata=metadata)
            files.append(path)
    return files


def curve_rows(settings: Sequence[SettingRow], swept: Sequence[str]) -> list[dict[str, float]]:
    """Return a row for each point of each curve, in the order of β: "beta", the share, and "CURVE MEASURE" ×1000."""
    rows = []
    for curve in threshold_curves(settings, swept):
        measures = panel_titles(curve.rows)
        for setting in curve.rows:
            row = {"beta": setting["beta"], "share_labelled_bias": setting["share_labelled_bias"]}
            for name in measures:
                row[f"{curve.label} {name}"] = PER_UNIT * setting[name]
            rows.append(row)
    return sorted(rows, key=lambda row: row["beta"])
