"""A new kind of classifier stands in one module: everything that asks for a classifier finds it by its kind."""

import numpy as np
import pytest

from evenhand.evaluation.models import classifier_kinds
from evenhand.evaluation.models.classifier_kinds import classifier_revision, classifier_styles, load_style_classifier
from evenhand.evaluation.models.classifiers import Classifier, ClassifierKind
from evenhand.evaluation.models.styles import style_vectors
from evenhand.evaluation.settings import StyleClassifierSettings

WORDS = "words"


class WordCounts(Classifier):
    """A text is warm if it has the word “love”, else plain."""

    labels = ("warm", "plain")
    name = WORDS
    revision = "1"

    def classify(self, texts):
        is_warm = np.array(["love" in text for text in texts])
        return np.column_stack([is_warm, ~is_warm]).astype(np.float32), np.zeros(len(texts), dtype=bool)


class WordsKind(ClassifierKind):
    def has(self, settings):
        return settings.name == WORDS

    def labels(self, settings):
        return WordCounts.labels

    def revision(self, settings):
        return WordCounts.revision

    def load(self, settings, field):
        return WordCounts()


@pytest.fixture
def with_words(monkeypatch):
    monkeypatch.setattr(classifier_kinds, "KINDS", (WordsKind(), *classifier_kinds.KINDS))


def test_a_kind_in_one_module_is_found_by_its_settings(with_words):
    settings = StyleClassifierSettings(name=WORDS)
    assert classifier_styles(settings) == ("warm", "plain")
    assert classifier_revision(settings) == "1"
    vectors = style_vectors(load_style_classifier(settings), ["I love it.", "It rains.", " "])
    np.testing.assert_array_equal(vectors, [[1, 0], [0, 1], [np.nan, np.nan]])


def test_the_shipped_kinds_stay(with_words):
    assert len(classifier_styles(StyleClassifierSettings(name="go_emotions"))) == 28
