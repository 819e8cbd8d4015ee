"""Readers of LLM judges' files, and of the labels and revision of any style classifier, judge or not.

A judge's file has labels, optional descriptions of the labels, and an optional instruction.

The module imports no slow library, so that settings are checked at once.
"""

import string
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import json_sha256, read_yaml
from evenhand.evaluation.models.classifier_labels import classifier_labels
from evenhand.evaluation.models.revisions import model_revision
from evenhand.evaluation.settings import CheckpointSettings

FILES = Path(__file__).resolve().parents[1] / "data" / "files" / "judges"
OPTIONS = string.ascii_uppercase + string.digits  # each a single token of common tokenizers
INSTRUCTION = "Which of these labels describes the style of the text best?"
Text = Annotated[str, Field(strict=True, pattern=r"\S")]


class JudgeFile(BaseModel, extra="forbid"):
    """A judge's file: labels, or labels with their descriptions, and the instruction."""

    labels: list[Text] | dict[Text, Annotated[str, Field(strict=True)] | None]
    instruction: Text = INSTRUCTION


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
    try:
        file = JudgeFile.model_validate(read_yaml(path, "judge"))
    except ValidationError as error:
        raise InputError(f"judge: {path}: {'; '.join(it['msg'] for it in error.errors()[:3])}.") from None
    names = list(file.labels)
    if not 2 <= len(set(names)) == len(names) <= len(OPTIONS):
        raise InputError(f"judge: {path} has {len(names)} labels; give 2 to {len(OPTIONS)}, all different.")
    descriptions = file.labels if isinstance(file.labels, dict) else {}
    return {name: descriptions.get(name) or "" for name in names}, file.instruction
