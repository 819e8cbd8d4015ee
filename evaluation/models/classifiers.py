"""The base classes of classifiers of texts, and of kinds of classifiers. The module does not import torch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from evenhand.evaluation.json_values import JsonObject
from evenhand.evaluation.model_settings import ClassifierSettings
from evenhand.evaluation.settings import as_settings

FAINT = 0.1  # no label of a text with several possible labels has this probability


class Classifier(ABC):
    """A classifier that is ready to classify texts, of any kind: a network, a judge, a list of words.

    Attributes:
        labels: the labels; those of a style classifier are the styles.
        name: the name in the settings.
        revision: what identifies the classifier, such as a commit or a hash of its files.
        is_multi_label: whether a text may have several labels. Then its probabilities are independent, and are divided
            by their sum to make a style vector.
        texts_per_part: texts that are classified together, and are lost if the run is killed.
        limit: what the classifier reads of a text, in words.
    """

    labels: tuple[str, ...]
    name: str
    revision: str
    is_multi_label: bool = False
    texts_per_part: int = 1024
    limit: str = "text"

    def announce(self, texts: Sequence[str]) -> None:
        """Log what classifying these texts costs, if it costs anything."""
        return

    @abstractmethod
    def classify(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability of each label for each of n texts, (n, S), and whether each text is cut, (n,).

        Probabilities are in [0, 1]; unless `is_multi_label`, each row sums to 1. A row of NaN says that the text has no
        style. The texts are different, and none is blank. A text is cut if the classifier reads only its beginning.
        """


class ClassifierKind(ABC):
    """A kind of classifiers: how settings name one, and what is known of it before it is loaded.

    For each classifier, the first kind whose `has` is true is used (`classifier_kinds.kind_of`). Before a run begins,
    its `revision` and then its `labels` are asked, so both raise InputError for a file that cannot be read. In
    generation bias, an InputError about the field "model" is shown as one about the setting with the classifier.
    """

    @abstractmethod
    def has(self, settings: ClassifierSettings) -> bool:
        """Return whether the settings name a classifier of this kind, without loading anything."""

    @abstractmethod
    def labels(self, settings: ClassifierSettings) -> tuple[str, ...]:
        """Return the labels of the classifier."""

    @abstractmethod
    def revision(self, settings: ClassifierSettings) -> str:
        """Return what identifies the classifier, such as a commit or a hash of its files."""

    @abstractmethod
    def load(self, settings: ClassifierSettings, field: str) -> Classifier:
        """Return the classifier; InputError, about the setting `field`, if it cannot be loaded."""

    def facts(self, settings: ClassifierSettings) -> JsonObject:
        """Return the entries of a signature that identify the classifier, besides its revision and labels."""
        return as_settings(settings)

    def requests_per_text(self, settings: ClassifierSettings) -> int:
        """Return the number of requests that a new text takes; 0 if the classifier is on no server.

        It is called after the classifier has classified a text.
        """
        return 0
