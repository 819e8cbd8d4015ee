"""The base of a tuned model, for methods that ask the base, too."""

from pathlib import Path

from evenhand.evaluation.files import read_json
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.revisions import TUNING_FILE, hub_repository


def base_of(tuned: Model) -> Model:
    """Return the base of a model that `tune` made, not loaded; the model itself if its folder does not exist yet."""
    folder = Path(tuned.name)
    file = folder / TUNING_FILE
    if not file.exists():
        return tuned
    facts = read_json(file, "model")
    name = facts["base"]
    if (folder / name).exists():  # relative to the folder, so that both can be moved
        name = str((folder / name).resolve())
    return tuned.with_settings(name=name, revision=facts["base_revision"] if hub_repository(name) else None)
