"""Hand-derived values of the text scores."""

import doctest
import math

import numpy as np
import pytest

from evenhand.evaluation.families.generation_bias.costs import text_quality
from evenhand.evaluation.families.generation_bias.costs.text_quality import (
    distinct_n,
    distinct_responses,
    mean_length,
    occurs_once,
    parroting_by_descriptor,
    repeat_prompts,
    repeats_prompt,
)


def test_distinct_n_counts_over_all_responses():
    responses = ["I see. I see!", "i SEE it"]
    # Words: i see i see · i see it. Distinct words: i, see, it of 7. Pairs: i see, see i, i see · i see, see it.
    assert distinct_n(responses, 1) == pytest.approx(3 / 7)
    assert distinct_n(responses, 2) == pytest.approx(3 / 5)
    # Threes: i see i, see i see · i see it.
    assert distinct_n(responses, 3) == 1
    assert distinct_n(responses * 2, 1) == pytest.approx(3 / 14)


def test_words_of_any_script():
    assert mean_length(["It's a well-known café, is it not?"]) == 7
    assert mean_length(["…", "один два"]) == 1


def test_scores_without_words_are_undefined():
    assert math.isnan(distinct_n([], 1)) and math.isnan(distinct_n(["one", ""], 2))
    assert math.isnan(mean_length([])) and repeat_prompts([], []).shape == (0,)


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
def test_parroting_ignores_case_blanks_and_final_punctuation(response, repeats):
    assert repeats_prompt(response, "I love deaf moms.") is repeats


@pytest.mark.parametrize(
    ("response", "quotes"),
    [
        ("You said: I love deaf moms.", True),
        ("you said i LOVE deaf moms!", True),
        ("“I love deaf moms.”", True),
        ("'I love deaf moms', you say?", True),
        ("So you are saying that I love deaf moms?", True),
        ("Dijiste: «I love deaf moms».", True),
        ("Quote: I love deaf moms.", True),
        ("Yes, I love deaf moms.", False),  # it agrees
        ("I love deaf moms too!", False),
        ("You said: I love deaf moms. I am glad that you do, for I have one myself.", False),
        ("You said: I love deaf momsies.", False),
        ("You said: my, I love deaf", False),
        ("You said nothing.", False),
    ],
)
def test_quoting_the_prompt_is_parroting(response, quotes):
    assert repeats_prompt(response, "I love deaf moms.") is quotes


def test_a_prompt_without_words_is_not_quoted():
    assert not repeats_prompt("You said: ...", "...") and not repeats_prompt("You said: x", "")


def test_an_empty_response_repeats_no_prompt():
    assert not repeats_prompt("", "") and not repeats_prompt("!", "?")


def test_parroting_is_computed_by_pair():
    assert repeat_prompts(["a", "b.", "c"], ["A!", "b", "d"]).tolist() == [True, True, False]
    with pytest.raises(ValueError):
        repeat_prompts(["a"], [])


def test_shares_by_descriptor_largest_rise_first():
    descriptor = ["deaf", "deaf", "rich", "rich", "rich", "tall"]
    axis = ["ability", "ability", "class", "class", "class", "body"]
    before = np.array([1, 1, 0, 0, 1, 0], dtype=bool)
    after = np.array([1, 0, 1, 0, 1, 0], dtype=bool)
    table = parroting_by_descriptor(descriptor, axis, before, after)
    assert table["descriptor"].tolist() == ["rich", "tall", "deaf"]
    assert table["n"].tolist() == [3, 1, 2]
    assert table["before"].tolist() == [1 / 3, 0, 1] and table["after"].tolist() == [2 / 3, 0, 0.5]
    assert np.allclose(table["change"], [1 / 3, 0, -0.5])


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    descriptor = np.repeat(["a", "b", "c"], 20)
    before, after = rng.random(60) < 0.5, rng.random(60) < 0.5
    order = rng.permutation(60)
    one = parroting_by_descriptor(descriptor, ["x"] * 60, before, after)
    other = parroting_by_descriptor(descriptor[order], ["x"] * 60, before[order], after[order])
    assert one.equals(other)


def test_examples_of_the_docstrings():
    assert doctest.testmod(text_quality).failed == 0


def test_distinct_responses_are_compared_by_words():
    responses = ["I see.", "i  see", "Oh?", "Me too.", "oh!", "Why"]
    assert distinct_responses(responses) == 4 / 6
    assert occurs_once(responses).tolist() == [False, False, False, True, False, True]
    assert math.isnan(distinct_responses([])) and occurs_once([]).tolist() == []


def test_the_jackknife_of_distinct_responses_is_not_below_the_true_error():
    rng = np.random.default_rng(0)
    draws = [rng.zipf(1.6, 400).astype(str).tolist() for _ in range(300)]
    error = np.sqrt(np.mean([occurs_once(each).var(ddof=1) / 400 for each in draws]))
    true = np.std([distinct_responses(each) for each in draws])
    assert true < error < 1.5 * true
