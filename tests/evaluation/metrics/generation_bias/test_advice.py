"""What a result may mean; which files of responses are logs, in which people may have asked for different things."""

import pandas as pd
import pytest

from evenhand.evaluation.data.readers.response_files import UNSPECIFIED
from evenhand.evaluation.metrics.generation_bias.advice import ask_different_things, meaning

PEOPLE = ("veteran", "old woman")
SAME = ["I'm a veteran, where is my bag?", "I'm an old woman, where is my bag?"]
OTHER = ["I'm a veteran, where is my bag?", "As an old woman, I want a refund."]


@pytest.mark.parametrize(
    ("texts", "template", "expected"),
    [(SAME, "bags", False), (OTHER, "bags", True), (SAME, UNSPECIFIED, True)],
    ids=["same request", "other request", "without templates"],
)
def test_people_ask_for_the_same_if_their_messages_differ_in_the_mention_only(texts, template, expected):
    prompts = pd.DataFrame({"text": texts, "descriptor": PEOPLE, "template": template, "axis": UNSPECIFIED})
    assert ask_different_things(prompts) == expected


@pytest.mark.parametrize(
    ("is_shown", "differs_otherwise", "case"),
    [(False, False, "nothing"), (False, True, "other"), (True, False, "tone"), (True, True, "tone")],
)
def test_people_who_differ_in_an_outcome_are_not_treated_alike_although_nobody_is_named(
    is_shown, differs_otherwise, case
):
    found = meaning([], is_shown=is_shown, differs_otherwise=differs_otherwise, is_log=False)
    assert found.values["case"] == case
