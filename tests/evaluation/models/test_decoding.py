"""Decoding presets and their overrides: a value out of range is one error before a model is loaded."""

import math

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.decoding import arguments_of_part, decoding_arguments


def test_presets_and_overrides():
    assert decoding_arguments("sample", {"temperature": 0.5})["temperature"] == 0.5
    paper = decoding_arguments("paper", {"num_beams": 3})
    assert (paper["num_beams"], paper["min_new_tokens"], paper["no_repeat_ngram_size"]) == (3, 20, 3)


def test_a_sampling_preset_draws_from_the_unmodified_distribution():
    """`generate` would sample within a beam search from the 50 likeliest tokens."""
    paper = decoding_arguments("paper", {"do_sample": True, "top_p": 0.9})
    assert (paper["temperature"], paper["top_k"], paper["top_p"]) == (1.0, 0, 0.9)
    assert not {"temperature", "top_k", "top_p"} & decoding_arguments("paper").keys()


def test_parts_of_a_response_have_together_the_fewest_tokens_of_the_whole():
    whole = {"max_new_tokens": 40, "min_new_tokens": 20}
    limits = [arguments_of_part(whole, part) for part in (range(4), range(4, 40), range(30, 40))]
    assert [(part["min_new_tokens"], part["max_new_tokens"]) for part in limits] == [(4, 4), (16, 36), (0, 10)]
    assert arguments_of_part({"max_new_tokens": 40}, range(4)) == {"max_new_tokens": 4}


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        ("smaple", {}, "did you mean 'sample'"),
        ("sample", {"temprature": 1.0}, "did you mean 'temperature'"),
        ("paper", {"max_new_tokens": 10}, "min_new_tokens is 20; it must be at most .* 10"),
        ("paper", {"early_stopping": "sometimes"}, "early_stopping"),
        *(
            ("sample", {name: value}, f"decoding: {name} is ")
            for name, values in {
                "temperature": [0, "hot", math.nan, True],
                "top_p": [1.5],
                "max_new_tokens": [None, 2.5, 0, 10**9],
                "num_beams": [0, 1_000_000],
                "top_k": [-1, 2**40],
                "suppress_tokens": [[], ["much"], [-1]],
                "stop_strings": [""],
            }.items()
            for value in values
        ),
    ],
)
def test_a_wrong_argument_is_one_error_with_its_name(preset, overrides, message):
    with pytest.raises(InputError, match=message) as error:
        decoding_arguments(preset, overrides)
    assert "\n" not in str(error.value)
