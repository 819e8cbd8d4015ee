"""What the offensiveness of prompts is told, and what it reads."""

from typing import TYPE_CHECKING, Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.settings import ClassifierSettings, option, strict

if TYPE_CHECKING:
    from evenhand.evaluation.families import MeasureConfig


@strict
class Settings:
    """Offensiveness of the prompts themselves, by template and descriptor."""

    classifier: ClassifierSettings = option(ClassifierSettings, "of offensive texts; it has to be given")


def inputs(config: "MeasureConfig") -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Raises:
        InputError: no classifier is given, or not its label, or that is none of its labels; a classifier or the dataset
            cannot be found, or a file of prompts is given.
    """
    from evenhand.evaluation.datasets.holistic_bias import sentences_sha256
    from evenhand.evaluation.models.classifier_labels import classifier_labels, place_of_label
    from evenhand.evaluation.models.revisions import model_revision

    judge = config.settings.classifier
    if judge.name is None or judge.label is None:
        raise InputError(
            f"offensiveness.classifier: name is {judge.name!r} and label {judge.label!r}; give a classifier and its "
            "label that means offensive (`evenhand train_classifier` makes one)."
        )
    revision = model_revision(judge.name, judge.revision, judge.base)
    labels = classifier_labels(judge.name, judge.revision, judge.base)
    place_of_label(labels, judge.label, judge.name, "offensiveness.classifier.label")
    return {"classifier": revision, "dataset": sentences_sha256(config.prompts)}
