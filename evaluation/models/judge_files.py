"""Readers of LLM judges' files, and of the labels and revision of any style classifier, judge or not.

A judge's file has labels, optional descriptions of the labels, and an optional instruction.

The module imports no slow library, so that settings are checked at once.
"""

import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import json_sha256, read_yaml
from evenhand.evaluation.models.classifier_labels import classifier_labels
from evenhand.evaluation.models.revisions import model_revision
from evenhand.evaluation.settings import CheckpointSettings

FILES = Path(__file__).resolve().parents[1] / "data" / "files" / "judges"
OPTIONS = string.ascii_uppercase + string.digits  # each a single token of common tokenizers
INSTRUCTION = "Which of these labels describes the style of the text best?"


def classifier_styles(settings: CheckpointSettings) -> tuple[str, ...]:
    """Return the labels of a sequence classifier or of a judge; errors as in `classifier_labels` and `read_judge`."""
    if (judge := getattr(settings, "judge", None)) is not None:
        return tuple(read_judge(judge.name)[0])
    return classifier_labels(settings.name, settings.revision, settings.base)


def classifier_revision(settings: CheckpointSettings) -> str:
    """Return the revision of a sequence classifier, or the hash of a judge's model name and file."""
    if (judge := getattr(settings, "judge", None)) is not None:
        from evenhand.evaluation.models.server import check_client  # imports numpy

        check_client()
        labels, instruction = read_judge(judge.name)
        return json_sha256([settings.name, list(labels.items()), instruction])
    return model_revision(settings.name, settings.revision, settings.base)


def judge_path(name: str) -> Path:
    """Return the path of a judge's file, given the path of a YAML file or the name of a shipped file."""
    if Path(name).suffix in (".yaml", ".yml"):
        return Path(name)
    if not (FILES / f"{name}.yaml").is_file():
        raise unknown_name("judge", name, (file.stem for file in FILES.glob("*.yaml")))
    return FILES / f"{name}.yaml"


def read_judge(name: str) -> tuple[dict[str, str], str]:
    """Return the labels with their descriptions, and the instruction, in a judge's file.

    Raises:
        InputError: the file cannot be read, or does not have 2 to 36 different labels.
    """
    path = judge_path(name)
    content = read_yaml(path, "judge")
    fields = content if isinstance(content, Mapping) else {}
    labels, instruction = fields.get("labels"), fields.get("instruction", INSTRUCTION)
    labels = dict.fromkeys(labels, "") if isinstance(labels, list) and _are_texts(labels) else labels
    if not (
        fields.keys() <= {"labels", "instruction"}
        and _are_texts([instruction])
        and isinstance(labels, Mapping)
        and _are_texts(labels)
        and all(text is None or isinstance(text, str) for text in labels.values())
    ):
        raise InputError(
            f"judge: {path} must have `labels`, a list of texts or {{label: description}}, and may have `instruction`."
        )
    if not 2 <= len(labels) <= len(OPTIONS) or len(labels) < len(fields["labels"]):
        raise InputError(f"judge: {path} has {len(fields['labels'])} labels; give 2 to {len(OPTIONS)}, all different.")
    return {label: text or "" for label, text in labels.items()}, instruction


def _are_texts(values: Any) -> bool:
    return all(isinstance(value, str) and value.strip() for value in values)
