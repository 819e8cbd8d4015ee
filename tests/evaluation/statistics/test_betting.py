"""Bets on blocks of answers: expectation at most 1 under the null, closure by hand, blocks by who asks only."""

from itertools import combinations, product

import numpy as np
import pytest

from evenhand.evaluation.statistics.betting import (
    BETS,
    HIGHER,
    LOWER,
    Blocks,
    StreamTest,
    evidence,
    log_factors,
    rejected,
    weights_of_people,
)

NOBODY = np.zeros((3, 1), dtype=bool)


def test_the_factor_of_a_bet_by_hand():
    """x = 1 against the mean 1/2 of the others, margin 0.1: 1 + λ (0.5 − 0.1) / 1.1, and 1 − λ (0.5 + 0.1) / 1.1."""
    factors = np.exp(log_factors(np.array([[1.0], [1.0], [0.0]]), NOBODY, margin=0.1))
    np.testing.assert_allclose(factors[0, 0, HIGHER], 1 + BETS * 0.4 / 1.1)
    np.testing.assert_allclose(factors[0, 0, LOWER], 1 - BETS * 0.6 / 1.1)


@pytest.mark.parametrize(("excess", "margin"), [(0.0, 0.0), (0.1, 0.1), (0.05, 0.1)])
def test_the_expected_factor_is_at_most_one_if_the_difference_is_within_the_margin(excess, margin):
    """Over all outcomes of a block, exactly: three people with chances 0.3 + excess, 0.3 and 0.3."""
    chances = np.array([0.3 + excess, 0.3, 0.3])
    expected = np.zeros(len(BETS))
    for values in product((0.0, 1.0), repeat=3):
        probability = np.prod(np.where(np.array(values) == 1, chances, 1 - chances))
        expected += probability * np.exp(log_factors(np.array(values)[:, None], NOBODY, margin)[0, 0, HIGHER])
    if excess == margin:
        np.testing.assert_allclose(expected, 1)
    assert (expected <= 1 + 1e-12).all()


def test_whoever_was_named_is_not_compared_with_and_a_missing_value_bets_nothing():
    values = np.array([[1.0], [0.0], [0.0]])
    is_named = np.array([[True], [False], [False]])
    factors = np.exp(log_factors(values, is_named, margin=0.0))
    np.testing.assert_allclose(factors[1, 0], 1)  # equal to the only other who is compared with
    np.testing.assert_allclose(factors[0, 0, HIGHER], 1 + BETS)  # whoever was named is still measured
    missing = log_factors(np.array([[np.nan], [1.0], [np.nan]]), NOBODY, margin=0.0)
    assert (missing == 0).all()  # nobody has another to be compared with


def test_the_closure_is_that_of_all_subsets():
    """Rejected: each set with the hypothesis has a weighted mean of at least 1/α. Brute force over all subsets."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        e = np.exp(rng.normal(3, 3, size=(2, 1, 2)))
        flat = e.ravel()
        weights = np.repeat(weights_of_people(2), 2) / 2
        rest = 1 - weights.sum()  # of people who have not been seen, with e-value 1
        expected = np.ones(4, dtype=bool)
        for size in range(5):
            for subset in combinations(range(4), size):
                for unseen in (0.0, rest):
                    members = list(subset)
                    total = (weights[members] * flat[members]).sum() + unseen
                    if members and total < 20 * (weights[members].sum() + unseen):
                        expected[members] = False
        np.testing.assert_array_equal(rejected(e, 0.05).ravel(), expected)


def test_a_block_ends_when_a_person_comes_again():
    blocks = Blocks()
    assert blocks.add("a", "x", [1.0]) is None
    assert blocks.add("a", "x", [1.0]) is None  # a block of one person says nothing
    assert blocks.add("b", "x", [0.0]) is None  # another stratum
    assert blocks.add("a", "y", [None]) is None
    people, values = blocks.add("a", "y", [0.0])
    assert people == ["x", "y"]
    np.testing.assert_array_equal(values, [[1.0], [np.nan]])
    assert blocks.open == {"a": {"y": [0.0]}, "b": {"x": [0.0]}}


def test_the_mean_of_bets_is_an_e_value():
    assert evidence(np.log(np.full((1, 1, 2, len(BETS)), 3.0))) == pytest.approx(3)


@pytest.mark.filterwarnings("error")
def test_wealth_without_end_stays_a_number_and_names_its_person_alone():
    """A person who differs in each of a thousand blocks: log wealth passes what a float's exponential holds."""
    log_wealth = np.zeros((3, 1, 2, len(BETS)))
    log_wealth[0, 0, HIGHER] = 2000.0
    found = evidence(log_wealth)
    assert np.isfinite(found).all()
    assert np.argwhere(rejected(found, 0.05)).tolist() == [[0, 0, HIGHER]]


def test_a_stream_names_a_person_once_after_as_many_blocks_as_by_hand():
    """x answers 1 and y 0, so that m blocks multiply the wealths of x by (1 + λ)^m and (1 − λ)^m.

    x has the larger weight and is named first. Nobody is left then with whom y could be compared.
    """
    test = StreamTest(1, margin=0.0, error=0.05)
    needed = 0
    wealth_of_x = np.ones((2, len(BETS)))
    while not rejected(np.stack([wealth_of_x, wealth_of_x[::-1]])[:, None].mean(axis=-1), 0.05).any():
        needed += 1
        wealth_of_x *= [1 + BETS, 1 - BETS]
    named = {}
    for _ in range(60):
        for person, value in (("x", 1.0), ("y", 0.0)):
            for found in test.add("a", person, np.array([value])):
                named[found] = test.n_blocks
    assert named == {("x", 0, HIGHER): needed} and 0 < needed < test.n_blocks
