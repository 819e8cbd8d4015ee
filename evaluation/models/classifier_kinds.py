"""The kinds of classifiers that settings can name, and the loading of one. The module does not import torch.

A kind of your own is a module with a `Classifier` and a `ClassifierKind` in a folder of EVENHAND_PATH
(docs/extending.md).
"""

from pathlib import Path

from evenhand.evaluation.model_settings import ClassifierSettings, StyleClassifierSettings
from evenhand.evaluation.models.classifiers import Classifier, ClassifierKind
from evenhand.evaluation.models.judges import JudgeKind
from evenhand.evaluation.models.sequence_classifiers import FolderKind, SequenceKind
from evenhand.evaluation.models.user_classifiers import user_kinds
from evenhand.evaluation.settings import checked

# SequenceKind is the last, since it takes every name that no other kind takes.
KINDS: tuple[ClassifierKind, ...] = (JudgeKind(), FolderKind(), SequenceKind())


def kind_of(settings: ClassifierSettings) -> ClassifierKind:
    """Return the kind of the classifier that settings name: the first that has it, beginning with the user's own."""
    return next(kind for kind in (*user_kinds(), *KINDS) if kind.has(settings))


def classifier_labels(settings: ClassifierSettings) -> tuple[str, ...]:
    """Return the labels of a classifier without loading it."""
    return kind_of(settings).labels(settings)


def classifier_revision(settings: ClassifierSettings) -> str:
    """Return what identifies a classifier, such as a commit or a hash of its files."""
    return kind_of(settings).revision(settings)


def load_style_classifier(model: ClassifierSettings | Path | str, field: str = "style_classifier") -> Classifier:
    """Load a classifier of any kind; a string or path is its name.

    Adapters are merged into their base models. InputError, about the setting `field`, if the name is not a classifier
    with at least two labels, or its weights or tokenizer are missing or pickled.
    """
    settings = model if isinstance(model, ClassifierSettings) else checked(StyleClassifierSettings, model, "model")
    return kind_of(settings).load(settings, field)
