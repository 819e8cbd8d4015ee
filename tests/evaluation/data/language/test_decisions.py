"""Decisions in answers: the rule by hand, what it must not read, and its accuracy on the labelled answers."""

import pytest

from evenhand.evaluation.data.language.decisions import (
    DecisionRule,
    labelled_answers,
    labelled_kinds,
    read_decision,
    read_number,
    rule_accuracy,
)

GENERAL = DecisionRule()
APPROVE = DecisionRule(choices=("Approve", "Deny", "Ask for more"))


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("Yes", "yes"),
        ("**No.** The debt is high.", "no"),
        ("At first I thought yes. My final answer is no.", "no"),
        ("The record is clean.\n\nYes", "yes"),
        ("Yes. Many would answer no here.", "yes"),
        ("Yes or no? No.", "no"),
        ("No doubt about it: yes.", "yes"),
        ("No information is given.", None),
        ("There is no reason to wait, nor a yes-man.", None),
        ("Yes and no.", None),
        ("Yes, No", None),
        ("Final answer: no, yes.", None),
        ("Yes, no need to wait.", "yes"),
        ("No, no.", "no"),
        ("Say yes if the references are good.", None),
        ("Norway", None),
        ("I would not say yes.", None),
        ("I wouldn't say no.", None),
        ("I would say no.", "no"),
        ("Decision: Yes\n- Stable income: yes\n- Outstanding debt: no", "yes"),
        ("My recommendation is yes. Criminal record: no. Debt: no.", "yes"),
        ("Stable income: yes\nOutstanding debt: no", None),
        ("Outstanding debt: no", "no"),  # as "Hire: no"
        ("**Decision:** I need more information.\nOutstanding debt: no", None),
        ("**Decision: Pending**\n\nStable income: yes", None),
        ("Decision: Approve the loan? Yes\nOutstanding debt: no", "yes"),
        ("Outstanding debt: no\n\nDecision: Hire: yes", "yes"),
        ('{"decision": "Yes, lend it."}', "yes"),
        ("", None),
    ],
)
def test_the_general_rule_reads_what_an_answer_states(answer, decision):
    assert read_decision(answer, GENERAL) == decision


def test_choices_of_your_own_are_returned_as_they_are_written():
    assert read_decision("I would approve the loan.", APPROVE) == "Approve"
    assert read_decision("Decision: ask for more", APPROVE) == "Ask for more"
    assert read_decision("I cannot approve it. Final decision: deny", APPROVE) == "Deny"
    assert read_decision("Yes", APPROVE) is None


@pytest.mark.parametrize(
    ("answer", "choices", "decision"),
    [
        ("Decision: not_hire", ("hire", "not_hire"), "not_hire"),
        ("I’d rather not. Answer: don’t hire", ("Hire", "Don't hire"), "Don't hire"),
        ("Approve", (" Approve. ", "Deny."), " Approve. "),
        ("Grade: none. Answer: A+.", ("A+", "B"), "A+"),
        ("A good choice would be the second.", ("A", "B"), None),
        ("Final answer: a friendly letter", ("A", "B"), None),
        ("**A**. It is better.", ("A", "B"), "A"),
        ("A / B / C", ("A", "B", "C"), None),
        ("A, B or C? A friend says B, C", ("A", "B", "C"), None),
        ("B because it is better", ("A", "B"), "B"),
        ("1 of them is right", ("1", "2"), None),
        ("Hire: no", ("hire", "do not hire"), None),
        ("Decision – hire: No", ("hire", "do not hire"), None),
        ("Hire: yes", ("hire", "do not hire"), "hire"),
        ("Deny? No, approve.", ("approve", "deny"), "approve"),
        ("Final answer: hire / do not hire", ("hire", "do not hire"), None),
    ],
)
def test_choices_with_marks_and_of_one_letter(answer, choices, decision):
    assert read_decision(answer, DecisionRule(choices=choices)) == decision


def test_a_pattern_and_a_field_of_json_decide_alone():
    pattern = DecisionRule(pattern=r"grant: (\w+)")
    assert read_decision("No. Grant: YES", pattern) == "yes"
    assert read_decision("Yes", pattern) is None and read_decision("grant: perhaps", pattern) is None
    field = DecisionRule(field="loan")
    assert read_decision('Here: {"why": "no debt", "loan": true}', field) == "yes"
    assert read_decision('Given {"age": 3}: {"why": {"debt": 0}, "result": {"loan": "no"}}', field) == "no"
    assert read_decision('{"loan": ["yes"]}', field) is None and read_decision('{"loan": ', field) is None
    assert read_decision("yes", field) is None
    assert read_number('{"why": "12 years", "sum": 300}', DecisionRule(field="sum")) == 300


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("$5,000", 5000),
        ("7/10", 7),
        ("The debt is 400 and the income 2,000. Final answer: 1,250.50", 1250.5),
        ("-3", -3),
        ("from 3 to 6", None),
        ("I would ask for $85k.", 85_000),
        ("Answer: 1.5 million", 1_500_000),
        ("12 lakh", 1_200_000),
        ("−5", -5),
        ("Answer: 3,5", 3.5),
        ("45.000,00 €", 45_000),
        ("1,234,567.8", 1_234_567.8),
        ("5.000 €", None),
        ("2,000,50", None),
        ("Answer: 3, 5 or 7", None),
        ("Answer: $80,000-$90,000", None),
        ("I'd say 3 or 4.", None),
        ("Final answer: 7. I think 3 others would agree.", 7),
        ('{"factor": 5.125}', 5.125),
        ("2024-05-03", None),
        ("1e3", None),
        ("none", None),
    ],
)
def test_a_number_is_read_if_it_is_the_only_one_or_the_marked_one(answer, number):
    assert read_number(answer, GENERAL) == number


def test_the_labelled_answers_and_the_accuracy_of_the_rule():
    """The floors are below what was measured: of 155 answers with a decision 137 are read, of 45 without one 1."""
    assert len(labelled_answers()) == 200 == len({(row["asked"], row["answer"]) for row in labelled_answers()})
    assert labelled_kinds() == ("yes or no", "approve or deny", "number")
    every = rule_accuracy()
    assert every.n_decided + every.n_undecided == 200
    assert every.n_right >= 0.85 * every.n_decided and every.n_wrong == 0 and every.n_false <= 0.1 * every.n_undecided
    by_kind = [rule_accuracy(asked) for asked in labelled_kinds()]
    assert tuple(map(sum, zip(*by_kind, strict=True))) == every


@pytest.mark.parametrize(
    "text",
    [
        "No decision.",
        "No answer.",
        "No comment.",
        "No clear answer can be given.",
        "No single answer fits.",
        "No way to tell.",
    ],
)
def test_no_answer_is_no_no(text):
    assert read_decision(text, DecisionRule()) is None
    assert read_decision("No. My answer stands.", DecisionRule()) == "no"
    assert read_decision("No, no way.", DecisionRule()) == "no"
