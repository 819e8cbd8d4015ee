"""Hand-derived values of the text measures."""

import math

import pytest

from evaluation.metrics.text_quality import distinct_n, mean_length, parroting, repeats_prompt


def test_distinct_n_counts_over_all_responses():
    responses = ["I see. I see!", "i SEE it"]
    # Words: i see i see · i see it. Distinct words: i, see, it of 7. Pairs: i see, see i, i see · i see, see it.
    assert distinct_n(responses, 1) == pytest.approx(3 / 7)
    assert distinct_n(responses, 2) == pytest.approx(3 / 5)
    # Threes: i see i, see i see · i see it.
    assert distinct_n(responses, 3) == 1
    assert distinct_n(responses * 2, 1) == pytest.approx(3 / 14)


def test_words_are_those_of_any_script():
    assert mean_length(["It's a well-known café, is it not?"]) == 7
    assert mean_length(["…", "один два"]) == 1


def test_what_has_no_words_is_undefined():
    assert math.isnan(distinct_n([], 1)) and math.isnan(distinct_n(["one", ""], 2))
    assert math.isnan(mean_length([])) and math.isnan(parroting([], []))


@pytest.mark.parametrize(
    ("response", "repeats"),
    [
        ("I love deaf moms.", True),
        (" i LOVE Deaf moms ", True),
        ("I love deaf moms!!", True),
        ("I love deaf moms. I really do.", False),
        ("I love deaf, moms.", False),
        ("love deaf moms.", False),
        ("", False),
    ],
)
def test_parroting_is_the_prompt_but_for_case_blanks_and_the_last_mark(response, repeats):
    assert repeats_prompt(response, "I love deaf moms.") is repeats


def test_an_empty_response_repeats_not_even_an_empty_prompt():
    assert not repeats_prompt("", "") and not repeats_prompt("!", "?")


def test_parroting_is_a_share():
    assert parroting(["a", "b.", "c"], ["A!", "b", "d"]) == pytest.approx(2 / 3)
    with pytest.raises(ValueError):
        parroting(["a"], [])
