"""Matplotlib charts as images for HTML pages.

A chart is a matplotlib `Figure`; the figure's label is the text alternative. A page embeds the SVG of matplotlib as an
image, so nothing in it can run or be styled; in dark mode, the style sheet inverts its lightness.
"""

import io
import warnings
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from evenhand.evaluation.report.numbers import sanitize, tick_number

INK = "#1f1e1b"
MUTED = "#65625b"
FAINT = "#e3e0d8"
ZERO = "#9d998f"
PAPER = "#fffefb"
BEFORE_COLOR = "#a64b00"
AFTER_COLOR = "#0b5394"
TEXT_SIZE = 12  # pixels
SMALL = 11  # pixels
WIDE = 880  # pixels: the width of a page on a wide screen
PANEL = (360, 250)  # pixels: the size of a small chart

_STYLE = {
    "figure.dpi": 72,  # 1 point = 1 pixel
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": TEXT_SIZE,
    "text.color": INK,
    "axes.titlesize": TEXT_SIZE,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": SMALL,
    "axes.labelcolor": MUTED,
    "axes.labelpad": 6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.spines.bottom": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 1,
    "axes.axisbelow": True,
    "lines.solid_capstyle": "butt",
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.labelcolor": INK,
}
styled = matplotlib.rc_context(_STYLE)  # decorator of functions that return a chart


def new_chart(label: str, width: float, height: float, **grid: Any) -> tuple[Figure, Any]:
    """Return a figure of `width` × `height` pixels, with `label` as the text alternative, and the figure's axes.

    `grid` has arguments of `Figure.subplots` for several panels; without them, the axes are one `Axes`.
    """
    figure = Figure(figsize=(width / 72, height / 72), layout="constrained", label=label)
    return figure, figure.subplots(**grid)


def set_ticks(axes: Axes, axis: str, n_ticks: int, text: Callable[[float], str]) -> None:
    """Set about `n_ticks` ticks at round numbers on the "x" or "y" axis; `text` returns the label of a number."""
    tick_axis = getattr(axes, f"{axis}axis")
    tick_axis.set_major_locator(MaxNLocator(n_ticks, steps=[1, 2, 5, 10]))
    tick_axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def tick_percent(fraction: float) -> str:
    """Return the tick label of a fraction, which is a percentage such as "25 %"."""
    return f"{tick_number(100 * fraction)} %"


def svg(figure: Figure) -> Markup:
    """Return a chart as an image element with the SVG that matplotlib writes; equal charts give equal bytes."""
    label = figure.get_label()
    buffer = io.BytesIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": label}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has other fonts
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(buffer, metadata=metadata)  # `savefig` draws the chart twice
    width = figure.get_size_inches()[0] * 72
    return Markup('<img class="chart" alt="{}" style="width: {:g}px" src="data:image/svg+xml;base64,{}">').format(
        label, width, b64encode(buffer.getvalue()).decode()
    )


@styled
def box_figure(label: str, values: Mapping[str, Sequence[float]], ideal: float | None = None) -> Figure:
    """Return a chart with a box for each list of values by name; `about_boxes` in words.j2 says what it shows."""
    figure, axes = new_chart(label, WIDE, 60 + 26 * len(values))
    line = {"color": INK}
    axes.boxplot(
        list(values.values()),
        orientation="horizontal",
        tick_labels=[sanitize(name, 60) for name in values],
        whis=(5, 95),
        showfliers=False,
        boxprops=line,
        whiskerprops=line,
        capprops=line,
        medianprops={"color": BEFORE_COLOR, "linewidth": 2},
        showmeans=True,
        meanprops={"marker": "o", "markerfacecolor": PAPER, "markeredgecolor": INK},
    )
    axes.set(xlabel=label)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    if ideal is not None:
        axes.axvline(ideal, color=ZERO)
    return figure
