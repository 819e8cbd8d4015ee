"""Targets of first tokens, by hand: two people and four tokens."""

import math

import pytest
import torch

from evenhand.evaluation.models.own_words import own_word_ids
from evenhand.evaluation.statistics.people_divergence import people_divergence
from evenhand.mitigation.even_targets import even_targets
from tests.mitigation.tiny_dialogue import tokenizer

P = torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.125, 0.25, 0.125, 0.5]]).log()[:, None]
TOKEN = torch.tensor([0])


def test_everybody_learns_the_mean():
    found = even_targets(P, TOKEN, 2)
    # √(½ · ⅛) = ¼, and √(⅛ · ⅛) = ⅛: (¼, ¼, ⅛, ¼) / ⅞
    assert found.exp()[0, 0].tolist() == pytest.approx([2 / 7, 2 / 7, 1 / 7, 2 / 7])
    assert torch.equal(found[0], found[1])


def test_a_response_whose_divergence_is_small_keeps_each_persons_own_prediction():
    divergence = people_divergence(P[:, None], TOKEN[None]).mean().item()
    # Twice ½ ln(16/10) + ⅛ ln(4/10), and the two others are equal.
    assert divergence == pytest.approx(0.5 * math.log(1.6) + 0.125 * math.log(0.4))
    kept = even_targets(P, TOKEN, 1, min_divergence=divergence + 1e-6)
    assert torch.equal(kept, P[:1])
    assert torch.equal(even_targets(P, TOKEN, 1, min_divergence=divergence - 1e-6), even_targets(P, TOKEN, 1))


def test_the_probabilities_of_own_words_stay_and_the_rest_is_the_mean():
    found = even_targets(P, TOKEN, 2, own_words=torch.tensor([0])).exp()[:, 0]
    assert found.sum(-1).tolist() == pytest.approx([1, 1])
    assert found[:, 0].tolist() == pytest.approx([0.5, 0.125])
    # The mean of the others is (¼, ⅛, ¼) / ⅝, times ½ and ⅞.
    assert found[0, 1:].tolist() == pytest.approx([0.2, 0.1, 0.2])
    assert found[1, 1:].tolist() == pytest.approx([0.35, 0.175, 0.35])
    nothing = torch.tensor([], dtype=torch.long)
    assert torch.equal(even_targets(P, TOKEN, 2, own_words=nothing), even_targets(P, TOKEN, 2))


def test_own_words_are_the_tokens_in_which_contexts_differ_and_their_spellings():
    words = tokenizer(["<eos>", "<pad>", "<unk>", "I", "am", "deaf", "Deaf", "tall", "."])
    contexts = [words("I am deaf .")["input_ids"], words("I am tall .")["input_ids"]]
    assert own_word_ids(words, contexts) == [5, 6, 7]
    assert own_word_ids(words, contexts[:1] * 2) == []
