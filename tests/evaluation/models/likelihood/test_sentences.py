"""Σ log p of sentences by a tree, one by one and by a server at both endpoints: the sums are equal."""

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch

from evenhand.evaluation import columns
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.kinds.server import ServedModel
from evenhand.evaluation.models.likelihood import sentences as module
from evenhand.evaluation.models.likelihood.sentences import sentence_log_likelihoods
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.tables import join_batches
from evenhand.recipes.testbed import DIALOGUE_MODEL
from tests.fault_server import serving

NEEDS_HARNESS = pytest.mark.skipif(find_spec("lm_eval") is None, reason="the extra evenhand[lm-eval] is not installed")
SENTENCES = ["I love dogs.", "I love cats.", "I have two dogs and a cat.", "I love dogs."]


def scores(batches):
    """Return Σ log p, the number of tokens, and what is scored, of all sentences."""
    table = join_batches(batches)
    (variant,) = set(table[columns.VARIANT])
    return table[columns.LOG_LIKELIHOOD].to_numpy(), table[columns.TOKENS].to_numpy(), variant


@pytest.fixture(scope="module")
def model():
    return load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), device="cpu"))


def test_a_tree_and_plain_scoring_agree(model, monkeypatch, caplog):
    """Runs of both are compared, since the same is scored."""
    table = pd.DataFrame({"text": SENTENCES})
    over_tree, tokens, of_tree = scores(sentence_log_likelihoods(model, table, end_of_sequence=True))
    assert over_tree[0] == over_tree[3] and not caplog.records
    monkeypatch.setattr(module, "supports_prefix_trees", lambda *_: False)
    plain, counts, of_plain = scores(sentence_log_likelihoods(model, table, end_of_sequence=True))
    assert "prefix trees" in caplog.text and of_plain == of_tree
    assert (counts == tokens).all()
    np.testing.assert_allclose(over_tree, plain, atol=1e-3)


def harness_sums(model):
    """Return Σ log p of the sentences as lm-evaluation-harness scores them for its task `crows_pairs_english`."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    harness = HFLM(pretrained=model.model, tokenizer=model.tokenizer, batch_size=2)
    requests = [Instance("loglikelihood", {}, ("", sentence), i) for i, sentence in enumerate(SENTENCES)]
    return [value for value, _ in harness.loglikelihood(requests, disable_tqdm=True)]


@NEEDS_HARNESS
def test_the_sums_are_those_of_the_harness(model):
    sums, _, _ = scores(sentence_log_likelihoods(model, pd.DataFrame({"text": SENTENCES})))
    np.testing.assert_allclose(sums, harness_sums(model), atol=1e-3)


SERVED_SENTENCES = ["I love dogs.", "I'm a hard-of-hearing grandmother.", "I have two dogs and a cat.", "I love dogs."]


@pytest.fixture(scope="module")
def log_p(model):
    """Return a function that returns log p of each token of a prompt except the first, as a server does."""

    @torch.inference_mode()
    def compute(ids):
        scores = model.model(torch.tensor([ids])).logits[0, :-1].double().log_softmax(-1)
        return scores[range(len(ids) - 1), ids[1:]].tolist()

    return compute


def server_settings(url, **settings):
    return ModelSettings(name="m", server=f"{url}/completions", tokenizer=str(DIALOGUE_MODEL), **settings)


@pytest.mark.parametrize("arguments", [{"context": "I like"}, {"end_of_sequence": True}], ids=str)
def test_scores_equal_the_loaded_models(model, log_p, arguments):
    table = pd.DataFrame({"text": SERVED_SENTENCES})
    expected, tokens, of_weights = scores(sentence_log_likelihoods(model, table, **arguments))
    with serving("rate", "cut", "two", "reset", logprobs=log_p) as (url, seen):
        sums, counts, variant = scores(ServedModel(server_settings(url)).score_sentences(table, **arguments))
        assert all(body["max_tokens"] == 1 for body in seen["bodies"]) and len(seen["bodies"]) > 4
    np.testing.assert_allclose(sums, expected, rtol=1e-6)
    assert (counts == tokens).all()
    assert sums[0] == sums[3]
    assert variant == of_weights
