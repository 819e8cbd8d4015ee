"""Warnings about prompts that a model was tuned on, whose scores do not generalise to other prompts."""

from pathlib import Path

from evenhand.evaluation.results import PROMPT_ID
from evenhand.evaluation.runs.manifest import read_run
from evenhand.evaluation.runs.tables import read_table
from evenhand.mitigation.training.page import text, tuning_metadata

LABELS, MANIFEST = "labels.parquet", "run.json"


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
