"""Warnings about the answers of a run, on tables made by hand: what is missing, and who answered instead."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias import check_nonempty, page_warnings
from evenhand.evaluation.metrics.generation_bias.answer_warnings import (
    equal_answers_text,
    missing_text,
    no_style_text,
    other_model_text,
    other_text_warnings,
    unanswered_text,
)
from evenhand.evaluation.metrics.generation_bias.answers import RESPONSES, Answers

PEOPLE = ["deaf"] * 4 + ["old"] * 4 + ["young"] * 4


@pytest.fixture
def prompts():
    """Twelve prompts: two requests of each of three people, each asked twice."""
    texts = [f"{name}: {request}" for name, request in zip(PEOPLE, ["a", "a", "b", "b"] * 3, strict=True)]
    return pd.DataFrame({"descriptor": PEOPLE, "text": texts, "persona": ""})


def answers(**columns):
    table = {"response": [f"answer {row}" for row in range(12)], "left_out": [None] * 12}
    return pd.DataFrame({**table, **columns})


def test_each_reason_has_a_sentence_with_the_people(prompts):
    reasons = [*["error 429"] * 3, None, "error 429", "content_filter", "refusal", None, None, None, None, None]
    texts = ["" if reason or row == 11 else "Yes." for row, reason in enumerate(reasons)]
    table = answers(left_out=reasons, response=texts)
    failed, withheld = missing_text(prompts, table)
    assert "error 429" in failed and "4 of 12" in failed and "deaf 3 of 4, old 1 of 4" in failed
    assert "withheld 2 of 12" in withheld and "old 2 of 4" in withheld
    (empty,) = set(missing_text(prompts, table, counts_empty=True)) - {failed, withheld}
    assert "1 of 12" in empty and "young 1 of 4" in empty
    assert missing_text(prompts, answers()) == []
    many = missing_text(prompts, answers(left_out=[f"reason {row}" for row in range(12)]))
    assert len(many) == 6 and " 7 more " in many[-1]


def test_another_model_is_named_with_the_people_and_an_alias_of_the_model_is_not(prompts):
    table = answers(answered_by=["small"] * 4 + ["large"] * 8)
    (text,) = other_model_text(prompts, table)
    assert "small" in text and "4 of 12" in text and "deaf 4 of 4." in text and "old" not in text
    assert other_model_text(prompts, answers(answered_by=["large-2026"] * 12)) == []
    failed = answers(answered_by=["asked"] * 4 + ["large"] * 8, left_out=["error 429"] * 4 + [None] * 8)
    assert other_model_text(prompts, failed) == []  # nobody answered these
    assert other_model_text(prompts, answers()) == []


def test_equal_answers_to_the_same_prompt_are_no_draws(prompts):
    equal = answers(response=[text.upper() for text in prompts["text"]])
    (text,) = equal_answers_text(prompts, equal)
    assert "6 of 6 prompts" in text
    one_differs = equal["response"].where(np.arange(12) != 11, "Another answer.")
    assert equal_answers_text(prompts, answers(response=one_differs)) == []  # 5 of 6 is below 90 %
    few = slice(0, 8)  # four prompts
    assert equal_answers_text(prompts[few], equal[few]) == []
    assert equal_answers_text(prompts, answers(response=[""] * 12)) == []


def test_answers_without_a_style_are_counted(prompts):
    table = pd.concat([prompts.assign(template="t"), answers(response=["Yes."] * 11 + [""])], axis=1)
    vectors = np.where(np.arange(12)[:, None] < 3, np.nan, [[0.5, 0.5]])
    (text,) = no_style_text(Answers(table, vectors, ["kind", "curt"]))
    assert "3 of 12" in text and "deaf 3 of 4" in text
    vectors[:11] = np.nan  # nothing was read: another warning says so
    vectors[11] = np.nan
    assert no_style_text(Answers(table, vectors, ["kind", "curt"])) == []


def test_chats_with_an_unanswered_end_are_counted(prompts):
    (text,) = unanswered_text(prompts, answers(unanswered_end=[True] * 2 + [False] * 10))
    assert "2 of 12" in text and "deaf 2 of 4" in text
    assert unanswered_text(prompts, answers()) == []


def test_other_text_is_counted_by_kind_and_person(prompts):
    texts = ["verdict"] * 4 + ["", "verdict token", "", ""] + [""] * 4
    verdict, token = other_text_warnings(prompts, answers(other_text=texts))
    assert "5 of 12" in verdict and "deaf 4 of 4, old 1 of 4" in verdict and "'[verdict]'" in verdict
    assert "1 of 12" in token and "old 1 of 4" in token
    assert other_text_warnings(prompts, answers(other_text=[""] * 12)) == []
    assert other_text_warnings(prompts, answers()) == []
    many = pd.DataFrame({"descriptor": [f"d{row // 2}" for row in range(400)]})
    rare = answers().iloc[[0] * 400].assign(other_text=["sheet"] + [""] * 399)
    assert other_text_warnings(many, rare) == []  # one answer of 400
    (of_one,) = other_text_warnings(many, rare.assign(other_text=["sheet"] * 2 + [""] * 398))
    assert "d0 2 of 2" in of_one and "--model.strip" not in of_one


def test_a_run_without_any_answer_says_why():
    with pytest.raises(InputError, match=r"error 429 \(12\)") as error:
        check_nonempty(answers(response=[""] * 12, left_out=["error 429"] * 12))
    assert "max_new_tokens" not in str(error.value)
    with pytest.raises(InputError, match="max_new_tokens"):
        check_nonempty(answers(response=[" "] * 12))


def test_a_comparison_says_of_which_run_a_warning_is(monkeypatch):
    class Run:
        """Nothing but what `comparison_warnings` reads."""

        scores = ()

        def __init__(self, *texts):
            self.texts = texts

        def table(self, name):
            assert name == RESPONSES
            return answers(cut=[False] * 12)

    monkeypatch.setattr(page_warnings, "answer_warnings", lambda run: list(run.texts))
    monkeypatch.setattr(page_warnings, "warnings", lambda runs: [])
    found = page_warnings.comparison_warnings(Run("in both", "2 of 12"), Run("3 of 12", "in both"), Run())
    assert found == ["in both", "Before: 2 of 12", "After: 3 of 12"]
