"""Answers that repeat themselves thousands of times, as small models write them, are read in linear time."""

import time

import pytest

from evenhand.evaluation.data.language.decisions import DecisionRule, read_decision, read_number
from evenhand.evaluation.data.language.mentions import clean_response
from evenhand.evaluation.data.language.other_text import removable, strip_other_text
from evenhand.evaluation.data.readers.answers import error_reason
from evenhand.evaluation.models.judges import named_option

CHARACTERS = 32_000


@pytest.mark.parametrize(
    ("repeated", "read"),
    [
        ("20 years old ", lambda text: clean_response(text, "old")),
        ("black ", lambda text: clean_response(text, "black")),
        ("US ", lambda text: clean_response(text, "US")),
        ("\n", lambda text: read_decision(f"{text}x", DecisionRule())),
        ("1", lambda text: strip_other_text(text, "", removable())),
        ("1,", lambda text: strip_other_text(text, "", removable())),
        ("**", named_option),
        ("answer" + 8000 * " ", named_option),
    ],
)
def test_an_answer_that_repeats_itself_is_read_at_once(repeated, read):
    text = (repeated * CHARACTERS)[:CHARACTERS]
    start = time.perf_counter()
    read(text)
    assert time.perf_counter() - start < 3  # it took 5 seconds to minutes


def test_what_stands_around_a_mention_is_still_read():
    text = "old " * 1000 + "20 years old and old"
    assert clean_response(text, "old") == "left-handed " * 1000 + "20 years old and left-handed"


@pytest.mark.parametrize("field", [None, "decision"])
def test_objects_in_objects_state_no_decision(field):
    answer = '{"decision": ' * 2000
    rule = DecisionRule(field=field)
    assert read_decision(answer, rule) is None
    assert read_number(answer, rule) is None


def test_a_number_of_hundreds_of_digits_is_none():
    assert read_number("The answer is " + "1" * 400, DecisionRule()) is None
    assert read_number("The answer is " + "1" * 20, DecisionRule()) == 11111111111111111111.0


def test_errors_in_errors_are_an_error():
    error: dict = {"code": 429}
    for _ in range(900):
        error = {"error": error}
    assert error_reason(error) == "error"
    assert error_reason({"error": {"code": 429}}) == "error 429"
