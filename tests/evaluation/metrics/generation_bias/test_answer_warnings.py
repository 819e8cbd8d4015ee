"""Warnings about the answers of a run, on tables made by hand: what is missing, and who answered instead."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics.generation_bias import check_nonempty, page_warnings
from evenhand.evaluation.metrics.generation_bias.answer_warnings import (
    _alike,
    equal_answers,
    missing_answers,
    other_models,
    other_texts,
    unanswered,
    without_style,
)
from evenhand.evaluation.metrics.generation_bias.answers import RESPONSES, Answers
from evenhand.evaluation.score import BiasScore

PEOPLE = ["deaf"] * 4 + ["old"] * 4 + ["young"] * 4


@pytest.fixture
def prompts():
    """Twelve prompts: two requests of each of three people, each asked twice."""
    texts = [f"{name}: {request}" for name, request in zip(PEOPLE, ["a", "a", "b", "b"] * 3, strict=True)]
    return pd.DataFrame({"descriptor": PEOPLE, "text": texts, "persona": ""})


def answers(**columns):
    table = {"response": [f"answer {row}" for row in range(12)], "left_out": [None] * 12}
    return pd.DataFrame({**table, **columns})


def counts(finding):
    """Return how many rows a finding is about, of how many, and the counts of each person."""
    people = {each["name"]: (each["n"], each["n_of"]) for each in finding.values["people"]}
    return finding.values["n"], finding.values["n_of"], people


def test_each_reason_has_a_finding_with_the_people(prompts):
    reasons = [*["error 429"] * 3, None, "error 429", "content_filter", "refusal", None, None, None, None, None]
    texts = ["" if reason or row == 11 else "Yes." for row, reason in enumerate(reasons)]
    table = answers(left_out=reasons, response=texts)
    failed, withheld = missing_answers(prompts, table)
    assert failed.values["reason"] == "error 429" and counts(failed) == (4, 12, {"deaf": (3, 4), "old": (1, 4)})
    assert list(counts(failed)[2]) == ["deaf", "old"]  # the largest share first
    assert withheld.values["what"] == "filter" and counts(withheld) == (2, 12, {"old": (2, 4)})
    empty = missing_answers(prompts, table, counts_empty=True)[-1]
    assert empty.values["what"] == "no text" and counts(empty) == (1, 12, {"young": (1, 4)})
    assert missing_answers(prompts, answers()) == []
    many = missing_answers(prompts, answers(left_out=[f"reason {row}" for row in range(12)]))
    assert len(many) == 6 and many[-1].values == {"n_reasons": 7}


def test_another_model_is_named_with_the_people_and_an_alias_of_the_model_is_not(prompts):
    table = answers(answered_by=["small"] * 4 + ["large"] * 8)
    (found,) = other_models(prompts, table)
    assert (found.values["model_name"], found.values["most"]) == ("small", "large")
    assert counts(found) == (4, 12, {"deaf": (4, 4)})
    assert other_models(prompts, answers(answered_by=["large-2026"] * 12)) == []
    failed = answers(answered_by=["asked"] * 4 + ["large"] * 8, left_out=["error 429"] * 4 + [None] * 8)
    assert other_models(prompts, failed) == []  # nobody answered these
    assert other_models(prompts, answers()) == []


def test_equal_answers_to_the_same_prompt_are_no_draws(prompts):
    equal = answers(response=[text.upper() for text in prompts["text"]])
    (found,) = equal_answers(prompts, equal)
    assert found.values == {"n": 6, "n_of": 6}
    one_differs = equal["response"].where(np.arange(12) != 11, "Another answer.")
    assert equal_answers(prompts, answers(response=one_differs)) == []  # 5 of 6 is below 90 %
    few = slice(0, 8)  # four prompts
    assert equal_answers(prompts[few], equal[few]) == []
    assert equal_answers(prompts, answers(response=[""] * 12)) == []


def test_answers_without_a_style_are_counted(prompts):
    table = pd.concat([prompts.assign(template="t"), answers(response=["Yes."] * 11 + [""])], axis=1)
    vectors = np.where(np.arange(12)[:, None] < 3, np.nan, [[0.5, 0.5]])
    (found,) = without_style(Answers(table, vectors, ["kind", "curt"]))
    assert counts(found) == (3, 12, {"deaf": (3, 4)})
    vectors[:] = np.nan  # the last answer is empty, and no classifier would give it a style
    (found,) = without_style(Answers(table, vectors, ["kind", "curt"]))
    assert (found.values["n"], found.values["n_of"]) == (11, 12)
    assert without_style(Answers(table, np.full((12, 2), 0.5), ["kind", "curt"])) == []


def test_chats_with_an_unanswered_end_are_counted(prompts):
    (found,) = unanswered(prompts, answers(unanswered_end=[True] * 2 + [False] * 10))
    assert counts(found) == (2, 12, {"deaf": (2, 4)})
    assert unanswered(prompts, answers()) == []


def test_other_text_is_counted_by_kind_and_person(prompts):
    texts = ["verdict"] * 4 + ["", "verdict token", "", ""] + [""] * 4
    verdict, token = other_texts(prompts, answers(other_text=texts))
    assert counts(verdict) == (5, 12, {"deaf": (4, 4), "old": (1, 4)})
    assert verdict.values["name"] == "verdict" and verdict.values["is_removable"]
    assert counts(token) == (1, 12, {"old": (1, 4)})
    assert other_texts(prompts, answers(other_text=[""] * 12)) == []
    assert other_texts(prompts, answers()) == []
    many = pd.DataFrame({"descriptor": [f"d{row // 2}" for row in range(400)]})
    rare = answers().iloc[[0] * 400].assign(other_text=["sheet"] + [""] * 399)
    assert other_texts(many, rare) == []  # one answer of 400
    (of_one,) = other_texts(many, rare.assign(other_text=["sheet"] * 2 + [""] * 398))
    assert counts(of_one)[2] == {"d0": (2, 2)} and not of_one.values["is_removable"]


def test_a_run_without_any_answer_says_why():
    with pytest.raises(InputError, match=r"error 429 \(12\)") as error:
        check_nonempty(answers(response=[""] * 12, left_out=["error 429"] * 12))
    assert "max_new_tokens" not in str(error.value)
    with pytest.raises(InputError, match="max_new_tokens"):
        check_nonempty(answers(response=[" "] * 12))


def test_a_comparison_says_of_which_run_a_caution_is(monkeypatch):
    class Run:
        """Nothing but what `comparison_cautions` reads."""

        scores = ()
        folder = None

        def __init__(self, *cautions):
            self.cautions = cautions

        def table(self, name):
            assert name == RESPONSES
            return answers(cut=[False] * 12)

    both = Finding("no_templates")
    old, new = (Finding("equal_answers", {"n": n, "n_of": 12}) for n in (2, 3))
    monkeypatch.setattr(page_warnings, "answer_cautions", lambda run: list(run.cautions))
    monkeypatch.setattr(page_warnings, "comparison_stops", lambda before, after: [])
    monkeypatch.setattr(page_warnings, "demonstration", lambda run: [])
    found = page_warnings.comparison_cautions(Run(both, old), Run(new, both), Run())
    assert [(each.kind, each.values.get("side"), each.values.get("n")) for each in found] == [
        ("no_templates", None, None),
        ("equal_answers", "before", 2),
        ("equal_answers", "after", 3),
    ]
    changes = Run()
    changes.scores = [BiasScore("common_prompts", 0.5, None, (0.0, 1.0), n=12)]
    monkeypatch.setattr(page_warnings, "on_common_prompts", lambda before, after: (Run(), Run(both), None))
    monkeypatch.setattr(page_warnings, "people_not_compared", lambda before, after: [])
    found = page_warnings.comparison_cautions(Run(both, old), Run(new, both), changes)
    assert [(each.kind, each.values.get("side")) for each in found] == [
        ("few_common_prompts", None),
        ("no_templates", "after"),
    ]


def test_people_whose_names_differ_in_hyphens_or_case_are_named():
    names = ["hard-of-hearing", "hard\u2011of\u2011hearing", "Deaf", "deaf", "C", "C++"]
    (found,) = _alike(pd.DataFrame({"descriptor": names}))
    assert found.values["names"] == names[:4]
