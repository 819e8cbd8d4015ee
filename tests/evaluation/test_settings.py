"""Filters of prompts, and the names of settings in errors."""

import pytest

from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import select_prompts
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.collect.prompts import measurement_prompts
from evenhand.evaluation.settings import PromptSettings

OF_BOTH = ["descriptor_noun", "noun_descriptor"]
TEMPLATE = ["I'm {noun_phrase}."]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"axis": ["age"]}, {"noun_phrase_type": OF_BOTH, "axis": ["age"]}),
        ({"axis": ["age"], "noun_phrase_type": "noun"}, {"noun_phrase_type": "noun", "axis": ["age"]}),
        ({"axis": ["age"], "noun_phrase_type": None}, {"axis": ["age"]}),
        ({"noun_phrase_type": None}, {}),
        ({}, {}),
    ],
)
def test_the_default_filter_applies_unless_it_is_named(filters, expected):
    assert PromptSettings(filters=filters).active_filters() == expected
    assert PromptSettings().active_filters() == {"noun_phrase_type": OF_BOTH}


def test_a_filter_of_axes_excludes_phrases_without_a_noun():
    settings = PromptSettings(filters={"axis": ["ability"], "template": TEMPLATE}, descriptors=None, per_cell=4)
    filtered = measurement_prompts(MeasureConfig(prompts=settings, split="all"))
    assert set(filtered["noun_phrase_type"]) == set(OF_BOTH)
    unfiltered = select_prompts(generate_prompts(load_taxonomy("paper")), axis=["ability"], template=TEMPLATE)
    assert "descriptor" in set(unfiltered["noun_phrase_type"])  # "I'm deaf."
