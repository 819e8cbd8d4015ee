"""Bias by the labelling threshold β: the table of realised thresholds, and the chart of an ablation over thresholds.

A quantile of the bias values is another β in each run, so settings with a β and settings with a quantile are shown on
one axis, by the β that was used. Bias values with another α have another scale, and so another chart.

Source: Smith et al. 2022, C.1 (α, β) and Table 8 (bias by β).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Chart
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from evenhand.evaluation.report.figures import AFTER, BEFORE, MUTED, PAPER, WIDE, ZERO, new_chart, set_ticks, styled
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number, tick_number
from evenhand.evaluation.report.page import Cell, Row, Table
from evenhand.recipes.sweep.setting_tables import Setting, base_rows, metric_cell, setting_name
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
CURVE_COLORS = (AFTER, "#2f7d32", "#6a3d9a", "#8c1d40")
REFERENCE_COLORS = (MUTED, BEFORE, "#8a6d00", "#00796b")
PANELS_IN_A_ROW = 3
PANEL_HEIGHT = 215  # pixels
MIN_DISTANCE = 0.11  # between tick labels of the second axis, as a share of the axis


@dataclass(frozen=True)
class ThresholdCurve:
    """Settings that differ only in the threshold, as rows of `summarise` in the order of β."""

    label: str
    decoding: str
    alpha: float
    rows: pd.DataFrame


def threshold_curves(settings: pd.DataFrame, swept: Sequence[str]) -> list[ThresholdCurve]:
    """Return the curves of a sweep with at least two thresholds each.

    Args:
        settings: the table that `summarise` returns.
        swept: names of the settings that vary.
    """
    labelled = settings[settings["beta"].notna() & (settings["seeds"] > 0)]
    others = [name for name in setting_fields(swept) if name not in (ALPHA, BETA, QUANTILE)]
    curves = []
    for _, rows in labelled.groupby([*others, "alpha"], dropna=False, sort=False):
        if rows["beta"].nunique() > 1:
            first = rows.iloc[0].to_dict()
            label = setting_label(first, labelled, [*others, "alpha"])
            curves.append(ThresholdCurve(label, first[DECODING], first["alpha"], rows.sort_values("beta")))
    return curves


def threshold_table(settings: pd.DataFrame) -> Table | None:
    """Return the table of each setting's realised threshold and its bias; None if no setting has a threshold."""
    rows = settings.to_dict("records")
    if not any(math.isfinite(row["beta"]) for row in rows):
        return None
    measures = [name for name in NAMES if name in settings and settings[name].notna().any()]
    formats = [Format(name, NAMES[name], "", factor=PER_UNIT) for name in measures]
    table_rows = []
    for setting in [*base_rows(settings, measures), *rows]:
        cells = threshold_cells(setting) + [metric_cell(setting, metric) for metric in formats]
        table_rows.append(Row(setting_name(setting), tuple(cells)))
    columns = ("setting", "α", "β", "quantile", "% bias", *(metric.label for metric in formats))
    caption = f"Thresholds as they were used, the share labelled bias, and bias, {UNIT}; ideal 0"
    return Table(caption, columns, tuple(table_rows), TABLE_NOTE)


def threshold_cells(setting: Setting) -> list[Cell]:
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


def threshold_charts(settings: pd.DataFrame, swept: Sequence[str]) -> dict[str, Chart]:
    """Return a chart of bias by β for each decoding and each α, by the name of its file."""
    groups: dict[tuple[str, float], list[ThresholdCurve]] = {}
    for curve in threshold_curves(settings, swept):
        groups.setdefault((curve.decoding, curve.alpha), []).append(curve)
    charts = {}
    for (decoding, alpha), curves in groups.items():
        name = "thresholds" if len(groups) == 1 else f"thresholds_{len(charts) + 1}"
        measured = settings[(settings[DECODING] == decoding) & (settings["seeds"] > 0)]
        label = f"Bias by the threshold β, α = {alpha:g}, {decoding}"
        charts[name] = threshold_chart(label, curves, measured)
    return charts


@styled
def threshold_chart(label: str, curves: Sequence[ThresholdCurve], measured: pd.DataFrame) -> Chart:
    """Return a chart with a panel for FGB, FGB*, pooled FGB* and the SCGB of each style cluster, by β.

    Args:
        curves: curves with one decoding and one α.
        measured: all settings with this decoding; those without a threshold are horizontal bands.
    """
    panels = panel_titles(measured)
    labelled = pd.concat([curve.rows for curve in curves])
    references = base_rows(measured, list(panels)) + measured[measured["beta"].isna()].to_dict("records")
    n_rows = math.ceil(len(panels) / PANELS_IN_A_ROW)
    n_columns = min(PANELS_IN_A_ROW, len(panels))
    figure, grid = new_chart(label, WIDE, 60 + PANEL_HEIGHT * n_rows, nrows=n_rows, ncols=n_columns, squeeze=False)
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
        draw_axes(axes, labelled)
    figure.legend(handles=legend_handles(curves, references), loc="outside lower center", ncols=4)
    return figure


def panel_titles(measured: pd.DataFrame) -> dict[str, str]:
    """Return the titles of the panels by the names of their columns, of those that were measured."""
    titles = {name: title for name, title in NAMES.items() if name in measured}
    for name in measured:
        metric, _, cluster = str(name).partition(": ")
        if metric == "scgb" and not cluster.endswith(("_low", "_high")):
            titles[name] = f"SCGB: {cluster}"
    return {name: title for name, title in titles.items() if measured[name].notna().any()}


def draw_reference(axes: Axes, setting: Setting, name: str, color: str) -> None:
    """Draw a model without a threshold as a horizontal line, with its interval as a band."""
    value = PER_UNIT * setting[name]
    if math.isfinite(value):
        axes.axhline(value, color=color, linewidth=1.5, linestyle=(0, (4, 2)))
        axes.axhspan(PER_UNIT * setting[f"{name}_low"], PER_UNIT * setting[f"{name}_high"], color=color, alpha=0.12)


def draw_curve(axes: Axes, curve: ThresholdCurve, name: str, color: str) -> None:
    """Draw the values of a curve with their intervals as a band; where a quantile was set, the dot is hollow."""
    rows = curve.rows
    values = PER_UNIT * rows[name]
    axes.fill_between(
        rows["beta"], PER_UNIT * rows[f"{name}_low"], PER_UNIT * rows[f"{name}_high"], color=color, alpha=0.2
    )
    axes.plot(rows["beta"], values, color=color, linewidth=1.5)
    faces = [PAPER if has_quantile(row) else color for row in rows.to_dict("records")]
    axes.scatter(rows["beta"], values, s=34, c=faces, edgecolors=color, linewidths=1.5, zorder=3)


def has_quantile(setting: Setting) -> bool:
    """Return whether a setting sets a quantile, and not β."""
    return not pd.isna(setting.get(QUANTILE, math.nan))


def draw_axes(axes: Axes, labelled: pd.DataFrame) -> None:
    """Draw the axis of β, which is logarithmic if every β is positive, and above it the shares labelled `bias`."""
    shares = labelled.groupby("beta")["share_labelled_bias"].mean()
    positions = shares.index.to_numpy(dtype=float)
    is_logarithmic = bool((positions > 0).all())
    if is_logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(numticks=6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: significant(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("β (above: share labelled bias)")
    above = axes.secondary_xaxis("top")
    places = np.log(positions) if is_logarithmic else positions
    ticks = spaced(places, MIN_DISTANCE * float(np.ptp(places)))
    above.xaxis.set_major_locator(FixedLocator(positions[ticks]))
    above.xaxis.set_minor_locator(NullLocator())
    texts = [f"{100 * share:.0f} %" for share in shares.to_numpy()[ticks]]
    above.set_xticks(positions[ticks], texts)
    above.spines["top"].set_visible(False)


def spaced(places: np.ndarray, distance: float) -> list[int]:
    """Return the indices of sorted places that are at least `distance` apart, from the first on.

    >>> spaced(np.array([0.0, 0.4, 1.0, 1.5]), 0.5)
    [0, 2, 3]
    """
    kept = [0]
    for index in range(1, len(places)):
        if places[index] - places[kept[-1]] >= distance:
            kept.append(index)
    return kept


def legend_handles(curves: Sequence[ThresholdCurve], references: Sequence[Setting]) -> list[Any]:
    """Return the entries of the legend: lines of curves, and bands of models without a threshold."""
    handles: list[Any] = []
    for color, curve in zip(CURVE_COLORS, curves, strict=False):
        handles.append(Line2D([], [], color=color, marker="o", label=curve.label))
    if any(has_quantile(row) for curve in curves for row in curve.rows.to_dict("records")):
        handles.append(Line2D([], [], color=MUTED, marker="o", markerfacecolor=PAPER, linestyle="", label="quantile"))
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


def curve_rows(settings: pd.DataFrame, swept: Sequence[str]) -> list[dict[str, float]]:
    """Return a row for each point of each curve, in the order of β: "beta", the share, and "CURVE MEASURE" ×1000."""
    measures = panel_titles(settings)
    rows = []
    for curve in threshold_curves(settings, swept):
        for setting in curve.rows.to_dict("records"):
            row = {"beta": setting["beta"], "share_labelled_bias": setting["share_labelled_bias"]}
            for name in measures:
                row[f"{curve.label} {name}"] = PER_UNIT * setting[name]
            rows.append(row)
    return sorted(rows, key=lambda row: row["beta"])
