"""A check that the default style classifier, which fits only the testbed's models, does not score other models."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.models.revisions import TUNING_FILE, adapter_base, model_revision
from evenhand.evaluation.settings import TESTBED
from evenhand.recipes.settings import FAMILY, LoopSettings, MeasureSettings
from evenhand.recipes.testbed import embedded_files


def check_default_classifier(settings: MeasureSettings | LoopSettings, values: Mapping[str, Any]) -> None:
    """Raise InputError if the testbed's style classifier would score another model only because it is the default.

    The classifier is trained on the testbed's sentences, so its styles of other responses are meaningless. Models that
    Evenhand tuned from the testbed's model are allowed.

    Args:
        settings: the checked settings.
        values: nested settings in the user's file and flags, without defaults.

    Raises:
        InputError: the default would score another model, or responses from a file.
    """
    group = "measure" if isinstance(settings, LoopSettings) else ""
    measured = settings.measure if group else settings
    if FAMILY not in measured.metrics or getattr(settings, "write_prompts", None):
        return
    name, classifier = measured.model.name, getattr(measured, FAMILY).style_classifier.name
    if name == TESTBED or classifier != TESTBED:
        return
    if _is_tuned_from_testbed(Path(name)):
        return
    given = values.get(group) or {} if group else values
    if (given.get(FAMILY) or {}).get("style_classifier"):
        return
    prefix = f"{group}.{FAMILY}" if group else FAMILY
    raise InputError(
        f"{prefix}.style_classifier: the default knows only the testbed's sentences, not the responses of "
        f"{format_value(name)}; give a Hugging Face id or a folder of `train_classifier`, such as "
        f"--{prefix}.style_classifier SamLowe/roberta-base-go_emotions --{prefix}.style_clusters go_emotions, or "
        "'testbed' to use it anyway."
    )


def _is_tuned_from_testbed(folder: Path) -> bool:
    """Return whether a folder has a model that Evenhand tuned from the testbed's model, in one or several rounds."""
    try:
        facts = json.loads((folder / TUNING_FILE).read_text(encoding="utf-8"))
        if facts["base_revision"] == model_revision(str(embedded_files(FAMILY)["model"])):
            return True
        return _is_tuned_from_testbed(Path(adapter_base(folder)[0]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # no such file, or a name that no path can have
        return False
