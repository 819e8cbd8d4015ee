"""The curves of a training as charts and as a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from evenhand.evaluation.report.figures import AFTER, INK, MUTED, PANEL, new_chart, set_ticks, styled
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number, tick_number
from evenhand.evaluation.report.tables import Cell, Row, Table

FEW_POINTS = 15  # a longer curve has no dots


@dataclass(frozen=True)
class TrainingCurve:
    """The logs of a training as (step, value) pairs; `bias` is pooled FGB* in natural units."""

    train_loss: Sequence[tuple[int, float]]
    validation_loss: Sequence[tuple[int, float]] = ()
    bias: Sequence[tuple[int, float]] = ()


@styled
def training_charts(training: TrainingCurve) -> list[Figure]:
    """Return the loss against the step and, where it was measured, pooled FGB* against the step."""
    losses = {"train": (training.train_loss, MUTED), "validation": (training.validation_loss, INK)}
    bias = [(step, PER_UNIT * value) for step, value in training.bias]
    charts = {"loss": losses, f"pooled FGB*, {UNIT}, on a small fixed prompt set": {"": (bias, AFTER)}}
    return [
        _curve_chart(title, curves)
        for title, curves in charts.items()
        if any(math.isfinite(value) for curve, _ in curves.values() for _, value in curve)
    ]


def _curve_chart(title: str, curves: Mapping[str, tuple[Sequence[tuple[int, float]], str]]) -> Figure:
    figure, axes = new_chart(f"{title} against the training step", *PANEL)
    for name, (curve, color) in curves.items():
        points = [(step, value) for step, value in curve if math.isfinite(value)]
        if points:
            marker = "o" if len(points) <= FEW_POINTS else ""
            axes.plot(*zip(*points, strict=True), color=color, marker=marker, markersize=5, label=name, clip_on=False)
    axes.set(title=title, xlabel="training step")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    set_ticks(axes, "x", 4, tick_number)
    set_ticks(axes, "y", 4, tick_number)
    if "" not in curves:
        axes.legend(loc="best", handlelength=1.2)
    return figure


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
