"""Which prompts a model was tuned on: its numbers on these say how well it learned them, not how it answers others."""

from pathlib import Path

from evenhand.evaluation.results import PROMPT_ID
from evenhand.evaluation.runs.manifest import read_run
from evenhand.evaluation.runs.tables import read_table
from evenhand.mitigation.training.page import text, tuning_metadata

LABELS, MANIFEST = "labels.parquet", "run.json"


def tuned_on_warnings(measured: Path, model: str, labels: Path | None = None, tuning: Path | None = None) -> list[str]:
    """Return a warning where a model was measured on prompts whose labelled responses it was tuned on; none or one.

    Args:
        measured: a measuring run.
        model: what was measured; an adapter lies in the folder of its tuning.
        labels, tuning: the labelling and the tuning run, where they are known.
    """
    if tuning is None and tuning_metadata(model) and (Path(model).parent / MANIFEST).exists():
        tuning = Path(model).parent
    if labels is None and tuning is not None:
        labels = Path(read_run(tuning, "tune", "tuning")[0]["labels"])
    if labels is None or not (labels / LABELS).exists():
        return []
    asked, tuned = (read_table(path)[PROMPT_ID] for path in (measured / "prompts.parquet", labels / LABELS))
    n = int(asked.isin(set(tuned)).sum())
    return [text.tuned_on(n, len(asked))] if n else []
