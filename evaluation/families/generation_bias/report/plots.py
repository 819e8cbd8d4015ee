"""Style against frequency in a corpus, drawn."""

import math
from collections.abc import Iterable

import pandas as pd
from markupsafe import Markup

from evenhand.evaluation.report.numbers import visible
from evenhand.evaluation.report.panels import BOTTOM, LEFT, TOP, horizontal_lines, widened
from evenhand.evaluation.report.plots import Scale, scale_for, svg_circle, svg_figure, svg_text, tick_text, ticks

NAMED_POINTS, LONGEST_LABEL = 5, 28  # in a cloud of points
LETTER = 2.5  # about the width of a letter in a narrow panel
NEVER = LEFT + 3  # where points stand that a logarithmic scale has no place for


def corpus_panels(corpus: pd.DataFrame) -> list[Markup]:
    """Return one panel for each style cluster: a descriptor's mean probability of it against its frequency.

    Paper 002, Figures 3, 5 and 6. The frequency is drawn on a logarithmic scale; descriptors that never occur stand at
    its left end, apart. The most frequent descriptor is named, and those of the highest probability before tuning.
    """
    occur = [math.log10(frequency) for frequency in corpus["frequency"] if frequency > 0]
    start = LEFT + 3 if len(occur) == len(corpus) else LEFT + 17
    x = Scale(*widened(min(occur, default=-1.0), max(occur, default=0.0)), start, 97.0)
    return [_corpus_panel(cluster, rows, x) for cluster, rows in corpus.groupby("cluster", sort=False)]


def _corpus_panel(cluster: str, rows: pd.DataFrame, x: Scale) -> Markup:
    y = scale_for((100 * value for side in ("before", "after") for value in rows[side]), BOTTOM, TOP)
    rows = rows.sort_values("before", ascending=False, kind="stable")
    places = [x(math.log10(frequency)) if frequency > 0 else NEVER for frequency in rows["frequency"]]
    points = {
        side: [
            (name, across, y(100 * share))
            for name, across, share in zip(rows["descriptor"], places, rows[side], strict=True)
            if math.isfinite(share)
        ]
        for side in ("before", "after")
    }
    parts = [svg_text(_power(tick), x(tick), 88, "tick middle") for tick in ticks(x, 4) if tick == round(tick)]
    if (rows["frequency"] == 0).any():
        parts.append(svg_text("never", NEVER, 88, "tick middle"))
    parts.append(svg_text("usages for each example of the corpus", (LEFT + 97) / 2, 98, "tick middle"))
    parts += horizontal_lines(y, lambda tick: f"{tick_text(tick)} %")
    parts += [svg_circle(across, up, 2.5, f"dot {side}") for side in points for _, across, up in points[side]]
    most_frequent = sorted(points["before"], key=lambda point: -point[1])[:1]
    parts += _point_labels([*points["before"][: NAMED_POINTS - 1], *most_frequent])
    parts.append(svg_text(visible(cluster, LONGEST_LABEL), 0, 6, "label strong"))
    title = f"Mean probability of {visible(cluster, 120)} for each descriptor, against its frequency in the corpus"
    return svg_figure("panel", title, *parts)


def _point_labels(points: Iterable[tuple[str, float, float]]) -> list[Markup]:
    """Return names beside points, on the side that has room; one that would lie on another is left out."""
    labels, taken = [], []
    for name, across, up in dict.fromkeys(points):
        text = visible(name, LONGEST_LABEL)
        width = 2.5 + LETTER * len(text)
        left_of = across + width > 100
        start = across - width if left_of else across
        if any(abs(up - height) < 6 and start < end and begin < start + width for begin, end, height in taken):
            continue
        taken.append((start, start + width, up))
        shift, css_class = (-2.5, "label end") if left_of else (2.5, "label")
        labels.append(svg_text(text, across + shift, up + 1.8, css_class))
    return labels


def _power(exponent: float) -> str:
    """Return a power of ten as "10⁻³"."""
    return "10" + f"{exponent:.0f}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
