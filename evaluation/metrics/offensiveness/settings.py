"""Settings of the offensiveness of prompts, and fingerprints of its inputs."""

from typing import TYPE_CHECKING, Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.settings import ClassifierSettings, option, strict_dataclass

if TYPE_CHECKING:
    from evenhand.evaluation.metrics import MeasureConfig

SERVER_APIS = ("chat", "completions")  # the measured model is not used


@strict_dataclass
class Settings:
    """Offensiveness of the prompts themselves, by template and descriptor."""

    classifier: ClassifierSettings = option(ClassifierSettings, "classifier of offensive texts; required")


def inputs(config: "MeasureConfig") -> dict[str, Any]:
    """Return fingerprints of the classifier and of the dataset, by name.

    Raises:
        InputError: the settings have no classifier, no label, or a label that the classifier does not have; the
            classifier or the dataset does not exist; or the settings have a file of prompts.
    """
    from evenhand.evaluation.data.prompts import taxonomy_sha256
    from evenhand.evaluation.models.revisions import classifier_labels, find_label, model_revision

    classifier = config.settings.classifier
    if classifier.name is None or classifier.label is None:
        raise InputError(
            f"offensiveness.classifier: name is {classifier.name!r} and label is {classifier.label!r}; set name to a "
            "classifier and label to its label for offensive texts (`evenhand train_classifier` trains one)."
        )
    revision = model_revision(classifier.name, classifier.revision, classifier.base)
    labels = classifier_labels(classifier.name, classifier.revision, classifier.base)
    find_label(labels, classifier.label, classifier.name, "offensiveness.classifier.label")
    return {"classifier": revision, "dataset": taxonomy_sha256(config.prompts)}
