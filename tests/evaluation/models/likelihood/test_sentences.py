"""Σ log p of sentences by both methods, which save to the run and have equal sums."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.likelihood import sentences as module
from evenhand.evaluation.models.likelihood.sentences import sentence_log_likelihoods
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.settings import ModelSettings
from evenhand.recipes.testbed import DIALOGUE_MODEL

SENTENCES = ["I love dogs.", "I love cats.", "I have two dogs and a cat.", "I love dogs."]


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path, "a fingerprint", Tracker())


def saved_rows(run, name):
    """Return the number of rows in the parts of this name."""
    return sum(len(pd.read_parquet(file)) for file in run.parts(name, [], 0).folder.glob("*.parquet"))


@pytest.fixture(scope="module")
def model():
    return load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), device="cpu"))


def test_a_tree_and_plain_scoring_agree(model, run, monkeypatch):
    over_tree, tokens, how = sentence_log_likelihoods(run, model, SENTENCES, end_of_sequence=True)
    assert "over a prefix tree" in how and over_tree[0] == over_tree[3]
    monkeypatch.setattr(module, "supports_prefix_trees", lambda *_: False)
    plain, counts, how = sentence_log_likelihoods(run, model, SENTENCES, end_of_sequence=True)
    assert "one by one" in how and (counts == tokens).all()
    np.testing.assert_allclose(over_tree, plain, atol=1e-3)
    assert saved_rows(run, "sentences") == 4 and 0 < saved_rows(run, "beginnings") < tokens.sum()


def test_an_empty_sentence_is_an_error(model, run):
    with pytest.raises(InputError, match="has no tokens"):
        sentence_log_likelihoods(run, model, ["", "I love dogs."])
