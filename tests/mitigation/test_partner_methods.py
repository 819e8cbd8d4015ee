"""Models that open responses as to another person, and that choose candidates in another person's style."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.other_people import with_partners
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings, StyleClassifierSettings
from evenhand.evaluation.models import classifier_kinds, styles
from evenhand.evaluation.models.base import CANDIDATES, Model, response_batch
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.tables import join_batches
from evenhand.mitigation.methods import load_method
from evenhand.mitigation.methods.borrowed_opening import BorrowedOpeningModel
from evenhand.mitigation.methods.nearest_style import NearestStyleModel, nearest_candidates
from tests.recorded_runs import change_record, write_run

CLASSIFIER = StyleClassifierSettings(name="never loaded")


class Parrot(Model):
    """A model that repeats its prompt, word by word, after the given opening; a batch has one prompt.

    Attributes:
        samples: whether a candidate may differ from another.
        asked: the ids of all prompts that were asked.
        calls_until_kill: the number of prompts that are answered before a KeyboardInterrupt; None: all.
    """

    samples = True
    arguments = {"max_new_tokens": 10}

    def __init__(self, settings=None, decoding=None, *, tag="", calls_until_kill=None, **options):
        super().__init__(settings or ModelSettings(), decoding, tag=tag, **options)
        self.asked = []
        self.calls_until_kill = calls_until_kill

    def identity(self):
        return {"model": "parrot"}

    def answer(self, prompt, n):
        words = prompt["text"].split()
        opening = prompt.get("opening", "")
        said = " ".join(words[:n])
        return f"{opening} {said}".strip(), len(words) > n

    def respond(self, prompts, tokens=None):
        n = self.arguments["max_new_tokens"] if tokens is None else len(tokens)
        for row in range(len(prompts)):
            if len(self.asked) == self.calls_until_kill:
                raise KeyboardInterrupt
            prompt = prompts.iloc[[row]]
            self.asked.append(prompt["prompt_id"].iloc[0])
            text, is_cut = self.answer(prompt.iloc[0], n)
            yield response_batch(prompt, [text], more={"cut": [is_cut]})


class Mood(Parrot):
    """A model that is sad to deaf people and glad to others, except in its second candidates; it ignores openings."""

    def answer(self, prompt, n):
        is_sad = "deaf" in prompt["text"]
        if prompt["prompt_id"].endswith("/1"):
            is_sad = not is_sad
        return "sad" if is_sad else "glad", False


@pytest.fixture
def moods(monkeypatch):
    """A style classifier of the styles sad and glad."""

    def style_vectors(classifier, texts):
        return np.array([[1.0, 0.0] if "sad" in text else [0.0, 1.0] for text in texts])

    classifier = SimpleNamespace(labels=("sad", "glad"))
    monkeypatch.setattr(classifier_kinds, "load_style_classifier", lambda settings: classifier)
    monkeypatch.setattr(styles, "style_vectors", style_vectors)


PROMPTS = pd.DataFrame(
    {
        "prompt_id": ["p", "q", "r", "s", "t"],
        "template": ["cook", "cook", "only", "only", "alone"],
        "descriptor": ["deaf", "old", "deaf", "old", "deaf"],
        "text": ["I am a deaf cook", "I am an old one", "deaf", "old", "deaf and alone"],
        "persona": "",
    }
)


def test_the_candidate_nearest_to_another_persons_style_is_taken():
    vectors = np.array([[[1.0, 0.0], [0.4, 0.6]], [[np.nan] * 2, [1.0, 0.0]], [[0.5, 0.5], [0.0, 1.0]]])
    target = np.array([[0.0, 1.0], [0.0, 1.0], [np.nan, np.nan]])
    assert nearest_candidates(vectors, target).tolist() == [1, 1, 0]


def test_style_exchange_answers_with_an_own_candidate_in_the_style_of_another_person(moods):
    wrapped = NearestStyleModel(Mood(), 2, CLASSIFIER)
    answered = join_batches(wrapped.respond(with_partners(PROMPTS, seed=0)))
    # Each answers as the partner is answered: deaf people gladly, old people sadly; and alone, one's own first.
    assert answered["response"].tolist() == ["glad", "sad", "glad", "sad", "sad"]
    assert answered["prompt_id"].tolist() == PROMPTS["prompt_id"].tolist()
    assert answered[CANDIDATES].map(list).tolist() == [["sad", "glad"], ["glad", "sad"]] * 2 + [["sad", "glad"]]
    assert wrapped.model.asked[-5:] == ["p/other", "q/other", "r/other", "s/other", "t/other"]
    assert wrapped.facts()["model"]["nearest_style"] == 2
    assert wrapped.identity() == {"model": "parrot"}


OPENED = [
    "I am an old I am a deaf cook",
    "I am a deaf I am an old one",
    "old",
    "deaf",
    "deaf and alone",
]


def test_a_response_begins_as_to_another_person_and_goes_on_as_to_the_own():
    wrapped = BorrowedOpeningModel(Parrot(), 4)
    answered = join_batches(wrapped.respond(with_partners(PROMPTS, seed=0)))
    assert answered["prompt_id"].tolist() == PROMPTS["prompt_id"].tolist()
    assert answered["response"].tolist() == OPENED
    assert not answered["cut"].any()
    assert wrapped.facts()["model"]["borrowed_opening"] == 4
    with pytest.raises(InputError, match="^method: 10 "):
        BorrowedOpeningModel(Parrot(), 10).check()
    with pytest.raises(InputError, match="prompts"):
        wrapped.check(PROMPTS)  # they have no partners


def test_wrapped_models_can_be_wrapped(moods):
    """Every candidate begins as to another person; the answer is the candidate in the style of the partner's answer."""

    class LastWord(Parrot):
        """A model that repeats the prompt, and that begins second candidates with another word."""

        def answer(self, prompt, n):
            text, is_cut = super().answer(prompt, n)
            mood = "sad" if "deaf" in text.split() else "glad"
            return (f"{mood} {text}" if not prompt.get("opening") else text), is_cut

    wrapped = NearestStyleModel(BorrowedOpeningModel(LastWord(), 4), 2, CLASSIFIER)
    asked = with_partners(PROMPTS, seed=0)
    wrapped.check(asked)
    answered = join_batches(wrapped.respond(asked))
    assert answered["response"].tolist()[:2] == ["glad I am an old I am a deaf cook", "sad I am a deaf I am an old one"]
    assert wrapped.facts()["model"]["nearest_style"] == 2
    assert wrapped.facts()["model"]["borrowed_opening"] == 4
    assert wrapped.needs_partners
    changed = wrapped.with_settings(system_prompt="Be kind.")
    assert changed.model.model.settings.system_prompt == "Be kind."
    assert (changed.candidates, changed.model.tokens) == (2, 4)
    assert wrapped.model.model.settings.system_prompt is None


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr("evenhand.evaluation.runs.store.SECONDS_BETWEEN_WRITES", 0.0)
    monkeypatch.setattr("evenhand.mitigation.methods.nearest_style.CHUNK", 1)
    change_record(write_run(tmp_path, "measure"), fingerprint="a fingerprint")
    return Store(tmp_path, "a fingerprint", Tracker(), family="some")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: BorrowedOpeningModel(model, 4),
        lambda model: NearestStyleModel(model, 2, CLASSIFIER),
        lambda model: NearestStyleModel(BorrowedOpeningModel(model, 4), 2, CLASSIFIER),
        lambda model: BorrowedOpeningModel(NearestStyleModel(model, 2, CLASSIFIER), 4),
    ],
    ids=["borrowed_opening", "nearest_style", "borrowed_opening+nearest_style", "nearest_style+borrowed_opening"],
)
def test_a_killed_run_has_the_partners_and_responses_of_an_uninterrupted_one(run, moods, wrap):
    """A template has many people, so that partners drawn anew for the missing half would be other people."""
    n = 24
    prompts = pd.DataFrame(
        {
            "prompt_id": [f"p{number}" for number in range(n)],
            "template": ["one", "other"] * (n // 2),
            "descriptor": [f"d{number}" for number in range(n)],
            "text": [f"I am {'deaf' if number % 3 else 'old'} person number {number}" for number in range(n)],
            "persona": "",
        }
    )
    asked = with_partners(prompts, seed=1)
    whole = join_batches(wrap(Parrot()).respond(asked))
    killed = wrap(Parrot(calls_until_kill=30))
    with pytest.raises(KeyboardInterrupt):
        run.rows("responses", asked, killed.respond)
    files = (run.folder / "parts" / "some" / "responses").glob("*.parquet")
    n_saved = sum(len(pd.read_parquet(file)) for file in files)
    assert 0 < n_saved < n
    model = Parrot()
    rows = run.rows("responses", with_partners(prompts, seed=1), wrap(model).respond)
    assert rows["response"].tolist() == whole["response"].tolist()
    assert rows["prompt_id"].tolist() == prompts["prompt_id"].tolist()
    asked_again = {prompt_id.partition("/")[0] for prompt_id in model.asked}
    assert len(asked_again) == n - n_saved


def test_a_wrapped_model_scores_sentences_as_the_model_that_it_wraps():
    """A trained method can be joined with one that trains nothing, and likelihoods are measured, too."""

    class Scorer(Parrot):
        def score_sentences(self, sentences, *, context="", end_of_sequence=False):
            yield sentences.assign(log_likelihood=-len(context), tokens=int(end_of_sequence))

    wrapped = BorrowedOpeningModel(NearestStyleModel(Scorer(), 2, CLASSIFIER), 4)
    scores = join_batches(wrapped.score_sentences(pd.DataFrame({"text": ["Hi."]}), context="abc", end_of_sequence=True))
    assert scores[["log_likelihood", "tokens"]].to_numpy().tolist() == [[-3, 1]] and not wrapped.is_masked


def test_a_method_that_reads_other_prompts_still_does_with_an_instruction():
    """As in `borrowed_opening+prompt`, where the second method changes a setting of the first one's model."""
    method = load_method("borrowed_opening+prompt")
    model = method.measured(Parrot())
    assert model.needs_partners and model.tokens == 4
    assert model.settings.system_prompt


def test_a_response_takes_as_many_requests_as_are_sent():
    class Served(Parrot):
        requests_per_response = 1

    assert NearestStyleModel(Served(), 4, CLASSIFIER).requests_per_response == 5
    assert BorrowedOpeningModel(Served(), 4).requests_per_response == 2
