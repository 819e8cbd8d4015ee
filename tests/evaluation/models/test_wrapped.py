"""Draws from candidates by the weights of their styles, and the exponents of prompts."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models import styles
from evenhand.evaluation.models.model import Model, response_table
from evenhand.evaluation.models.wrapped import (
    OpenedModel,
    ResampledModel,
    StyleExchangedModel,
    draw_candidates,
    nearest_candidates,
    prompt_exponents,
)
from evenhand.evaluation.settings import ModelSettings
from evenhand.evaluation.store import Store


def test_a_candidate_is_drawn_by_its_weight_and_the_first_is_kept_where_possible():
    """With candidates in random order, as sampled, each is drawn with the probability of its weight."""
    rng = np.random.default_rng(0)
    n, weights = 40_000, np.array([1.0, 2.0, 5.0])
    order = np.argsort(rng.random((n, 3)), axis=1)
    drawn = draw_candidates(np.log(weights)[order], rng.random((n, 2)))
    shares = np.bincount(order[np.arange(n), drawn]) / n
    assert shares == pytest.approx(weights / 8, abs=0.01)
    distance = 0.5 * np.abs(weights / 8 - 1 / 3).sum()  # in total variation: the least share of changed responses
    assert (drawn > 0).mean() == pytest.approx(distance, abs=0.01)


def test_equal_weights_keep_the_first_candidate_and_undefined_weights_are_not_drawn():
    scores = np.array([[0.0, 0.0], [np.nan, -5.0], [np.nan, np.nan], [0.0, np.nan]])
    draws = np.random.default_rng(0).random((4, 2))
    assert draw_candidates(scores, draws).tolist() == [0, 1, 0, 0]


EXPONENTS = pd.DataFrame(
    {"kind": ["descriptor", "descriptor", "axis"], "unit": ["old", "deaf", "age"], "x": [1.0, 2.0, 3.0], "y": 0.0}
)


def test_a_prompt_has_the_exponent_of_its_descriptor_else_of_its_axis_else_none():
    prompts = pd.DataFrame({"descriptor": ["deaf", "young", "tall"], "axis": ["ability", "age", "body"]})
    assert prompt_exponents(EXPONENTS, prompts, ("x", "y")).tolist() == [[2, 0], [3, 0], [0, 0]]
    with pytest.raises(InputError, match=r"^resampling\.exponents: .*other styles"):
        prompt_exponents(EXPONENTS, prompts, ("x", "z"))


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


def test_a_prompt_without_an_exponent_has_one_candidate(tmp_path, monkeypatch):
    """λ = (50, 0) for deaf people: of their candidates, the one with the larger first style is drawn."""
    EXPONENTS.assign(x=50.0).to_parquet(tmp_path / "exponents.parquet")

    def classify(run, name, classifier, texts):
        return [np.array([[0.9, 0.1] if text.endswith("/1") else [0.1, 0.9] for text in texts])]

    monkeypatch.setattr(styles, "load_style_classifier", lambda it: SimpleNamespace(labels=("x", "y")))
    monkeypatch.setattr(styles, "classify_rows", classify)
    monkeypatch.setattr(styles, "to_style_vectors", lambda classifier, vectors: vectors)
    prompts = pd.DataFrame({"prompt_id": ["p", "q", "r"], "descriptor": ["tall", "deaf", "rich"], "axis": "body"})
    model, run = Echo(ModelSettings()), Store(tmp_path / "run", "", None, {"exponents": "a hash"})
    wrapped = ResampledModel(model, 2, None, tmp_path / "exponents.parquet")
    drawn = wrapped.respond(prompts, run)
    assert model.asked == ["p", "q", "q/1", "r"]
    assert drawn["response"].tolist() == ["to p", "to q/1", "to r"]
    assert wrapped.signature(run, drawn)["model"] == {
        "name": "echo",
        "resampling": {"candidates": 2, "exponents": "a hash"},
    }
    assert wrapped.inputs().keys() == {"model", "exponents"} and wrapped.prompts(lambda: prompts) is prompts


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
    wrapped = StyleExchangedModel(Mood(ModelSettings()), 2, None)
    answered = wrapped.respond(prompts, Store(tmp_path / "run", "", None, {}))
    assert answered["response"].tolist() == ["glad", "glad", "sad"]  # nobody else is asked template u
    assert wrapped.model.asked == ["p/other", "q/other", "r/other"]
    assert wrapped.entry({}) == {"name": "echo", "style_exchange": 2}


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
    wrapped = OpenedModel(Parrot(ModelSettings()), 4)
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
    assert wrapped.entry({}) == {"name": "echo", "opening": 4}
    with pytest.raises(InputError, match="10 tokens are all of a response"):
        OpenedModel(Parrot(ModelSettings()), 10).check()
