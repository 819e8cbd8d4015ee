"""Σ log p of sentences: each way of scoring goes through the run, and both give the same sums."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.likelihood import sentences as module
from evenhand.evaluation.models.likelihood.sentences import sentence_log_likelihoods
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.runs.work_shards import ALL
from evenhand.evaluation.settings import ModelSettings
from evenhand.recipes.testbed import DIALOGUE_MODEL

SENTENCES = ["I love dogs.", "I love cats.", "I have two dogs and a cat.", "I love dogs."]


class Gathering:
    """What of a run is used: rows by batches, in order, here without a disk."""

    def __init__(self):
        self.asked = []

    def compute_resumable(self, name, columns, n, batches, description, unit):
        self.asked.append((name, n))
        tables = [pd.DataFrame(dict(zip(("row", *columns), batch, strict=True))) for batch in batches(ALL)]
        rows = pd.concat(tables).sort_values("row", ignore_index=True)
        assert rows["row"].tolist() == list(range(n))
        return rows[list(columns)]


@pytest.fixture(scope="module")
def model():
    return load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), device="cpu"))


def test_a_tree_and_plain_scoring_agree(model, monkeypatch):
    run = Gathering()
    over_tree, tokens, how = sentence_log_likelihoods(run, model, SENTENCES, end_of_sequence=True)
    assert "over a prefix tree" in how and over_tree[0] == over_tree[3]
    monkeypatch.setattr(module, "supports_prefix_trees", lambda *_: False)
    plain, counts, how = sentence_log_likelihoods(run, model, SENTENCES, end_of_sequence=True)
    assert "one by one" in how and (counts == tokens).all()
    np.testing.assert_allclose(over_tree, plain, atol=1e-3)
    (first, nodes), second = run.asked
    assert (first, second) == ("beginnings", ("sentences", 4)) and nodes < tokens.sum()


def test_an_empty_sentence_is_refused(model):
    with pytest.raises(InputError, match="has no tokens"):
        sentence_log_likelihoods(Gathering(), model, ["", "I love dogs."])
