"""The figure of a sweep over thresholds: bias and costs by the share of the training responses labelled `bias`.

The share is one axis for settings with a threshold β and settings with a quantile, and for every α, whose bias values
have other scales. Points whose β was set and points whose quantile or share was set are two lines.

Source: Smith et al. 2022, C.1 (α, β) and Table 8 (bias by β).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Chart
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.typing import LineStyleType

from evenhand.evaluation.files import atomic_write
from evenhand.evaluation.report.figures import INK, PAPER, WIDE, ZERO, new_chart, set_ticks, styled
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, tick_number
from evenhand.recipes.sweep.published import COSTS
from evenhand.recipes.sweep.setting_tables import SettingRow, base_rows
from evenhand.recipes.sweep.summary import CORRECTED, DECODING, METRICS
from evenhand.recipes.sweep.thresholds import (
    BETA,
    NAMES,
    QUANTILE,
    SHARE,
    ThresholdCurve,
    is_measured,
    significant,
    spaced,
    threshold_curves,
)

PANELS_IN_A_ROW = 3
PANEL_HEIGHT = 215  # pixels
LEGEND_HEIGHT = 60  # pixels
MIN_DISTANCE = 17  # percentage points between tick labels of β
MARGIN = 1.5  # of an axis beyond the values, in units of their range: more of a band is cut
SET = "β set"
BY_SHARE = "quantile or share set"
# Colours whose lightness differs, with other dashes, so that lines differ in print without colours.
Style = tuple[str, LineStyleType]
CURVE_STYLES: tuple[Style, ...] = (
    ("#0b5394", "-"),
    ("#c46210", (0, (5, 2))),
    ("#3d9a50", (0, (1, 1))),
    ("#6a3d9a", (0, (6, 2, 1, 2))),
)
REFERENCE_STYLES: tuple[Style, ...] = (
    ("#1f1e1b", "-"),
    ("#7d7a72", (0, (8, 3))),
    ("#9d998f", (0, (2, 2))),
    ("#55524b", (0, (9, 2, 2, 2))),
)
BAND = 0.16  # opacity


@dataclass(frozen=True)
class Panel:
    """A panel: the column that it shows, its title, the factor to its unit, and the least possible value."""

    name: str
    title: str
    factor: float
    least: float


def threshold_charts(settings: Sequence[SettingRow], swept: Sequence[str]) -> dict[str, Chart]:
    """Return a chart for each decoding that has a curve, by the name of its file."""
    by_decoding: dict[str, list[ThresholdCurve]] = {}
    for curve in threshold_curves(settings, swept):
        by_decoding.setdefault(curve.decoding, []).append(curve)
    charts = {}
    for decoding, curves in by_decoding.items():
        name = "thresholds" if len(by_decoding) == 1 else f"thresholds_{len(charts) + 1}"
        rows = [row for row in settings if row[DECODING] == decoding]
        charts[name] = threshold_chart(f"Bias and costs by threshold, {decoding}", curves, rows)
    return charts


@styled
def threshold_chart(label: str, curves: Sequence[ThresholdCurve], rows: Sequence[SettingRow]) -> Chart:
    """Return a chart with a panel for each measure of bias and of cost.

    Args:
        curves: curves with one decoding.
        rows: all settings with this decoding; those without a threshold are horizontal lines.
    """
    measured = [row for row in rows if row["seeds"]]
    refused = [row["share_labelled_bias"] for row in rows if not row["seeds"] and math.isfinite(row["beta"])]
    panels = panels_of(measured)
    references = base_rows(measured, [panel.name for panel in panels if panel.name not in METRICS])
    references += [row for row in measured if math.isnan(row["beta"])]
    n_rows = math.ceil(len(panels) / PANELS_IN_A_ROW)
    n_columns = min(PANELS_IN_A_ROW, len(panels))
    height = LEGEND_HEIGHT + PANEL_HEIGHT * n_rows
    figure, grid = new_chart(label, WIDE, height, nrows=n_rows, ncols=n_columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes, panel in zip(grid.flat[: len(panels)], panels, strict=True):
        for style, reference in zip(cycle(REFERENCE_STYLES), references, strict=False):
            draw_reference(axes, reference, panel, *style)
        for style, curve in zip(cycle(CURVE_STYLES), curves, strict=False):
            draw_curve(axes, curve, panel, *style)
        if panel.name in CORRECTED or panel.name in METRICS:  # other bias is far from 0, because it contains noise
            axes.axhline(0, color=ZERO, linewidth=1, zorder=0)
        axes.set_title(panel.title, pad=10)
        limit_axis(axes, panel, [*references, *(row for curve in curves for row in curve.rows)])
        set_ticks(axes, "y", 5, tick_number)
        draw_axes(axes, curves, refused)
    figure.legend(handles=legend_handles(curves, references, refused), loc="outside lower center", ncols=4)
    return figure


def panels_of(measured: Sequence[SettingRow]) -> list[Panel]:
    """Return the panels that were measured: bias, the SCGB of each style cluster, and costs."""
    panels = []
    for name in NAMES:
        least = -math.inf if name in CORRECTED else 0.0
        panels.append(Panel(name, f"{NAMES[name]}, {UNIT}", PER_UNIT, least))
    for name in measured[0]:
        metric, _, cluster = name.partition(": ")
        if metric == "scgb" and not cluster.endswith(("_low", "_high")):
            panels.append(Panel(name, f"SCGB: {cluster}, {UNIT}", PER_UNIT, 0.0))
    for name in COSTS:
        format_ = METRICS[name]
        least = -100.0 if format_.signed else -math.inf  # a perplexity cannot fall by more; relevance can be negative
        unit = "change in %" if format_.signed else "%"
        panels.append(Panel(name, f"{format_.label}, {unit}", format_.factor, least))
    return [panel for panel in panels if is_measured(measured, panel.name)]


def ends_of(row: SettingRow, panel: Panel) -> tuple[float, float]:
    """Return the ends of an interval in the panel's unit, cut at the least possible value."""
    low = panel.factor * row[f"{panel.name}_low"]
    high = panel.factor * row[f"{panel.name}_high"]
    return max(low, panel.least), high


def draw_reference(axes: Axes, setting: SettingRow, panel: Panel, color: str, dashes: LineStyleType) -> None:
    """Draw a model without a threshold as a horizontal line, with its interval as a band between two thin lines."""
    value = panel.factor * setting.get(panel.name, math.nan)  # the base model has no costs
    if not math.isfinite(value):
        return
    axes.axhline(value, color=color, linewidth=1.6, linestyle=dashes)
    low, high = ends_of(setting, panel)
    if math.isfinite(low) and math.isfinite(high):
        axes.axhspan(low, high, facecolor=color, alpha=0.07, linewidth=0)
        for end in (low, high):
            axes.axhline(end, color=color, linewidth=0.6, linestyle=dashes)


def draw_curve(axes: Axes, curve: ThresholdCurve, panel: Panel, color: str, dashes: LineStyleType) -> None:
    """Draw the values of a curve with their intervals as a band: filled dots where β was set, squares for quantiles."""
    for kind, rows in rows_by_kind(curve).items():
        shares = [100 * row["share_labelled_bias"] for row in rows]
        values = [panel.factor * row[panel.name] for row in rows]
        ends = [ends_of(row, panel) for row in rows]
        if len(rows) > 1:
            axes.fill_between(shares, [low for low, _ in ends], [high for _, high in ends], color=color, alpha=BAND)
        else:
            axes.vlines(shares, [low for low, _ in ends], [high for _, high in ends], color=color, linewidth=1)
        axes.plot(shares, values, color=color, linewidth=1.5, linestyle=dashes, **marker(kind, color))


def rows_by_kind(curve: ThresholdCurve) -> dict[str, list[SettingRow]]:
    """Return a curve's points by how their threshold was set, each kind sorted by the share of labelled responses."""
    kinds: dict[str, list[SettingRow]] = {SET: [], BY_SHARE: []}
    for row in sorted(curve.rows, key=lambda row: row["share_labelled_bias"]):
        has_share = any(is_set(row.get(name)) for name in (QUANTILE, SHARE))
        is_unset = row.get(BETA) == "null"  # a quantile or a share of all points is then the threshold
        kinds[BY_SHARE if has_share or is_unset else SET].append(row)
    return {kind: rows for kind, rows in kinds.items() if rows}


def is_set(value: float | str | None) -> bool:
    """Return whether a point has a value of a swept setting. It is null or NaN where the setting was not given."""
    return not pd.isna(value) and value != "null"


def marker(kind: str, color: str) -> dict[str, Any]:
    """Return the arguments of a line's markers."""
    shape = {"marker": "o", "markerfacecolor": color} if kind == SET else {"marker": "s", "markerfacecolor": PAPER}
    return {**shape, "markeredgecolor": color, "markersize": 6, "markeredgewidth": 1.4}


def limit_axis(axes: Axes, panel: Panel, rows: Sequence[SettingRow]) -> None:
    """Set the axis of values: all values, and the bands as far as MARGIN times the range of the values beyond them."""
    values = [panel.factor * row.get(panel.name, math.nan) for row in rows]
    values = [value for value in values if math.isfinite(value)]
    ends = [end for row in rows if panel.name in row for end in ends_of(row, panel) if math.isfinite(end)]
    shortest = min((high - low for low, high in (ends_of(row, panel) for row in rows if panel.name in row)), default=0)
    span = max(max(values) - min(values), shortest if math.isfinite(shortest) else 0.0) or 1.0
    low = max(min([*values, *ends]), min(values) - MARGIN * span)
    high = min(max([*values, *ends]), max(values) + MARGIN * span)
    pad = 0.06 * (high - low)
    axes.set_ylim(max(low - pad, panel.least), high + pad)


def draw_axes(axes: Axes, curves: Sequence[ThresholdCurve], refused: Sequence[float]) -> None:
    """Draw the axis of the share labelled `bias`, above it β of a single curve, and crosses for refused settings."""
    axes.set_xlim(-3, 103)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("labelled bias, %")
    if refused:
        bottom = axes.get_xaxis_transform()  # y is a share of the axis
        shares = [100 * share for share in refused]
        axes.plot(shares, [0.05] * len(shares), "x", color=INK, transform=bottom)
    if len(curves) > 1:
        return  # each has its own β
    labelled = next(iter(rows_by_kind(curves[0]).values()))
    betas = {100 * row["share_labelled_bias"]: row["beta"] for row in labelled}
    places = sorted(betas)
    ticks = [places[index] for index in spaced(places, MIN_DISTANCE)]
    above = axes.secondary_xaxis("top")
    first, *others = [significant(betas[tick]) for tick in ticks]
    above.set_xticks(ticks, [f"β = {first}", *others])
    above.spines["top"].set_visible(False)


def legend_handles(
    curves: Sequence[ThresholdCurve], references: Sequence[SettingRow], refused: Sequence[float]
) -> list[Artist]:
    """Return the entries of the legend: every line, a band, and the cross of refused settings."""
    handles: list[Artist] = []
    for (color, dashes), curve in zip(cycle(CURVE_STYLES), curves, strict=False):
        for kind in rows_by_kind(curve):
            look = {"color": color, "linestyle": dashes, **marker(kind, color)}
            handles.append(Line2D([], [], label=f"{curve.label}, {kind}", **look))
    for (color, dashes), reference in zip(cycle(REFERENCE_STYLES), references, strict=False):
        handles.append(Line2D([], [], color=color, linewidth=1.6, linestyle=dashes, label=reference["label"]))
    handles.append(Patch(facecolor=CURVE_STYLES[0][0], alpha=BAND, label="95 % interval"))
    if refused:
        handles.append(Line2D([], [], color=INK, marker="x", linestyle="", label="all seeds refused by a guard"))
    return handles


def write_charts(folder: Path, charts: dict[str, Chart]) -> list[Path]:
    """Write each chart as PNG and PDF, on white; return the paths of the files."""
    files = []
    for name, chart in charts.items():
        for suffix, metadata in (("png", {}), ("pdf", {"CreationDate": None, "Creator": None, "Producer": None})):
            path = folder / f"{name}.{suffix}"
            editable = matplotlib.rc_context({"pdf.fonttype": 42})  # TrueType, so that the PDF's text can be edited
            with editable, atomic_write(path) as temporary:
                chart.savefig(temporary, format=suffix, dpi=200, facecolor="white", metadata=metadata)
            files.append(path)
    return files


def curve_rows(settings: Sequence[SettingRow], swept: Sequence[str]) -> list[dict[str, float]]:
    """Return a row for each point of each curve, by the share labelled `bias`, for the tracker.

    The columns are "share_labelled_bias", "beta" and, in the units of the panels, "CURVE, KIND MEASURE" with its ends
    "…_low" and "…_high".
    """
    rows = []
    for curve in threshold_curves(settings, swept):
        panels = panels_of(curve.rows)
        for kind, points in rows_by_kind(curve).items():
            for setting in points:
                row = {name: setting[name] for name in ("share_labelled_bias", "beta")}
                for panel in panels:
                    low, high = ends_of(setting, panel)
                    values = {"": panel.factor * setting[panel.name], "_low": low, "_high": high}
                    name = f"{curve.label}, {kind} {panel.name}".replace("β", "beta")
                    row |= {f"{name}{end}": value for end, value in values.items()}
                rows.append(row)
    return sorted(rows, key=lambda row: row["share_labelled_bias"])
