"""What a report says of a tuned model: the curves of its training, its method, and the tag that it is asked with."""

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
    """Return the curves of a tuning run, drawn and as a table."""
    logged = json.loads((folder / CURVES).read_text(encoding="utf-8"))
    curves = TrainingCurve(**{name: [(step, value) for step, value in points] for name, points in logged.items()})
    table = curve_table(curves)
    return Section(
        "Training",
        figures=[Figure("", svg(chart), wide=False) for chart in training_charts(curves)],
        parts=[Section(table.caption, tables=[table], folded=True)],
    )


def tuning_method(model: str) -> str:
    """Return the name of the method that a model was tuned by, "" for one that was not tuned here."""
    return tuning_metadata(model).get("method", "")


def tag_note(model: str, untagged: BiasScore | None = None, before: BiasScore | None = None) -> str:
    """Return that a model is to be asked with its control tag, and what it does without; "" for one that has none.

    Args:
        untagged, before: the same measure (pooled FGB*) of the tuned model without its tag and of its base.
    """
    tag = tuning_metadata(model).get("control_tag", "")
    if not tag:
        return ""
    measured = untagged is not None and before is not None
    return text.tag(tag, *(score_text(score) if measured else "" for score in (untagged, before)))


def tuning_metadata(model: str) -> dict[str, str]:
    """Return what a tuning wrote beside the weights, nothing for a model that was not tuned here."""
    file = Path(model) / TUNING_FILE
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
