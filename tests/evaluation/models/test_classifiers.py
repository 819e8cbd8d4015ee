"""A new kind of classifier is one file: everything that asks for a classifier finds it by its kind."""

import re
from pathlib import Path

import numpy as np
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import StyleClassifierSettings
from evenhand.evaluation.models import user_classifiers
from evenhand.evaluation.models.classifier_kinds import classifier_labels, classifier_revision, load_style_classifier
from evenhand.evaluation.models.styles import style_vectors

EXTENDING = Path(__file__).resolve().parents[3] / "docs" / "extending.md"


@pytest.fixture
def write_kind(tmp_path, monkeypatch):
    """A function that writes a module of the user, the page's example if no code is given.

    Each test uses a new name: Python loads a name only once.
    """
    (example,) = re.findall(r"```python\n# classifiers/words.py\n(.*?)```", EXTENDING.read_text(encoding="utf-8"), re.S)
    monkeypatch.setattr(user_classifiers, "__path__", [*user_classifiers.__path__, str(tmp_path)])
    user_classifiers.user_kinds.cache_clear()
    yield lambda name, code=example: (tmp_path / f"{name}.py").write_text(code)
    user_classifiers.user_kinds.cache_clear()


def test_a_kind_of_the_user_is_found_by_its_settings(write_kind):
    write_kind("words")
    settings = StyleClassifierSettings(name="words")
    assert classifier_labels(settings) == ("warm", "plain")
    assert classifier_revision(settings) == "1"
    vectors = style_vectors(load_style_classifier(settings), ["I love it.", "It rains.", " "])
    np.testing.assert_array_equal(vectors, [[1, 0], [0, 1], [np.nan, np.nan]])


def test_the_shipped_kinds_stay(write_kind):
    write_kind("other_words")
    assert len(classifier_labels(StyleClassifierSettings(name="go_emotions"))) == 28


def test_a_module_without_a_kind_is_an_error_with_its_file(write_kind):
    write_kind("without_a_kind", "VALUE = 1\n")
    with pytest.raises(InputError, match="without_a_kind.py .*ClassifierKind"):
        classifier_labels(StyleClassifierSettings(name="go_emotions"))
