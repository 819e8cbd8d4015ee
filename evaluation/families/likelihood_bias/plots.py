"""Charts of perplexities: distributions by axis and template, and all pairs of an axis's descriptors.

Source: paper 002, Figures 2 and 4. Rows have a fixed height, so that their labels fit. A chart that is wider than the
page scrolls.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from evenhand.evaluation.report.figures import AFTER, INK, MUTED, SHADE, SMALL, ZERO, new_chart, styled
from evenhand.evaluation.report.numbers import sanitize, tick_number

CELL_WIDTH, CELL_HEIGHT, LETTER = 44, 20, 6.1  # pixels: a cell of axis by template; about the width of a letter
PAIR = 11  # width and height in pixels of the square of a pair of descriptors
NAME, SENTENCE = 40, 56  # longest displayed name of a descriptor or axis, and longest template, in characters
# Colours of a pair: the row's descriptor is less likely, or likelier, in more than half of all pairs of sentences.
LESS_LIKELY, LIKELIER = to_rgb("#c8670f"), to_rgb("#2f7fc6")


def short(template: str) -> str:
    """Return a shortened template, with its slot as in the paper's Figure 4: {NP} or, for a plural, {PNP}."""
    return sanitize(template.replace("{plural_noun_phrase}", "{PNP}").replace("{noun_phrase}", "{NP}"), SENTENCE)


def axis_name(axis: str) -> str:
    """Return an axis's displayed name."""
    return sanitize(axis.replace("_", " "), NAME)


@styled
def spread_chart(label: str, quantiles: Sequence[pd.DataFrame]) -> Figure:
    """Return a chart of distributions in cells of templates × axes: 5 % to 95 % quantile, box, median.

    Args:
        label: the chart's text alternative.
        quantiles: the 5, 25, 50, 75 and 95 % quantiles, positive: five frames of templates × axes. All cells have the
            same logarithmic scale.
    """
    logs = np.log10(np.stack([frame.to_numpy(np.float64) for frame in quantiles], axis=2))
    templates, axis_names = map(short, quantiles[0].index), map(axis_name, quantiles[0].columns)
    templates, axis_names = list(templates), list(axis_names)
    known = logs[np.isfinite(logs)]
    low, high = (known.min() - 0.02, known.max() + 0.02) if len(known) else (0.0, 1.0)
    rows, columns = logs.shape[:2]
    width = LETTER * max(map(len, templates)) + CELL_WIDTH * columns + 0.8 * LETTER * max(map(len, axis_names))
    height = CELL_HEIGHT * rows + 0.7 * LETTER * max(map(len, axis_names)) + 50
    figure, axes = new_chart(label, width, height)
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    for column in range(0, columns, 2):
        axes.axvspan(column, column + 1, color=SHADE, linewidth=0)
    across = np.arange(columns)[None, :, None] + 0.05 + 0.9 * (logs - low) / (high - low)
    down = np.broadcast_to(np.arange(rows)[:, None] + 0.5, (rows, columns))
    is_known = np.isfinite(logs).all(axis=2)
    across, down = across[is_known], down[is_known]
    axes.plot(*_segments(across[:, 0], across[:, 4], down, down), color=ZERO, linewidth=1)
    axes.plot(*_segments(across[:, 1], across[:, 3], down, down), color=AFTER, linewidth=5)
    axes.plot(*_segments(across[:, 2], across[:, 2], down - 0.3, down + 0.3), color=INK, linewidth=2)
    powers = _powers(low, high)
    for i, power in enumerate(powers):  # one below the other, as they would not fit side by side
        ticks = np.arange(columns) + 0.05 + 0.9 * (power - low) / (high - low)
        axes.vlines(ticks, 0, rows, color=ZERO, linewidth=0.5, zorder=0.9)
        for tick in ticks:
            axes.annotate(
                _power_text(power),
                (tick, rows),
                (0, -4 - 12 * i),
                textcoords="offset points",
                horizontalalignment="center",
                verticalalignment="top",
                fontsize=SMALL - 1,
                color=MUTED,
                annotation_clip=False,
            )
    axes.set_yticks(np.arange(rows) + 0.5, templates, color=INK)
    axes.set_xticks(np.arange(columns) + 0.5, axis_names, color=INK, rotation=40, ha="left", rotation_mode="anchor")
    axes.xaxis.tick_top()
    axes.grid(visible=False)
    axes.set_yticks(np.arange(rows), minor=True)
    axes.grid(axis="y", which="minor")
    axes.tick_params(which="minor", length=0)
    return figure


@styled
def pair_chart(label: str, above: pd.DataFrame) -> Figure:
    """Return a chart of all pairs of descriptors: a triangle of squares with the descriptors at the left and below.

    Args:
        label: the chart's text alternative.
        above: the result of `effect_matrix`, in the order of the chart: how often a sentence with the row's descriptor
            has the higher perplexity. Squares are orange above 0.5, blue below, and pale near 0.5.
    """
    names, n = [sanitize(str(name), NAME) for name in above.index], len(above)
    room = 0.58 * PAIR * max(map(len, names)) + 14
    figure, axes = new_chart(label, max(PAIR * n + room, 260), PAIR * n + room)
    axes.imshow(pair_colours(above.to_numpy()), interpolation="none", extent=(0, n, n, 0))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(np.arange(n) + 0.5, names, fontsize=PAIR - 1, color=INK, family="sans-serif")
    axes.tick_params(axis="x", rotation=90)
    axes.grid(visible=False)
    return figure


def pair_colours(above: np.ndarray) -> np.ndarray:
    """Return colours with opacity for pairs below the diagonal, (n, n, 4) in [0, 1]; other pairs are transparent.

    The opacity grows from its minimum at 0.5 to 1 at 0 and 1, so a pair without a difference is hardly coloured.
    """
    colours = np.zeros((*above.shape, 4))
    colours[..., :3] = np.where((above > 0.5)[..., None], LESS_LIKELY, LIKELIER)
    opacity = np.nan_to_num(np.abs(above - 0.5) * 2)
    colours[..., 3] = np.tril(np.maximum(opacity, 0.06), -1) * np.isfinite(above)
    return colours


def _segments(x1: np.ndarray, x2: np.ndarray, y1: np.ndarray, y2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gap = np.full(len(x1), math.nan)
    return np.stack([x1, x2, gap], axis=1).ravel(), np.stack([y1, y2, gap], axis=1).ravel()


def _powers(low: float, high: float) -> list[float]:
    """Return the logarithms of at most two round numbers in a range, as far apart as possible."""
    for digits in ((0.0,), (0.0, math.log10(2), math.log10(5))):
        powers = [power + digit for power in range(math.floor(low), math.ceil(high) + 1) for digit in digits]
        powers = [power for power in powers if low <= power <= high]
        if len(powers) > 1:
            return [powers[0], powers[-1]]
    return powers


def _power_text(log: float) -> str:
    if log < 4 or log != round(log):
        return tick_number(10.0**log)
    return "10" + f"{log:.0f}".translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
