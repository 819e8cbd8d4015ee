"""The default filter of prompts."""

import pytest

from evenhand.evaluation.settings import PromptSettings

OF_BOTH = ["descriptor_noun", "noun_descriptor"]


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
