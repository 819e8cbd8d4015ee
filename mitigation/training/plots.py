"""The curves of a training, drawn and as a table."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number
from evenhand.evaluation.report.panels import BOTTOM, LEFT, TOP, grid, polyline, widened
from evenhand.evaluation.report.plots import Scale, scale_for, svg_circle, svg_figure, svg_text, tick_text
from evenhand.evaluation.report.tables import Cell, Row, Table

FEW_POINTS = 15  # a curve of more is drawn without dots


@dataclass(frozen=True)
class TrainingCurve:
    """What was logged during training, as (step, value) pairs; `bias` is pooled FGB* in natural units."""

    train_loss: Sequence[tuple[int, float]]
    validation_loss: Sequence[tuple[int, float]] = ()
    bias: Sequence[tuple[int, float]] = ()


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
    x = Scale(*widened(min(0, *steps, 0), max(steps)), LEFT + 3, 78.0 if any(name for name, *_ in curves) else 97.0)
    parts = grid(x, y, "training step", tick_text, about=4)
    ends = []
    for name, curve, role in curves:
        points = [(x(step), y(value)) for step, value in curve]
        parts.append(polyline(points, role))
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


def curve_table(training: TrainingCurve) -> Table:
    """Return the curves at the steps at which the validation loss or the bias was measured."""
    curves = [
        ("training loss", dict(training.train_loss), 1.0),
        ("validation loss", dict(training.validation_loss), 1.0),
        (f"pooled FGB*, {UNIT}", dict(training.bias), PER_UNIT),
    ]
    (_, train, _), (_, loss, _), (_, bias, _) = curves
    rows = tuple(
        Row(
            f"{step:,}",
            tuple(Cell(number(curve[step] * factor, 3) if step in curve else "") for _, curve, factor in curves),
        )
        for step in sorted(loss.keys() | bias.keys()) or sorted(train)
    )
    return Table("The curves as a table", ("step", *(name for name, *_ in curves)), rows)
