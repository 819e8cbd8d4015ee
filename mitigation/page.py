"""Report sections and warnings of a tuned model: training curves, method, control tag, prompts tuned on."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.report.figures import AFTER_COLOR, INK, MUTED, PANEL, new_chart, set_ticks, styled, svg
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, tick_number
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.words import note
from evenhand.evaluation.runs.record import FINISHED, read_run, run_state
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.tables import read_table
from evenhand.mitigation.labels import LABELS
from evenhand.mitigation.tuned_base import tuning_metadata

WORDS = Path(__file__).with_name("words.j2")
CURVES = "curves.json"
Curve = Sequence[tuple[int, float]]  # pairs of a training step and a value
FEW_POINTS = 15  # a longer curve has no dots


def training_section(folder: Path) -> Section:
    """Return the report section of a tuning run's curves: charts of the loss and, if measured, of pooled FGB*."""
    curves = json.loads((folder / CURVES).read_text(encoding="utf-8"))
    charts = training_charts(curves["train_loss"], curves.get("validation_loss", ()), curves.get("bias", ()))
    return Section("Training", figures=charts)


def tuning_method(model: str) -> str:
    """Return the name of the method that tuned a model; "" for other models."""
    return tuning_metadata(Path(model)).get("method", "")


def tag_note(model: str, untagged: BiasScore | None = None, before: BiasScore | None = None) -> str:
    """Return a note on the control tag of a model; with pooled FGB* of the model without its tag and of its base.

    A model without a tag has no note.
    """
    tuned = tuning_metadata(Path(model))
    if not tuned.get("control_tag"):
        return ""
    scores = {"untagged": untagged, "before": before}
    return note(WORDS, "control_tag", tag=tuned["control_tag"], is_activated=tuned.get("is_activated"), **scores)


@styled
def training_charts(train_loss: Curve, validation_loss: Curve = (), bias: Curve = ()) -> list[Figure]:
    """Return charts of the loss and, if measured, of pooled FGB* (in natural units) against the training step."""
    losses = {"train": (train_loss, MUTED), "validation": (validation_loss, INK)}
    bias = [(step, PER_UNIT * value) for step, value in bias]
    titles = {"loss": losses, f"pooled FGB*, {UNIT}, on a small fixed prompt set": {"": (bias, AFTER_COLOR)}}
    charts = []
    for title, curves in titles.items():
        finite = {name: finite_points(curve) for name, (curve, _) in curves.items()}
        if not any(finite.values()):
            continue
        figure, axes = new_chart(f"{title} against the training step", *PANEL)
        for name, points in finite.items():
            if points:
                marker = "o" if len(points) <= FEW_POINTS else ""
                steps, values = zip(*points, strict=True)
                color = curves[name][1]
                axes.plot(steps, values, color=color, marker=marker, markersize=5, label=name, clip_on=False)
        axes.set(title=title, xlabel="training step")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
        for direction in "xy":
            set_ticks(axes, direction, 4, tick_number)
        if "" not in curves:
            axes.legend(loc="best", handlelength=1.2)
        charts.append(Figure("", svg(figure), wide=False))
    return charts


def finite_points(curve: Curve) -> list[tuple[int, float]]:
    """Return the points of a curve whose value is finite."""
    return [(step, value) for step, value in curve if math.isfinite(value)]


def tuned_on_warnings(
    measured: Path,
    model: str,
    labels: Path | None = None,
    tuning: Path | None = None,
    *,
    untuned_by: str | None = None,
) -> list[str]:
    """Return warnings that a model was measured on prompts that it was tuned on, or as never tuned on where it was.

    The folders of the labelling and of the tuning run are by default read from the folder of the adapter. `untuned_by`
    is the setting of the measurement.
    """
    labels = labelling_of(model, labels, tuning)
    if labels is None:
        return []
    # Texts are compared, not ids: a user may number the prompts of each file from 1.
    measured_prompts = pd.MultiIndex.from_frame(
        read_table(measured / "prompts.parquet", [columns.PERSONA, columns.TEXT])
    )
    tuned_prompts = pd.MultiIndex.from_frame(read_table(labels / f"{LABELS}.parquet", [columns.PERSONA, columns.TEXT]))
    n = int(measured_prompts.isin(tuned_prompts).sum())
    warnings = [note(WORDS, "tuned_on", n=n, n_of=len(measured_prompts))] if n else []
    named = tuned_although_marked(measured, labels, untuned_by)
    if named:
        warnings.append(note(WORDS, "not_untuned", by=untuned_by, names=named))
    return warnings


def labelling_of(model: str, labels: Path | None, tuning: Path | None) -> Path | None:
    """Return the folder of the labelling on which a model was tuned; None if it is not known, or was deleted.

    None for a folder: it is read from the folder of the adapter.
    """
    if tuning is None and tuning_metadata(Path(model)) and run_state(Path(model).parent, "tuning") == FINISHED:
        tuning = Path(model).parent
    if labels is None and tuning is not None:
        labels = Path(read_run(tuning, "tune", "tuning")[0]["labels"])
    return labels if labels is not None and (labels / f"{LABELS}.parquet").exists() else None


def tuned_although_marked(measured: Path, labels: Path, untuned_by: str | None) -> list[str]:
    """Return what the prompts of a measurement mark as never tuned on and the labelled responses have, sorted.

    The result has descriptors, templates or cues, by the setting `untuned_by` of the measurement; by "axis" as by
    "descriptor", because a descriptor of two axes is left out in both.
    """
    if untuned_by is None:
        return []
    name = columns.DESCRIPTOR if untuned_by == columns.AXIS else untuned_by
    prompts = read_table(measured / "prompts.parquet", [columns.UNTUNED, name])
    marked = set(prompts[name][prompts[columns.UNTUNED].astype(bool)])
    labelled = read_table(labels / f"{LABELS}.parquet", [columns.PROMPT_ID, columns.DESCRIPTOR])
    if name != columns.DESCRIPTOR:
        asked = read_table(Path(read_run(labels, "label", "labels")[0]["run"]) / "prompts.parquet")
        labelled = asked[asked[columns.PROMPT_ID].isin(labelled[columns.PROMPT_ID])]
    return sorted(map(str, marked & set(labelled[name]))) if name in labelled else []
