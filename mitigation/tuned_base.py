"""What the folder of a tuned model says of its tuning and of its base, for methods and pages that need it."""

from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_json
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.revisions import TUNING_FILE, hub_repository


def tuning_metadata(folder: Path) -> dict[str, Any]:
    """Return the content of a tuned model's evenhand.json (`card.TuningFacts`); {} for other models."""
    file = folder / TUNING_FILE
    content = read_json(file, "model") if file.exists() else {}
    return content if isinstance(content, dict) else {}


def base_of(tuned: Model) -> Model:
    """Return the base of a model that `tune` made, not loaded; the model itself if its folder does not exist yet."""
    folder = Path(tuned.name)
    facts = tuning_metadata(folder)
    if not facts:
        return tuned
    if "base" not in facts:  # of an export, or of another trainer
        raise InputError(
            "model", f"{folder / TUNING_FILE} names no base, which the method needs; give the tuned model."
        )
    name = facts["base"]
    if (folder / name).exists():  # relative to the folder, so that both can be moved
        name = str((folder / name).resolve())
    return tuned.with_settings(name=name, revision=facts["base_revision"] if hub_repository(name) else None)
