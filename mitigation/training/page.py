"""Report sections of a tuned model: training curves, method and control tag."""

import json
from pathlib import Path

from evenhand.evaluation.models.revisions import TUNING_FILE
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.numbers import score_text
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.results import BiasScore
from evenhand.mitigation.training.plots import TrainingCurve, curve_table, training_charts

text = Sentences(__file__)

CURVES = "curves.json"


def training_section(folder: Path) -> Section:
    """Return the training curves of a tuning run, as charts and as a table."""
    logged = json.loads((folder / CURVES).read_text(encoding="utf-8"))
    curves = TrainingCurve(**{name: [(step, value) for step, value in points] for name, points in logged.items()})
    table = curve_table(curves)
    return Section(
        "Training",
        figures=[Figure("", svg(chart), wide=False) for chart in training_charts(curves)],
        parts=[Section(table.caption, tables=[table], folded=True)],
    )


def tuning_method(model: str) -> str:
    """Return the method of a tuned model; "" for other models."""
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
