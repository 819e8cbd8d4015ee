"""Charts of the differences of sentence pairs around the decision boundary (paper 001, Figure 2, horizontal).

Each row has the density as a violin; a box from the lower to the upper quartile with the median in it; whiskers to the
last pair within 1.5 times the box's length; and the mean as an open dot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evenhand.evaluation.report.figures import (
    AFTER,
    BEFORE,
    INK,
    PAPER,
    WIDE,
    ZERO,
    add_margin,
    new_chart,
    set_ticks,
    styled,
)
from evenhand.evaluation.report.numbers import number, percent, sanitize, tick_number

HEAD, ROW, GAP = 70, 44, 0.25  # pixels: the axis; the distribution of one model; between bias types, in rows
FRAME = (0.005, 0.995)  # quantiles at the ends of the axis, since a few far pairs would flatten all others
FEW = 8  # fewer pairs, or pairs with equal differences, are drawn as dots instead of a density
COLORS = {"before": BEFORE, "after": AFTER}


@dataclass(frozen=True)
class Spread:
    """A row of the chart: the differences of its pairs, "before" and, if there are two models, "after"."""

    label: str
    differences: Mapping[str, np.ndarray]


@styled
def spread_chart(
    title: str, rows: Sequence[Spread], ends: tuple[str, str], stereotype_side: int, decimals: int
) -> tuple[Figure, int]:
    """Return the chart, and how many differences in its first row lie outside the axis.

    `ends` are the descriptions of the left and the right of the boundary at 0. `stereotype_side` is −1 if the left is
    the stereotype's side, else 1.
    """
    values = np.concatenate([values for row in rows for values in row.differences.values()])
    low, high = np.quantile(values, FRAME) if len(values) else (0.0, 0.0)
    low, high = add_margin(min(float(low), 0.0), max(float(high), 0.0))
    sides = max(len(row.differences) for row in rows)
    means = (" and ".join(_mean(values, decimals) for values in row.differences.values()) for row in rows)
    texts = [f"{sanitize(row.label, 60)}: mean {mean}" for row, mean in zip(rows, means, strict=True)]
    figure, axes = new_chart(f"{title}. {'; '.join(texts)}", WIDE, HEAD + ROW * (sides + GAP) * len(rows))
    axes.axvline(0, color=ZERO)
    for i, row in enumerate(rows):
        for side, (role, differences) in enumerate(row.differences.items()):
            _draw(axes, differences, i * (sides + GAP) + side, COLORS[role] if sides > 1 else INK)
    middles = np.arange(len(rows)) * (sides + GAP) + (sides - 1) / 2
    labels = [f"{sanitize(row.label, 60)}\n{_shares(row, stereotype_side)}" for row in rows]
    axes.set_yticks(middles, labels, color=INK)
    axes.set(xlim=(low, high), ylim=(len(rows) * (sides + GAP) - 0.5, -0.6))
    axes.set_xlabel(f"← {ends[0]}", loc="left")
    axes.annotate(
        f"{ends[1]} →", (1, 0), xycoords=(axes.transAxes, axes.xaxis.label), **{"ha": "right", "va": "bottom"}
    ).set(color=axes.xaxis.label.get_color(), fontsize=axes.xaxis.label.get_fontsize())
    set_ticks(axes, "x", 6, tick_number)
    axes.grid(visible=False, axis="y")
    return figure, int(sum(((it < low) | (it > high)).sum() for it in rows[0].differences.values()))


def _draw(axes: Axes, values: np.ndarray, y: float, color: str) -> None:
    """Draw the density, box, whiskers and mean of one model's differences; draw few or equal differences as dots."""
    if len(values) < FEW or np.ptp(values) == 0:
        axes.plot(values, np.full(len(values), y), "o", color=color, markersize=5, alpha=0.55, markeredgewidth=0)
        return
    violin = axes.violinplot(values, [y], orientation="horizontal", widths=0.9, showextrema=False)
    violin["bodies"][0].set(facecolor=color, alpha=0.22, linewidth=0)
    mean = {"marker": "o", "markerfacecolor": PAPER, "markeredgecolor": color, "markeredgewidth": 2, "markersize": 8}
    axes.boxplot(
        values,
        positions=[y],
        widths=0.16,
        orientation="horizontal",
        manage_ticks=False,
        showfliers=False,
        showcaps=False,
        showmeans=True,
        patch_artist=True,
        boxprops={"facecolor": color, "edgecolor": "none"},
        whiskerprops={"color": color, "linewidth": 2},
        medianprops={"color": PAPER, "linewidth": 2, "solid_capstyle": "butt"},
        meanprops=mean,
    )


def _shares(row: Spread, stereotype_side: int) -> str:
    """Return a label: the number of pairs, and the share of pairs on the stereotype's side of 0 for each model."""
    signs = {"before": "○ ", "after": "● "} if len(row.differences) > 1 else {"before": ""}
    shares = [
        f"{signs[role]}{percent(float((values * stereotype_side > 0).mean()))}"
        for role, values in row.differences.items()
        if len(values)
    ]
    side = "left" if stereotype_side < 0 else "right"
    n = max(map(len, row.differences.values()))
    return f"{n:,} {'pair' if n == 1 else 'pairs'}, {' and '.join(shares)} {side} of 0"


def _mean(values: np.ndarray, decimals: int) -> str:
    return number(float(values.mean()), decimals) if len(values) else "undefined"
