"""Report sections and warnings of a tuned model: training curves, method, control tag, prompts tuned on."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.figure

from evenhand.evaluation.manifest import read_run
from evenhand.evaluation.models.revisions import TUNING_FILE
from evenhand.evaluation.report.figures import AFTER, INK, MUTED, PANEL, new_chart, set_ticks, styled, svg
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number, score_text, tick_number
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Cell, Row, Table
from evenhand.evaluation.score import PROMPT_ID, BiasScore
from evenhand.evaluation.tables import read_table

text = Sentences(__file__)

CURVES = "curves.json"
Curve = Sequence[tuple[int, float]]  # (step, value) pairs
FEW_POINTS = 15  # a longer curve has no dots
LABELS, MANIFEST = "labels.parquet", "run.json"


def training_section(folder: Path) -> Section:
    """Return the report section of a tuning run's training curves, as charts and as a table."""
    logged = json.loads((folder / CURVES).read_text(encoding="utf-8"))
    table = curve_table(**logged)
    return Section(
        "Training",
        figures=[Figure("", svg(chart), wide=False) for chart in training_charts(**logged)],
        parts=[Section(table.caption, tables=[table], folded=True)],
    )


def tuning_method(model: str) -> str:
    """Return the name of the method that tuned a model; "" for other models."""
    return tuning_metadata(model).get("method", "")


def tag_note(model: str, untagged: BiasScore | None = None, before: BiasScore | None = None) -> str:
    """Return a note on the control tag of a model; "" for a model without a tag.

    Args:
        untagged, before: pooled FGB* of the tuned model without its tag, and of its base.
    """
    tag = tuning_metadata(model).get("control_tag", "")
    if not tag:
        return ""
    measured = untagged is not None and before is not None
    return text.tag(tag, *(score_text(score) if measured else "" for score in (untagged, before)))


def tuning_metadata(model: str) -> dict[str, str]:
    """Return the content of a tuned model's evenhand.json; {} for other models."""
    file = Path(model) / TUNING_FILE
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


@styled
def training_charts(train_loss: Curve, validation_loss: Curve = (), bias: Curve = ()) -> list[matplotlib.figure.Figure]:
    """Return charts of the loss and, if measured, of pooled FGB* (in natural units) against the training step."""
    losses = {"train": (train_loss, MUTED), "validation": (validation_loss, INK)}
    bias = [(step, PER_UNIT * value) for step, value in bias]
    charts = {"loss": losses, f"pooled FGB*, {UNIT}, on a small fixed prompt set": {"": (bias, AFTER)}}
    return [
        _curve_chart(title, curves)
        for title, curves in charts.items()
        if any(math.isfinite(value) for curve, _ in curves.values() for _, value in curve)
    ]


def _curve_chart(title: str, curves: Mapping[str, tuple[Curve, str]]) -> matplotlib.figure.Figure:
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


def curve_table(train_loss: Curve, validation_loss: Curve = (), bias: Curve = ()) -> Table:
    """Return a table of the curves at the steps at which the validation loss or the bias was measured."""
    curves = [dict(train_loss), dict(validation_loss), {step: PER_UNIT * value for step, value in bias}]
    rows = [
        Row(f"{step:,}", tuple(Cell(number(curve[step], 3) if step in curve else "") for curve in curves))
        for step in sorted(curves[1].keys() | curves[2].keys()) or sorted(curves[0])
    ]
    columns = ("step", "training loss", "validation loss", f"pooled FGB*, {UNIT}")
    return Table("The curves as a table", columns, tuple(rows))


def tuned_on_warnings(measured: Path, model: str, labels: Path | None = None, tuning: Path | None = None) -> list[str]:
    """Return one warning, as a list, if a model was measured on prompts that it was tuned on; else [].

    Args:
        measured: the folder of the measurement.
        model: the measured model; an adapter is in the folder of its tuning run.
        labels, tuning: the folders of the labelling and of the tuning run; by default read from the adapter's folder.
    """
    if tuning is None and tuning_metadata(model) and (Path(model).parent / MANIFEST).exists():
        tuning = Path(model).parent
    if labels is None and tuning is not None:
        labels = Path(read_run(tuning, "tune", "tuning")[0]["labels"])
    if labels is None or not (labels / LABELS).exists():
        return []
    measured_ids, tuned_ids = (read_table(path)[PROMPT_ID] for path in (measured / "prompts.parquet", labels / LABELS))
    n = int(measured_ids.isin(set(tuned_ids)).sum())
    return [text.tuned_on(n, len(measured_ids))] if n else []
