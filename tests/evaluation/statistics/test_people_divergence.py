"""Divergence of predictions between people: two people and three tokens by hand, and properties."""

import itertools
import math

import pytest
import torch

from evenhand.evaluation.statistics.people_divergence import people_divergence

ONE = torch.zeros(1, 1, dtype=torch.long)


def test_the_divergence_of_two_people_by_hand():
    p = torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]], dtype=torch.float64)
    found = people_divergence(p.log()[:, None, None], ONE).flatten()
    # M = (3/8, 1/4, 3/8): KL = 1/2 ln(4/3) + 1/4 ln(2/3) for both.
    by_hand = math.log(4 / 3) / 2 + math.log(2 / 3) / 4
    assert found.tolist() == pytest.approx([by_hand] * 2)
    entropies = -(p * p.log()).sum(1)
    mean = p.mean(0)
    information = -(mean * mean.log()).sum() - entropies.mean()  # of person and token
    assert found.mean().item() == pytest.approx(information.item())


def test_equal_people_have_no_divergence_and_certain_ones_have_its_largest():
    same = torch.tensor([[0.2, 0.8]] * 5).log()[:, None, None]
    assert people_divergence(same, ONE).abs().max() < 1e-6
    certain = torch.eye(7).log()[:, None, None]  # a probability of 0 has the logarithm -inf
    assert people_divergence(certain, ONE).flatten().tolist() == pytest.approx([math.log(7)] * 7)


def test_the_mean_over_all_openings_is_the_divergence_of_whole_openings():
    """Three people and three tokens: openings weighted by M give KL(p_d(y) ‖ M(y)), by the chain rule."""
    n_people, n_words, k = 3, 4, 3
    generator = torch.Generator().manual_seed(0)
    tables = [
        torch.randn(n_people, *[n_words] * j, n_words, generator=generator, dtype=torch.float64).mul(2).log_softmax(-1)
        for j in range(k)
    ]
    openings = torch.tensor(list(itertools.product(range(n_words), repeat=k)))
    log_p = torch.stack([table[(slice(None), *openings[:, :j].T)] for j, table in enumerate(tables) if j], 2)
    first = tables[0][:, None].expand(-1, len(openings), -1)[:, :, None]
    log_p = torch.cat([first, log_p], 2)
    whole = log_p.gather(-1, openings[None, :, :, None].expand(n_people, -1, -1, 1)).squeeze(-1).sum(-1)
    mean = whole.logsumexp(0) - math.log(n_people)
    by_hand = (whole.exp() * (whole - mean)).sum(-1)
    found = people_divergence(log_p, openings)
    assert (found @ mean.exp()).tolist() == pytest.approx(by_hand.tolist())
    # Unweighted conditional divergences would count openings that a person hardly ever begins with.
    conditional = log_p - log_p.logsumexp(0) + math.log(n_people)
    unweighted = (log_p.exp() * conditional).sum((-1, -2)) @ mean.exp()
    assert (unweighted - by_hand).abs().max() > 0.1
    assert by_hand.max() < math.log(n_people)


def test_an_opening_that_ends_early_counts_up_to_its_end():
    log_p = torch.randn(2, 2, 3, 5, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
    openings = torch.tensor([[1, 2, 3], [1, -100, -100]])
    is_token = openings >= 0
    found = people_divergence(log_p, openings, is_token)
    first = people_divergence(log_p[:, 1:, :1], openings[1:, :1])
    torch.testing.assert_close(found[:, 1:], first)
    torch.testing.assert_close(found[:, :1], people_divergence(log_p[:, :1], openings[:1]))
