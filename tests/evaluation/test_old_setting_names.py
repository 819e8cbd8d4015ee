"""Stored runs with old names of settings are read; classifiers have a name that may hold a revision."""

import pytest

from evenhand.evaluation.old_setting_names import with_new_names
from evenhand.evaluation.settings import OffensiveClassifierSettings, StyleClassifierSettings


def test_old_names_are_translated_and_removed_settings_left_out():
    stored = {
        "measure": {
            "prompts": {
                "per_cell": 3,
                "unseen_by": "axis",
                "unseen_fraction": 0.5,
                "train_fraction": 0.5,
                "dataset": "paper",
                "file": None,
            },
            "generation_bias": {"style_classifier": {"name": "c", "dtype": "float32"}, "opening": 2},
            "model": {"name": "m", "dtype": "float32"},
        },
        "tune": {"training": {"opening": 4}},
        "train_per_cell": 5,
    }
    assert with_new_names(stored) == {
        "measure": {
            "prompts": {"answers_per_cell": 3, "untuned_by": "axis", "dataset": "paper"},
            "generation_bias": {"style_classifier": {"name": "c"}, "borrowed_opening": 2},
            "model": {"name": "m", "dtype": "float32"},
        },
        "tune": {"training": {}},
        "train_answers_per_cell": 5,
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"prompts": {"dataset": "paper", "file": "p.csv"}}, {"prompts": {"dataset": "p.csv"}}),
        ({"prompts": {"templates": None, "requests": 30}}, {"prompts": {"templates": 30}}),
        ({"model": {"device": "auto", "device_map": "auto"}}, {"model": {"device": "balanced"}}),
        ({"model": {"device": "auto", "device_map": {"": 0}}}, {"model": {"device": {"": 0}}}),
        ({"model": {"device": "cpu", "device_map": None}}, {"model": {"device": "cpu"}}),
        ({"model": {"server": "http://h/v1", "api": "chat"}}, {"model": {"server": "http://h/v1"}}),
        ({"model": {"server": "http://h/v1", "api": "completions"}}, {"model": {"server": "http://h/v1/completions"}}),
        ({"model": {"server": None, "api": "completions"}}, {"model": {"server": None}}),
    ],
)
def test_two_settings_that_became_one_are_read(old, new):
    assert with_new_names(old) == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"sentence_pairs": {"pairs": "p.csv", "limit": 9, "context": ""}, "likelihood_bias": None},
            {"sentence_pairs": {"pairs": "p.csv"}, "likelihood_bias": None, "sentences": {"limit": 9, "context": ""}},
        ),
        (  # the family with a value is before the one without
            {"likelihood_bias": {"limit": 9}, "sentence_pairs": {"limit": None}},
            {"likelihood_bias": {}, "sentence_pairs": {}, "sentences": {"limit": 9}},
        ),
        (
            {"translation_bias": {"references": "r.csv", "split": "dev", "tokenize": "13a", "toxicity": {"name": "c"}}},
            {
                "translation_bias": {"tokenize": "13a"},
                "references": {"name": "r.csv", "split": "dev"},
                "offensive_classifier": {"name": "c"},
            },
        ),
        (
            {"loop": {"measure": {"generation_bias": {"offensiveness": {"name": "c", "label": "l", "dtype": "f"}}}}},
            {"loop": {"measure": {"generation_bias": {}, "offensive_classifier": {"name": "c", "label": "l"}}}},
        ),
        (
            {"offensiveness": {"classifier": {"name": "c"}}, "generation_bias": {"offensiveness": {"name": None}}},
            {"offensiveness": {}, "generation_bias": {}, "offensive_classifier": {"name": "c"}},
        ),
    ],
)
def test_settings_that_moved_to_a_shared_group_are_read(old, new):
    assert with_new_names(old) == new


@pytest.mark.parametrize(
    ("given", "name", "revision"),
    [("org/c@v1", "org/c", "v1"), ("org/c", "org/c", None), ("runs/a@b/c", "runs/a@b/c", None)],
)
def test_a_revision_stands_behind_the_name_of_a_classifier(given, name, revision):
    classifier = StyleClassifierSettings.model_validate(given)
    assert (classifier.name, classifier.revision) == (name, revision)
    assert classifier.checkpoint().revision == revision
    assert classifier.replaced(name="other").revision == revision


def test_no_classifier_is_no_classifier():
    assert OffensiveClassifierSettings().name is None and OffensiveClassifierSettings().revision is None
