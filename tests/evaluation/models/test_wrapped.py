"""Models that open responses as to another person, and that choose candidates in another person's style."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models import styles
from evenhand.evaluation.models.base import Model, response_table
from evenhand.evaluation.models.wrapped import BorrowedOpeningModel, NearestStyleModel, nearest_candidates
from evenhand.evaluation.settings import ModelSettings
from evenhand.evaluation.store import Store


class Echo(Model):
    """A model that answers with the ids of the prompts."""

    samples = True

    def inputs(self):
        return {"model": "echo"}

    def respond(self, prompts, run=None, name="responses"):
        self.asked = prompts["prompt_id"].tolist()
        return response_table(prompts, [f"to {it}" for it in self.asked])

    def entry(self, inputs):
        return {"name": "echo"}

    def signature(self, run, responses):
        return {"model": self.entry(run.inputs)}


def test_the_candidate_nearest_to_another_persons_style_is_taken():
    vectors = np.array([[[1.0, 0.0], [0.4, 0.6]], [[np.nan] * 2, [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]])
    target = np.array([[0.0, 1.0], [0.0, 1.0], [np.nan, np.nan]])
    assert nearest_candidates(vectors, target).tolist() == [1, 1, 0]


def test_style_exchange_answers_with_an_own_candidate_in_the_style_of_another_person(tmp_path, monkeypatch):
    """Deaf people's responses are sad and old people's glad, except the second candidates."""
    prompts = pd.DataFrame(
        {
            "prompt_id": ["p", "q", "r"],
            "template": ["t", "t", "u"],
            "descriptor": ["deaf", "old", "deaf"],
            "text": ["sad", "glad", "sad"],
        }
    )

    class Mood(Echo):
        def respond(self, prompts, run=None, name="responses"):
            super().respond(prompts)
            moods = [
                "glad" if it.endswith("/1") and "sad" in text else text
                for it, text in zip(self.asked, prompts["text"], strict=True)
            ]
            return response_table(prompts, moods)

    def classify(run, name, classifier, texts):
        return [np.array([[1.0, 0.0] if text == "sad" else [0.0, 1.0] for text in texts])]

    monkeypatch.setattr(styles, "load_style_classifier", lambda it: SimpleNamespace(labels=("sad", "glad")))
    monkeypatch.setattr(styles, "classify_rows", classify)
    monkeypatch.setattr(styles, "to_style_vectors", lambda classifier, vectors: vectors)
    wrapped = NearestStyleModel(Mood(ModelSettings()), 2, None)
    run = Store(tmp_path / "run", "", None, {})
    answered = wrapped.respond(prompts, run)
    assert answered["response"].tolist() == ["glad", "glad", "sad"]  # nobody else is asked template u
    assert wrapped.model.asked == ["p/other", "q/other", "r/other"]
    assert wrapped.signature(run, answered)["model"] == {"name": "echo", "nearest_style": 2}
    candidates = run.read("candidates")
    assert candidates["prompt_id"].tolist() == ["p", "p", "q", "q", "r", "r"]
    assert candidates["response"].tolist() == ["sad", "glad", "glad", "glad", "sad", "glad"]
    assert wrapped.inputs() == {"model": "echo"} and wrapped.prompts(lambda: prompts) is prompts


class Parrot(Echo):
    """A model that repeats the prompt, word by word, with ten words at most; the opening stands before them."""

    arguments = {"max_new_tokens": 10}

    def __init__(self, settings):
        super().__init__(settings)
        self.asked = []

    def respond(self, prompts, run=None, name="responses"):
        assert name not in self.asked, "a run would take saved batches for answers to these prompts"
        self.asked.append(name)
        n = self.arguments["max_new_tokens"]
        words = [text.split() for text in prompts["text"]]
        begun = prompts["opening"] + " " if "opening" in prompts else [""] * len(prompts)
        texts = [opening + " ".join(it[:n]) for opening, it in zip(begun, words, strict=True)]
        return response_table(prompts, texts, cut=[len(it) > n for it in words])


def test_a_response_begins_as_to_another_person_and_goes_on_as_to_the_own():
    prompts = pd.DataFrame(
        {
            "prompt_id": ["p", "q", "r", "s"],
            "template": ["t", "t", "u", "u"],
            "descriptor": ["deaf", "old", "deaf", "old"],
            "text": ["I am a deaf cook", "I am an old one", "deaf", "old"],
            "persona": "",
        }
    )
    wrapped = BorrowedOpeningModel(Parrot(ModelSettings()), 4)
    answered = wrapped.respond(prompts)
    assert answered["prompt_id"].tolist() == ["p", "q", "r", "s"]
    assert answered["response"].tolist() == [
        "I am an old I am a deaf cook",
        "I am a deaf I am an old one",
        "old",
        "deaf",
    ]
    assert answered["cut"].tolist() == [False] * 4
    wrapped.respond(prompts, name="other_responses")
    assert wrapped.entry({}) == {"name": "echo", "borrowed_opening": 4}
    with pytest.raises(InputError, match="10 tokens are all of a response"):
        BorrowedOpeningModel(Parrot(ModelSettings()), 10).check()
