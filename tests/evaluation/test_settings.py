"""Settings: the default filter of prompts, and errors for values that YAML would misread."""

from datetime import date

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.settings import checked
from evenhand.recipes.settings import MeasureSettings

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


@pytest.mark.parametrize(("given", "field"), [({"people": "a.csv"}, "people"), ({"templates": "a.txt"}, "templates")])
def test_people_need_templates_and_templates_people(given, field):
    with pytest.raises(InputError, match=f"^test: prompts.{field}: "):
        checked(MeasureSettings, {"prompts": given}, "test")


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"seed": True}, "seed: True cannot be used: it is not a number"),
        ({"generation_bias": {"permutations": True}}, "generation_bias.permutations: True"),
        ({"model": {"adapter_strength": False}}, "model.adapter_strength: False"),
        ({"seed": "1:30"}, "seed: '1:30' cannot be used"),
        ({"seed": 10**400}, "seed: the integer has 333 hexadecimal digits"),  # 400 / log10(16) = 332.2
        ({"prompts": {"filters": {"axis": ["age\0"]}}}, "prompts.filters.axis.0: .* has a null character"),
        ({"model": "a\0b"}, "model: .* has a null character"),
        ({"prompts": {"filters": {"n": float("nan")}}}, "prompts.filters.n: nan is not finite"),
        ({"prompts": {"filters": {"day": date(2001, 1, 1)}}}, "prompts.filters.day: datetime.date"),
        ({"prompts": {"filters": {"axis": [{"age"}]}}}, "prompts.filters.axis.0: {'age'} is no text"),
        ({"output_dir": "runs/\udcff"}, "output_dir: .* is not UTF-8"),  # the byte 255 of a command line
    ],
)
def test_values_that_would_be_misread_are_refused(values, fault):
    with pytest.raises(InputError, match=fault):
        checked(MeasureSettings, values, "file")


def test_booleans_are_booleans_and_digits_are_numbers():
    settings = checked(
        MeasureSettings, {"generation_bias": {"relevance": "no"}, "seed": "3", "prompts": {"variations": True}}, "file"
    )
    assert (settings.generation_bias.relevance, settings.seed, settings.prompts.variations) == (False, 3, True)


def test_one_response_to_a_cell_can_be_measured():
    assert PromptSettings(answers_per_cell=1).answers_per_cell == 1
