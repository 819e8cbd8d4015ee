"""Two kinds of classifiers: folders that `train_classifier` made, and Hugging Face sequence classifiers."""

from pathlib import Path

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ClassifierSettings
from evenhand.evaluation.models.classifier_folders import (
    classifier_folder,
    classifier_sha256,
    find_encoder,
    read_description,
)
from evenhand.evaluation.models.classifiers import Classifier, ClassifierKind
from evenhand.evaluation.models.revisions import checkpoint_labels, model_revision


class FolderKind(ClassifierKind):
    """Classifiers that ship with Evenhand, and other folders that `train_classifier` made of a sentence encoder."""

    def has(self, settings: ClassifierSettings) -> bool:
        return classifier_folder(settings.name) is not None

    def labels(self, settings: ClassifierSettings) -> tuple[str, ...]:
        return read_description(_folder(settings)).labels

    def revision(self, settings: ClassifierSettings) -> str:
        """Return the hash of the folder's files; InputError if its encoder is not there."""
        folder = _folder(settings)
        description = read_description(folder)
        find_encoder(description.encoder, description.encoder_sha256)
        return classifier_sha256(folder)

    def load(self, settings: ClassifierSettings, field: str) -> Classifier:
        from evenhand.evaluation.models.styles import load_network_classifier  # imports torch

        return load_network_classifier(settings, self.revision(settings), field, folder=_folder(settings))


def _folder(settings: ClassifierSettings) -> Path:
    folder = classifier_folder(settings.name)
    if folder is None:
        raise InputError("style_classifier", f"{settings.name} is no folder of `train_classifier`.")
    return folder


class SequenceKind(ClassifierKind):
    """Hugging Face sequence classifiers: every name that no other kind takes, so this kind is the last one."""

    def has(self, settings: ClassifierSettings) -> bool:
        return True

    def labels(self, settings: ClassifierSettings) -> tuple[str, ...]:
        return checkpoint_labels(settings.name, settings.revision, head=settings.head, label_names=settings.label_names)

    def revision(self, settings: ClassifierSettings) -> str:
        return model_revision(settings.name, settings.revision)

    def load(self, settings: ClassifierSettings, field: str) -> Classifier:
        from evenhand.evaluation.models.styles import load_network_classifier  # imports torch

        return load_network_classifier(settings, self.revision(settings), field)
