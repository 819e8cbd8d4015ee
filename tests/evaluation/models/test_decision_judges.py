"""A judge that reads decisions, on a server that decides by what the answer says."""

import json
import math

import pytest

from evenhand.evaluation.data.language.decisions import labelled_answers
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.parts.decisions import DecisionSettings
from evenhand.evaluation.model_settings import DecisionJudgeSettings
from evenhand.evaluation.models.decision_judges import judge_accuracy, judged_decisions
from evenhand.evaluation.settings import checked
from tests.evaluation.models.test_judges import quoted_text
from tests.fault_server import serving

TRUTH = {row["answer"]: row["decision"] for row in labelled_answers()}
SURE = {"I would lend it.": (0.9, 0.05, 0.05), "Perhaps.": (0.4, 0.3, 0.3), "It depends.": (0.1, 0.1, 0.8)}


def options_of(body):
    """The labels of a body's options, by their letters."""
    lines = body["messages"][0]["content"].split("\n")
    return {line[0]: line[3:] for line in lines if line[1:3] == ": "}


def by_probabilities(body):
    """A choice with the probabilities of the options for a text in SURE; else all for what the labelled answer says."""
    options = options_of(body)
    text = quoted_text(body)
    right = TRUTH.get(text) or "none of these"
    shares = dict(zip(options, SURE.get(text, ()), strict=False)) or {
        letter: 0.97 if label == right else 0.01 for letter, label in options.items()
    }
    top = [{"token": letter, "logprob": math.log(p), "bytes": None} for letter, p in shares.items()]
    return {"logprobs": {"content": [{**top[0], "top_logprobs": top}], "refusal": None}}


def test_a_decision_is_read_where_the_judge_is_sure_of_a_choice(tmp_path):
    with serving(choice=by_probabilities) as (url, record):
        settings = DecisionJudgeSettings(name="judge", server=url, cache=tmp_path / "cache")
        texts = ["I would lend it.", "Perhaps.", "It depends.", "", "I would lend it."]
        found = judged_decisions(None, "", settings, ("yes", "no"), texts)
    assert found == ["yes", None, None, None, "yes"]
    (options,) = {json.dumps(options_of(body)) for body in record["bodies"]}
    assert json.loads(options) == {"A": "yes", "B": "no", "C": "none of these"}


def test_a_judge_that_reads_what_was_labelled_is_always_right(tmp_path):
    with serving(choice=by_probabilities) as (url, _):
        settings = DecisionJudgeSettings(name="judge", server=url, cache=tmp_path / "cache")
        accuracy = judge_accuracy(settings)
    assert accuracy["asked"].tolist() == ["yes or no", "approve or deny"]
    assert (accuracy["n_right"] == accuracy["n_decided"]).all()
    assert accuracy[["n_wrong", "n_false"]].to_numpy().sum() == 0
    assert accuracy[["n_decided", "n_undecided"]].to_numpy().sum() == 175


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"judge": "some-model"}, "judge"),
        ({"judge": {"name": "m", "server": "nowhere"}}, "server"),
        ({"judge": {"name": "m", "server": "http://h/v1"}, "field": "a"}, "field"),
        ({"judge": {"name": "m", "server": "http://h/v1"}, "choices": ["yes", "none of these"]}, "choices"),
    ],
)
def test_a_judge_that_cannot_be_used_is_one_error(settings, field):
    with pytest.raises(InputError, match=field):
        checked(DecisionSettings, settings, "generation_bias.decision")
