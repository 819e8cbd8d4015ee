"""What is shown of a measurement while it runs."""

import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias import so_far
from evenhand.evaluation.metrics.generation_bias.so_far import AnswersSoFar
from evenhand.evaluation.runs.tracking import Tracker

ENGLISH = "I am so sorry to hear that, but it is good to know."
SPANISH = "Lo siento mucho, pero me alegro de saberlo, amigo."
REFUSED = "I'm sorry, but I can't help with that."
PROMPTS = pd.DataFrame({"prompt_id": list("abcdef"), "text": [f"How do I boil an egg, {name}?" for name in "abcdef"]})
PROMPTS = PROMPTS.assign(template="How do I boil an egg?", descriptor=PROMPTS["prompt_id"])


def batch(responses, ids):
    return pd.DataFrame({"prompt_id": list(ids), "response": responses, "left_out": None})


class Counted(Tracker):
    """A tracker that keeps the values that it is given."""

    def log_values(self, values):
        counted.append(values)


counted = []


@pytest.mark.parametrize("is_watched", [True, False])
def test_answers_are_counted(monkeypatch, caplog, is_watched):
    counted.clear()
    monkeypatch.setattr(so_far, "is_watched", lambda: is_watched)
    monkeypatch.setattr(so_far, "SECONDS_BEFORE", 0.0)
    monkeypatch.setattr(so_far, "SECONDS_BETWEEN", 0.0)
    batches = [batch([ENGLISH, SPANISH], "ab"), batch([ENGLISH, REFUSED, "", "ok"], "cdef")]
    answers = AnswersSoFar(PROMPTS, Counted())
    with caplog.at_level("INFO", "evenhand"):
        for answered in batches:
            answers.add(answered)
    # The empty one and the one that is too short are in no language.
    assert (answers.n, answers.n_other_language, answers.n_refused) == (6, 1, 1)
    assert [values["so far/answers"] for values in counted] == [2, 6]
    assert ["egg, f?" in message for message in caplog.messages] == ([False, True] if is_watched else [])


def test_nothing_is_said_of_a_run_that_ends_at_once(caplog):
    with caplog.at_level("INFO", "evenhand"):
        AnswersSoFar(PROMPTS, Tracker()).add(batch([ENGLISH], "a"))
    assert not caplog.records


def test_a_long_answer_is_one_short_line():
    answers = AnswersSoFar(PROMPTS, Tracker())
    answers.add(batch(["word\n" * 500], "a"))
    assert len(answers.text()) < 300
    assert "\n" not in answers.text()
