"""Response likelihoods, compared with a naive computation and with a uniform model."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from evenhand.evaluation.models import batches
from evenhand.evaluation.models.likelihood.tokens import response_log_likelihoods, response_perplexity
from evenhand.evaluation.models.padding import shares_prefixes
from tests.tiny_models import PAD, WORDS, tiny

KINDS = {"dialogue": "gpt2", "chat": "llama", "encoder_decoder": "bart"}
ROWS = [
    ("a b c <eos>", "d e"),
    ("a <eos>", "f g h i j"),
    ("b b <eos>", ""),
    ("c <eos>", "a"),
    ("j i h g f <eos>", "b"),
]


def tiny_of(kind):
    return replace(tiny(KINDS[kind]), kind=kind)


def naive(model, context, response):
    """Return Σ log p token by token, with one forward pass for each."""
    ids = [WORDS.index(word) for word in context.split()]
    scored = [*(WORDS.index(word) for word in response.split()), 0]
    total = 0.0
    for n, token in enumerate(scored):
        with torch.no_grad():
            if model.kind == "encoder_decoder":
                start = torch.tensor([[PAD, *scored[:n]]])
                logits = model.model(input_ids=torch.tensor([[*ids, 0]]), decoder_input_ids=start).logits
            else:
                logits = model.model(input_ids=torch.tensor([[*ids, *scored[:n]]])).logits
        total += float(logits[0, -1].double().log_softmax(0)[token])
    return total, len(scored)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at_once", [1, 20, 640])
def test_likelihoods_equal_one_row_at_a_time(kind, at_once, monkeypatch):
    monkeypatch.setattr(batches, "tokens_per_pass", lambda model: at_once)
    model = tiny_of(kind)
    contexts, responses = zip(*ROWS, strict=True)
    done = []
    log_likelihood, tokens = response_perplexity(model, contexts, responses, on_progress=done.append)
    assert sum(done) == len(ROWS) and max(done) <= at_once
    expected = [naive(model, *row) for row in ROWS]
    np.testing.assert_allclose(log_likelihood, [value for value, _ in expected], atol=1e-4)
    assert tokens.tolist() == [count for _, count in expected] == [3, 6, 1, 2, 2]


@pytest.mark.parametrize("name", ["gpt2", "llama", "sliding"])
def test_a_common_prefix_is_read_once_per_batch(name):
    model = replace(tiny(name), kind="chat")
    prefix = "a b c d e f g h i j "
    rows = [(prefix + context, response) for context, response in (*ROWS, ("a", "b c d e f"))]
    positions = []
    assert shares_prefixes(model.model)  # which is tried once
    model.model.register_forward_pre_hook(
        lambda _, arguments, named: positions.append(named["input_ids"].numel()), with_kwargs=True
    )
    log_likelihood, _ = response_perplexity(model, *zip(*rows, strict=True))
    assert positions[0] >= 10 and len(positions) == 2, positions  # one batch: the prefix, then the rest of each row
    assert positions[1] < len(rows) * 10
    np.testing.assert_allclose(log_likelihood, [naive(model, *row)[0] for row in rows], atol=1e-4)


def test_rows_that_are_too_long_have_nan_and_come_last():
    model = tiny_of("dialogue")
    batches = list(response_log_likelihoods(model, ["a", "a " * 90, "b"], ["b", "b " * 6, ""]))
    rows, log_likelihood, _ = batches[-1]
    assert rows.tolist() == [1] and np.isnan(log_likelihood).all()
    tokens = dict(zip(*map(np.ndarray.tolist, batches[0][::2]), strict=True))
    assert tokens == {0: 2, 2: 1}  # an empty response is the end of sequence only
