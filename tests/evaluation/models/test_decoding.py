"""Decoding presets and the arguments over them: what is out of range is one error before any work."""

import math

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.decoding import check_token_ids, decoding


def test_presets_and_overrides():
    assert decoding("sample", temperature=0.5)["temperature"] == 0.5
    paper = decoding("paper", num_beams=3)
    assert (paper["num_beams"], paper["min_new_tokens"], paper["no_repeat_ngram_size"]) == (3, 20, 3)


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        ("smaple", {}, "'smaple' is unknown; did you mean 'sample'"),
        ("sample", {"temprature": 1.0}, "did you mean 'temperature'"),
        ("sample", {"max_length": 5}, "'max_length' is unknown"),
        ("sample", {"output_scores": True}, "unknown"),
        ("sample", {"temperature": 0}, "temperature is 0"),
        ("sample", {"temperature": "hot"}, "temperature is 'hot'; it must be a number"),
        ("sample", {"top_p": 1.5}, "top_p is 1.5; it must be a number from 0.0001 to 1"),
        ("sample", {"max_new_tokens": None}, "max_new_tokens is None; it must be an integer from 1"),
        ("sample", {"max_new_tokens": 2.5}, "max_new_tokens is 2.5"),
        ("sample", {"do_sample": 1}, "do_sample is 1; it must be true or false"),
        ("paper", {"max_new_tokens": 10}, "min_new_tokens is 20; it must be an integer from 0 to 10"),
        ("sample", {"temperature": math.inf}, "temperature is inf; it must be a number from 0.0001"),
        ("sample", {"temperature": math.nan}, "temperature is nan"),
        ("sample", {"min_p": 1.5}, "min_p is 1.5; it must be a number from 0 to 1"),
        ("sample", {"typical_p": 0}, "typical_p is 0"),
        ("sample", {"top_h": -1}, "top_h is -1"),
        ("sample", {"epsilon_cutoff": 2}, "epsilon_cutoff is 2"),
        ("sample", {"length_penalty": math.inf}, "length_penalty is inf; it must be a number."),
        ("sample", {"renormalize_logits": 1}, "renormalize_logits is 1; it must be true or false"),
        ("sample", {"force_words_ids": [[3]]}, "force_words_ids would be passed over"),
        ("sample", {"penalty_alpha": 0.6}, "penalty_alpha would be passed over"),
        ("paper", {"num_beam_groups": 2}, "num_beam_groups would be passed over"),
        ("sample", {"bad_words_ids": [3]}, r"bad_words_ids is \[3\]; it must be a list of lists of token ids"),
        ("sample", {"bad_words_ids": []}, "must be a list of lists of token ids"),
        ("sample", {"bad_words_ids": [[]]}, "must be a list of lists of token ids"),
        ("sample", {"suppress_tokens": ["a"]}, "suppress_tokens is .* must be a list of token ids"),
        ("sample", {"suppress_tokens": 3}, "suppress_tokens is 3; it must be a list of token ids"),
        ("sample", {"sequence_bias": [[[3], "much"]]}, "sequence_bias is .* a list of pairs"),
        ("sample", {"sequence_bias": [[[3], math.nan]]}, "sequence_bias is .* a list of pairs"),
        ("sample", {"stop_strings": ""}, "stop_strings is ''; it must be a text or a list of texts, none empty"),
        ("sample", {"stop_strings": [3]}, "stop_strings is"),
        ("sample", {"exponential_decay_length_penalty": 1.5}, "it must be two numbers"),
        ("paper", {"early_stopping": "sometimes"}, "early_stopping"),
    ],
)
def test_wrong_decoding_is_one_clear_error(preset, overrides, message):
    with pytest.raises(InputError, match=message):
        decoding(preset, **overrides)


@pytest.mark.parametrize(
    "arguments",
    [
        {"min_p": 0.1, "typical_p": 1, "top_h": 0.5, "length_penalty": -1.0},
        {"suppress_tokens": [3, 4], "bad_words_ids": [[3], [4, 5]], "sequence_bias": [[[3], -2.5]]},
        {"stop_strings": "a", "exponential_decay_length_penalty": [5, 1.1], "bad_words_ids": None},
    ],
)
def test_what_is_in_range_is_handed_over(arguments):
    chosen = decoding("sample", **arguments)
    assert {name: chosen[name] for name in arguments} == arguments
    check_token_ids(chosen, 6)


def test_a_token_that_the_model_does_not_have_is_named():
    with pytest.raises(InputError, match="bad_words_ids has the token id 5; the model has 0 to 4"):
        check_token_ids(decoding("sample", bad_words_ids=[[3], [4, 5]]), 5)
