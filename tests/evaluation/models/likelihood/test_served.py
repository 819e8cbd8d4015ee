"""Σ log p that a server says, by either way and through faults, is that of the model loaded here."""

import numpy as np
import pytest
import torch

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.likelihood.sentences import sentence_log_likelihoods
from evenhand.evaluation.models.likelihood.served import served_log_likelihoods
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.settings import ModelSettings
from evenhand.recipes.testbed import DIALOGUE_MODEL
from tests.fault_server import serving

SENTENCES = ["I love dogs.", "I'm a hard-of-hearing grandmother.", "I have two dogs and a cat.", "I love dogs."]
LIKELIHOODS = "echo", "prompt_logprobs"


@pytest.fixture(scope="module")
def model():
    return load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), device="cpu"))


@pytest.fixture(scope="module")
def log_p(model):
    """What a server of this model computes: log p of each token of a prompt but the first."""

    @torch.inference_mode()
    def of(ids):
        found = model.model(torch.tensor([ids])).logits[0, :-1].double().log_softmax(-1)
        return found[range(len(ids) - 1), ids[1:]].tolist()

    return of


def a_run(folder):
    return Run(folder, "a fingerprint", Tracker())


def served(url, **told):
    return ModelSettings(name="m", server=url, api="completions", tokenizer=str(DIALOGUE_MODEL), **told)


@pytest.mark.parametrize(
    ("way", "how"), zip(LIKELIHOODS, [{"context": "I like"}, {"end_of_sequence": True}], strict=True)
)
def test_a_server_says_what_the_model_here_does(tmp_path, model, log_p, way, how):
    here, tokens, _ = sentence_log_likelihoods(a_run(tmp_path / "here"), model, SENTENCES, **how)
    with serving("rate", "cut", "two", "reset", says=(way, log_p)) as (url, seen):
        found, counts, variant = served_log_likelihoods(a_run(tmp_path / "there"), served(url), SENTENCES, **how)
        assert all(body["max_tokens"] == 1 for body in seen["bodies"]) and len(seen["bodies"]) > 5
    np.testing.assert_allclose(found, here, rtol=1e-6)
    assert (counts == tokens).all() and found[0] == found[3] and f"a server's `{way}`" in variant


def test_a_server_that_says_none_is_told_in_one_line_that_names_both_ways(tmp_path):
    with serving() as (url, seen), pytest.raises(InputError) as error:
        served_log_likelihoods(a_run(tmp_path), served(url), SENTENCES)
    assert "neither by `echo` with `logprobs` nor by `prompt_logprobs`" in str(error.value)
    assert len(seen["bodies"]) == 2 and "\n" not in str(error.value)


def test_a_wrong_number_of_likelihoods_is_none(tmp_path, log_p, monkeypatch):
    monkeypatch.setattr("evenhand.evaluation.models.server.MAX_FIRST_RETRIES", 1)
    with serving(says=("echo", lambda ids: log_p(ids)[2:])) as (url, _), pytest.raises(InputError, match="server"):
        served_log_likelihoods(a_run(tmp_path), served(url), SENTENCES)
