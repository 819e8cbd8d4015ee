"""A new kind of classifier is one file: everything that asks for a classifier finds it by its kind."""

import numpy as np
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models import own_classifiers
from evenhand.evaluation.models.classifier_kinds import classifier_revision, classifier_styles, load_style_classifier
from evenhand.evaluation.models.styles import style_vectors
from evenhand.evaluation.settings import StyleClassifierSettings

WORDS = '''
import numpy as np

from evenhand.evaluation.models.classifiers import Classifier, ClassifierKind


class WordCounts(Classifier):
    """A text is warm if it has the word “love”, else plain."""

    labels = ("warm", "plain")
    name = "words"
    revision = "1"

    def classify(self, texts):
        is_warm = np.array(["love" in text for text in texts])
        return np.column_stack([is_warm, ~is_warm]).astype(np.float32), np.zeros(len(texts), dtype=bool)


class WordsKind(ClassifierKind):
    def has(self, settings):
        return settings.name == "words"

    def labels(self, settings):
        return WordCounts.labels

    def revision(self, settings):
        return WordCounts.revision

    def load(self, settings, field):
        return WordCounts()
'''


@pytest.fixture
def write_kind(tmp_path, monkeypatch):
    """A function that writes a module of the user. Each test uses a new name: Python loads a name only once."""
    monkeypatch.setattr(own_classifiers, "__path__", [*own_classifiers.__path__, str(tmp_path)])
    own_classifiers.own_kinds.cache_clear()
    yield lambda name, code: (tmp_path / f"{name}.py").write_text(code)
    own_classifiers.own_kinds.cache_clear()


def test_a_kind_of_the_user_is_found_by_its_settings(write_kind):
    write_kind("words", WORDS)
    settings = StyleClassifierSettings(name="words")
    assert classifier_styles(settings) == ("warm", "plain")
    assert classifier_revision(settings) == "1"
    vectors = style_vectors(load_style_classifier(settings), ["I love it.", "It rains.", " "])
    np.testing.assert_array_equal(vectors, [[1, 0], [0, 1], [np.nan, np.nan]])


def test_the_shipped_kinds_stay(write_kind):
    write_kind("other_words", WORDS)
    assert len(classifier_styles(StyleClassifierSettings(name="go_emotions"))) == 28


def test_a_module_without_a_kind_is_an_error_with_its_file(write_kind):
    write_kind("without_a_kind", "VALUE = 1\n")
    with pytest.raises(InputError, match="without_a_kind.py .*ClassifierKind"):
        classifier_styles(StyleClassifierSettings(name="go_emotions"))
