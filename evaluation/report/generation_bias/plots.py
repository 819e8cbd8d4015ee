"""The threshold plan, the training curves, and style against frequency, drawn."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import pandas as pd
from markupsafe import Markup

from evaluation.report.generation_bias.content import ThresholdPlan, TrainingCurve
from evaluation.report.numbers import UNIT, number, visible
from evaluation.report.plots import Scale, scale_for, svg_circle, svg_figure, svg_line, svg_text, tick_text, ticks

# Where a panel's own area begins and ends, in percent: room for a title above and for numbers at the left and below.
LEFT, TOP, BOTTOM = 15.0, 13.0, 80.0
FEW_POINTS = 15  # a curve of more is drawn without dots
NAMED_POINTS, LONGEST_LABEL = 5, 28  # in a cloud of points
LETTER = 2.5  # about the width of a letter in a narrow panel
NEVER = LEFT + 3  # where points stand that a logarithmic scale has no place for


def plan_panels(plan: ThresholdPlan) -> list[Markup]:
    """Return one panel for each α: the predicted share of pooled FGB* left against the quantile of b.

    All panels have one scale, set by what is trusted; what lies beyond is cut off. The background of quantiles that
    are not to be trusted is shaded.
    """
    table = plan.table.sort_values(["alpha", "quantile"], kind="stable")
    trusted = table[table["trusted"].astype(bool)]
    y = scale_for([1.0, *trusted["predicted_fgb_left"], *trusted["upper"]], BOTTOM, TOP)
    x = Scale(*_widened(table["quantile"].min(), table["quantile"].max()), LEFT + 3, 97.0)
    return [
        _plan_panel(plan, alpha, rows.to_dict("records"), x, y) for alpha, rows in table.groupby("alpha", sort=True)
    ]


def _plan_panel(plan: ThresholdPlan, alpha: float, records: Sequence[dict], x: Scale, y: Scale) -> Markup:
    drawn = [row for row in records if math.isfinite(row["predicted_fgb_left"])]
    title = f"α = {alpha:g}: predicted pooled FGB* left, percent of before, against the quantile of b"
    parts = [_rect(left, right) for left, right in _untrusted_spans(records, x)]
    parts += _grid(x, y, "quantile of b", lambda share: f"{tick_text(100 * share)} %", about=5)
    parts.append(_curve([(x(row["quantile"]), y(row["predicted_fgb_left"])) for row in drawn], "ink"))
    parts.append(svg_text(f"α = {alpha:g}", 0, 6, "label strong"))
    for row in drawn:
        here, share = x(row["quantile"]), row["predicted_fgb_left"]
        chosen = plan.is_chosen(alpha, row["quantile"])
        role = "after" if chosen else "ink"
        if math.isfinite(row["lower"]) and math.isfinite(row["upper"]) and y.holds(row["lower"]):
            parts.append(svg_line(here, y(y.border(row["lower"])), here, y(y.border(row["upper"])), f"whisker {role}"))
        if y.holds(share):
            parts.append(svg_circle(here, y(share), 5 if chosen else 2.5, role))
        if chosen:
            label = f"● chosen: {tick_text(row['quantile'])}, {number(100 * share, 0)} % left"
            parts.append(svg_text(label, 100, 6, "label after end"))
            title += f"; chosen: quantile {tick_text(row['quantile'])}, {number(100 * share, 0)} % left"
    return svg_figure("panel", title, *parts)


def training_panels(training: TrainingCurve) -> list[Markup]:
    """Return the loss against the step and, where it was measured, pooled FGB* against the step."""
    losses = [("train", training.train_loss, "muted"), ("validation", training.validation_loss, "ink")]
    bias = [(step, value * 1000) for step, value in training.bias]
    panels = [("loss", losses), (f"pooled FGB*, {UNIT}, on a small fixed prompt set", [("", bias, "after")])]
    return [
        _curve_panel(title, curves)
        for title, curves in panels
        if any(math.isfinite(value) for _, curve, _ in curves for _, value in curve)
    ]


def _curve_panel(title: str, curves: Sequence[tuple[str, Sequence[tuple[int, float]], str]]) -> Markup:
    curves = [(name, [(s, v) for s, v in curve if math.isfinite(v)], role) for name, curve, role in curves]
    steps = [step for _, curve, _ in curves for step, _ in curve]
    y = scale_for((value for _, curve, _ in curves for _, value in curve), BOTTOM, TOP)
    x = Scale(*_widened(min(0, *steps, 0), max(steps)), LEFT + 3, 78.0 if any(name for name, *_ in curves) else 97.0)
    parts = _grid(x, y, "training step", tick_text, about=4)
    ends = []
    for name, curve, role in curves:
        points = [(x(step), y(value)) for step, value in curve]
        parts.append(_curve(points, role))
        if len(points) <= FEW_POINTS:
            parts += [svg_circle(*point, 2.5, role) for point in points]
        if points:
            ends.append((points[-1][1], points[-1][0], name, role))
    lowest = -math.inf
    for height, right, name, role in sorted(ends):
        lowest = max(height, lowest + 7)  # labels of curves that end close together are moved apart
        parts.append(svg_text(name, right + 2, lowest + 1.5, f"label {role}"))
    parts.append(svg_text(title, 0, 6, "label strong"))
    return svg_figure("panel", f"{title} against the training step", *parts)


def corpus_panels(corpus: pd.DataFrame) -> list[Markup]:
    """Return one panel for each style cluster: a descriptor's mean probability of it against its frequency.

    Paper 002, Figures 3, 5 and 6. The frequency is drawn on a logarithmic scale; descriptors that never occur stand at
    its left end, apart. The most frequent descriptor is named, and those of the highest probability before tuning.
    """
    occur = [math.log10(frequency) for frequency in corpus["frequency"] if frequency > 0]
    start = LEFT + 3 if len(occur) == len(corpus) else LEFT + 17
    x = Scale(*_widened(min(occur, default=-1.0), max(occur, default=0.0)), start, 97.0)
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
    for tick in ticks(y, 3):
        parts.append(svg_line(LEFT, y(tick), 100, y(tick), "zero" if tick == 0 else "grid"))
        parts.append(svg_text(f"{tick_text(tick)} %", LEFT - 2, y(tick) + 1.8, "tick end"))
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


def _untrusted_spans(records: Sequence[dict], x: Scale) -> list[tuple[float, float]]:
    """Return the runs of quantiles that are not to be trusted, each reaching half-way to its trusted neighbours."""
    places = [x(row["quantile"]) for row in records]
    edges = [LEFT, *((left + right) / 2 for left, right in pairwise(places)), 100.0]
    spans: list[tuple[float, float]] = []
    for row, left, right in zip(records, edges[:-1], edges[1:], strict=True):
        if row["trusted"]:
            continue
        if spans and spans[-1][1] == left:
            left = spans.pop()[0]
        spans.append((left, right))
    return spans


def _grid(x: Scale, y: Scale, x_name: str, y_text: Callable[[float], str], about: int) -> list[Markup]:
    """Return horizontal lines with their numbers at the left, and the numbers and the name of the x axis below."""
    grid = [svg_text(tick_text(tick), x(tick), 88, "tick middle") for tick in ticks(x, about)]
    grid.append(svg_text(x_name, (x.start + x.end) / 2, 98, "tick middle"))
    for tick in ticks(y, 3):
        grid.append(svg_line(LEFT, y(tick), 100, y(tick), "zero" if tick == 0 else "grid"))
        grid.append(svg_text(y_text(tick), LEFT - 2, y(tick) + 1.8, "tick end"))
    return grid


def _widened(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _rect(left: float, right: float) -> Markup:
    return Markup('<rect x="{}%" y="{}%" width="{}%" height="{}%" class="untrusted"/>').format(
        round(left, 2), TOP, round(right - left, 2), BOTTOM - TOP
    )


def _curve(points: Sequence[tuple[float, float]], css_class: str) -> Markup:
    """Return a curve; what lies above the panel's own area is cut off."""
    path = " ".join(f"{x},{y}" for x, y in points)
    return Markup(
        '<svg y="{top}%" height="{height}%" viewBox="0 {top} 100 {height}" preserveAspectRatio="none">'
        '<polyline points="{path}" class="{css_class}"/></svg>'
    ).format(top=TOP, height=100 - TOP, path=path, css_class=css_class)
