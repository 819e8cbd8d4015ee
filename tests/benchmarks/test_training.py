"""The benchmark of trainings: the divergence between people by hand, cut rows, and the line of a table."""

import numpy as np
import torch
from datasets import Dataset

from benchmarks.training import Predictions, cut_after_opening, line, predictions
from evenhand.mitigation.trainers import DistillTrainer
from tests.mitigation.tiny_dialogue import tiny_base


def encoded(base, responses, others):
    rows = [
        {"prompt": "a b", "context": "a b", "completion": response, "others": others, "trained": ["a b", *others]}
        for response in responses
    ]
    return DistillTrainer.encode_rows(base, Dataset.from_list(rows))


def test_predictions_are_the_divergence_from_the_mean_over_the_people():
    base = tiny_base()
    rows = encoded(base, ["red sun sky sun red"], ["d"])
    found = predictions(base, base.model, rows)
    labels = rows["labels"][0]
    n = len(labels) - 1
    with torch.no_grad():
        p = torch.stack([base.model(torch.tensor([ids])).logits[0, -n - 1 : -1] for ids in rows["input_ids"][0]])
    p = p.double().softmax(-1)
    mean = p.log().mean(0).exp()
    mean /= mean.sum(-1, keepdim=True)
    divergence = (mean * (mean.log() - p.log())).sum(-1).mean(0)
    losses = -p[0].log()[torch.arange(n), torch.tensor(labels[-n:])]
    np.testing.assert_allclose(found.opening, [divergence[:4].sum()], rtol=1e-4)
    np.testing.assert_allclose(found.later, [divergence[4:].sum()], rtol=1e-4)
    np.testing.assert_allclose(found.loss, [losses.sum()], rtol=1e-4)
    assert found.n_tokens.tolist() == [n] and found.opening[0] > 0


def test_equal_prompts_have_no_divergence():
    base = tiny_base()
    found = predictions(base, base.model, encoded(base, ["red sun sky"], ["a b"]))
    np.testing.assert_allclose([found.opening, found.later], 0, atol=1e-5)


def test_three_of_four_rows_end_after_the_opening():
    base = tiny_base()
    rows = encoded(base, ["red sun sky sun red"] * 8, ["d"])
    lengths = [len(labels) - 1 for labels in cut_after_opening(rows)["labels"]]
    assert lengths == [6, 4, 4, 4, 6, 4, 4, 4]  # the end of the response is a token


def test_the_line_of_a_training_by_hand():
    ones = np.ones(10)
    before = Predictions(opening=2 * ones, later=4 * ones, loss=10 * ones, n_tokens=5 * ones)
    after = Predictions(opening=ones, later=3 * ones, loss=(10 + 5 * np.log(1.1)) * ones, n_tokens=5 * ones)
    assert line("half", 1200, before, after) == "| half | 1,200 | 50 % [50, 50] | 75 % [75, 75] | 10 % [10, 10] |"
