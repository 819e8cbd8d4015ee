"""Matplotlib charts as SVG in the colours and fonts of a page, for light and dark mode.

A chart is a matplotlib `Figure`; the figure's label is the text alternative. Functions plot in placeholder colours,
which `svg` replaces by the variables of style.css. In the SVG, text remains text, is not parsed as mathematics, and is
escaped by matplotlib.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from evenhand.evaluation.report.numbers import tick_number

# Placeholder colours; `svg` replaces each by the variable of style.css with the same name.
INK, MUTED, FAINT, ZERO = "#010101", "#020202", "#030303", "#040404"
BEFORE, OVER, AFTER, SHADE, PAPER = "#050505", "#060606", "#070707", "#080808", "#090909"
_VARIABLES = dict(
    zip(
        (INK, MUTED, FAINT, ZERO, BEFORE, OVER, AFTER, SHADE, PAPER),
        ("ink", "muted", "faint", "zero", "before", "over", "after", "shade", "paper"),
        strict=True,
    )
)
TEXT, SMALL = 12, 11  # pixels
WIDE, PANEL = 880, (360, 250)  # pixels: the width of a page on a wide screen; the size of a small chart
LETTER_WIDTH = 0.62  # approximate, relative to the font size

_STYLE = {
    **{"figure.dpi": 72, "savefig.dpi": 72, "svg.fonttype": "none", "text.parse_math": False},  # 1 point = 1 pixel
    **{"font.size": TEXT, "text.color": INK, "axes.titlesize": TEXT, "axes.titleweight": "bold"},
    **{"axes.titlelocation": "left", "axes.labelsize": SMALL, "axes.labelcolor": MUTED, "axes.labelpad": 6},
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in (("color", MUTED), ("labelsize", SMALL))},
    **{f"{axis}tick.major.size": 0 for axis in "xy"},
    **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
    **{"axes.facecolor": "none", "figure.facecolor": "none", "savefig.facecolor": "none"},
    **{"axes.grid": True, "grid.color": FAINT, "grid.linewidth": 1, "axes.axisbelow": True},
    **{"lines.solid_capstyle": "butt", "legend.frameon": False, "legend.fontsize": SMALL, "legend.labelcolor": INK},
}
styled = matplotlib.rc_context(_STYLE)  # decorator of functions that return a chart

Box = tuple[float, float, float, float]  # left, bottom, right, top


def new_chart(label: str, width: float, height: float, **grid: Any) -> tuple[Figure, Any]:
    """Return a figure of `width` × `height` pixels, with `label` as the text alternative, and the figure's axes.

    `grid` has arguments of `Figure.subplots` for several panels; without them, the axes are one `Axes`.
    """
    figure = Figure(figsize=(width / 72, height / 72), layout="constrained", label=label)
    figure.get_layout_engine().set(w_pad=2 / 72, h_pad=2 / 72)
    return figure, figure.subplots(**grid)


def set_ticks(axes: Axes, axis: str, n_ticks: int, text: Callable[[float], str]) -> None:
    """Set about `n_ticks` ticks at round numbers on the "x" or "y" axis; `text` returns the label of a number."""
    tick_axis = getattr(axes, f"{axis}axis")
    tick_axis.set_major_locator(MaxNLocator(n_ticks, steps=[1, 2, 5, 10]))
    tick_axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))


def tick_percent(fraction: float) -> str:
    """Return the tick label of a fraction, which is a percentage such as "25 %"."""
    return f"{tick_number(100 * fraction)} %"


def add_margin(low: float, high: float, margin: float = 0.04) -> tuple[float, float]:
    """Return axis limits with a relative margin at both ends, or with a margin of 0.5 if `low` equals `high`."""
    margin = margin * (high - low) or 0.5
    return low - margin, high + margin


def add_tooltip(artist: Artist, text: str) -> None:
    """Add a text to the artist (a plotted element) that the page shows while the pointer is over the artist."""
    artist.set_gid(f"tooltip:{text}")


def svg(figure: Figure) -> Markup:
    """Return a chart as SVG for a page; equal charts give equal bytes.

    The chart scales with the width of its container, from 0.75 to 1.2 times the size of the figure; narrower containers
    scroll.
    """
    label, buffer = figure.get_label(), io.StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": label}), _suppress_glyph_warnings():
        FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    width, height = figure.get_size_inches() * 72
    text = buffer.getvalue()
    text = text[text.index("<g id=") : text.rindex("</svg>")]
    text = re.sub(r'<g id="tooltip:([^"]*)">', r"<g><title>\1</title>", text)
    text = re.sub(r"<!--.*?-->|(?<=>)\s+(?=<)", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]+>", lambda match: _clean_tag(match[0]), text)  # matplotlib escapes < and > elsewhere
    text = re.sub(r'<path d="[^"]*"( clip-path="[^"]*")? style="fill: none"/>|<g/>', "", text)
    return Markup(
        '<svg class="chart" viewBox="0 0 {0:g} {1:g}" role="img" '
        'style="min-width:{2:g}px;max-width:{3:g}px" aria-label="{4}"><title>{4}</title>{5}</svg>'
    ).format(width, height, 0.75 * width, 1.2 * width, label, Markup(text))


@contextmanager
def _suppress_glyph_warnings() -> Iterator[None]:
    """Suppress warnings about glyphs that matplotlib's font lacks, because the browser renders them in other fonts."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _clean_tag(tag: str) -> str:
    """Return an SVG tag with CSS variables as colours, rounded coordinates, and no attributes that style.css sets."""
    tag = re.sub(r'( id="[^"]*")(?=/?>)' if tag.startswith("<g") else r"\s*\n\s*(?=[\"LzCQ])", "", tag)
    tag = re.sub(r"(font-family: [^;\"]*|font-stretch: normal|stroke-linejoin: miter);? ?", "", tag)
    tag = re.sub(r' style=""| transform="rotate\(-0 [^)]*\)"', "", tag).replace("xlink:href=", "href=")
    tag = re.sub("|".join(_VARIABLES), lambda match: f"var(--{_VARIABLES[match[0]]})", tag)
    return re.sub(r' (d|x|y|transform|width|height)="[^"]*"', lambda match: _round_numbers(match[0]), tag)


def _round_numbers(attribute: str) -> str:
    return re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), attribute)


def label_points(
    axes: Axes, points: Sequence[tuple[float, float]], texts: Sequence[str], lines: Iterable[Box] = ()
) -> None:
    """Add a label near each point, at a position with little overlap with points, texts, lines and other labels.

    Args:
        axes: the axes.
        points: (x, y) of each point in data units.
        texts: the text of each label.
        lines: horizontal or vertical lines (x1, y1, x2, y2) in data units, which labels avoid.
    """
    if not len(points):
        return
    with _suppress_glyph_warnings():
        axes.figure.draw_without_rendering()  # computes the layout, which positions in pixels depend on
    to_pixels = axes.transData.transform
    ends = [(to_pixels(line[:2]), to_pixels(line[2:])) for line in lines]
    boxes = [(*np.minimum(*pair) - 1, *np.maximum(*pair) + 1) for pair in ends]
    other_texts = [text.get_window_extent().extents for text in axes.texts]
    frame = axes.get_window_extent().extents
    offsets = place_labels([*map(tuple, to_pixels(points))], texts, frame, other_texts, boxes)
    for point, text, (dx, dy) in zip(points, texts, offsets, strict=True):
        end_x, end_y = max(abs(dx) - text_width(text) / 2, 0), max(abs(dy) - TEXT / 2, 0)
        leader = (
            {"arrowstyle": "-", "color": MUTED, "shrinkA": 0, "shrinkB": 4} if math.hypot(end_x, end_y) > 12 else None
        )
        label = axes.annotate(
            text,
            point,
            (dx, dy),
            textcoords="offset points",
            horizontalalignment="center",
            verticalalignment="center_baseline",
            fontweight="bold",
            arrowprops=leader,
            annotation_clip=False,
        )
        label.set_in_layout(False)


def place_labels(
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    frame: Box,
    obstacles: Iterable[Box] = (),
    lines: Sequence[Box] = (),
) -> list[tuple[float, float]]:
    """Return the offset of each label's centre from the label's point, in pixels.

    The labels are placed greedily, in order. Each label gets the candidate position with the lowest cost: the overlap
    with points, obstacles and earlier labels, plus penalties for distance and for leaving the frame.

    Args:
        points: (x, y) of each point in pixels; y grows upwards.
        texts: the text of each label.
        frame: the box that should contain all labels.
        obstacles: boxes that labels avoid.
        lines: boxes that labels avoid with half the weight.
    """
    occupied = [_box(x, y, 10, 10) for x, y in points] + list(obstacles)
    offsets = []
    for (x, y), text in zip(points, texts, strict=True):
        candidates, width = [], text_width(text)
        for distance in (11.0, 16.0, 22.0, 30.0, 40.0, 52.0):
            across, aslant = distance + width / 2 - 4, 0.6 * (distance - 6) + width / 2
            around = [(aslant, distance), (-aslant, distance), (aslant, -distance), (-aslant, -distance)]
            for dx, dy in (*around, (across, 0.0), (-across, 0.0), (0.0, distance), (0.0, -distance)):
                box = _box(x + dx, y + dy, width, TEXT)
                overlap = sum(_overlap(box, it) for it in occupied) + 0.5 * sum(_overlap(box, it) for it in lines)
                cost = overlap + 0.4 * distance + 1000 * _is_outside(box, frame)
                candidates.append((cost, len(candidates), dx, dy, box))
        *_, dx, dy, box = min(candidates)
        occupied.append(box)
        offsets.append((round(dx, 1), round(dy, 1)))
    return offsets


def text_width(text: str) -> float:
    """Return the approximate width of a label in pixels."""
    return LETTER_WIDTH * TEXT * len(text) + 3


def _box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _overlap(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0


def _is_outside(box: Box, frame: Box) -> bool:
    return box[0] < frame[0] or box[1] < frame[1] or box[2] > frame[2] or box[3] > frame[3]
