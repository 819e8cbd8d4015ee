"""A check that the default style classifier, which fits only the testbed's models, does not score other models."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.models.revisions import TUNING_FILE
from evenhand.evaluation.settings import TESTBED
from evenhand.recipes.settings import FAMILY, LoopSettings, MeasureSettings


def check_default_classifier(settings: MeasureSettings | LoopSettings, sources: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError if the testbed's style classifier would score another model only because it is the default.

    The classifier is trained on the testbed's sentences, so its styles of other responses are meaningless. Models that
    Evenhand tuned are not checked, because the testbed's model may be their base.

    Args:
        settings: the checked settings.
        sources: nested settings in the user's file and flags, without defaults.

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
    with suppress(OSError, ValueError):  # a name that no path can have
        if (Path(name) / TUNING_FILE).exists():
            return
    given = [source.get(group) or {} if group else source for source in sources]
    if any((source.get(FAMILY) or {}).get("style_classifier") for source in given):
        return
    prefix = f"{group}.{FAMILY}" if group else FAMILY
    raise InputError(
        f"{prefix}.style_classifier: the default knows only the testbed's sentences, not the responses of "
        f"{format_value(name)}; give a Hugging Face id or a folder of `train_classifier`, such as "
        f"--{prefix}.style_classifier SamLowe/roberta-base-go_emotions --{prefix}.style_clusters go_emotions, or "
        "'testbed' to use it anyway."
    )
