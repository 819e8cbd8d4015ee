"""What two sentences share, and the distance of a token's probability from certainty."""

import math

import numpy as np
import pytest

from evenhand.evaluation.metrics.sentence_pairs.metric import find_shared_positions, jensen_shannon_distance


def distance(p):
    """Equation 3 as it stands, for 0 < p < 1."""
    return math.sqrt(0.5 * (p * math.log2(p) - (p + 1) * math.log2(p + 1) + 2))


@pytest.mark.parametrize(
    "more, less, expected",
    [
        ("he is a pilot", "she is a pilot", ([1, 2, 3], [1, 2, 3])),
        ("he is a pilot", "the old man is a pilot", ([1, 2, 3], [3, 4, 5])),  # inserted
        ("the old man is a pilot", "the man is a pilot", ([0, 2, 3, 4, 5], [0, 1, 2, 3, 4])),  # deleted
        # "and" stands twice: the longest common block, "and she ran", decides which is which.
        ("he and she and he ran", "she and she and she ran", ([1, 2, 3, 5], [1, 2, 3, 5])),
        ("men cry", "women cry", ([1], [1])),  # one token
        ("", "", ([], [])),
    ],
)
def test_shared_tokens_without_the_special_ones(more, less, expected):
    more, less = (["[CLS]", *text.split(), "[SEP]"] for text in (more, less))
    special = [[word[0] == "[" for word in words] for words in (more, less)]
    in_more, in_less = find_shared_positions(more, less, *special)
    assert ([index - 1 for index in in_more], [index - 1 for index in in_less]) == expected
    assert [more[index] for index in in_more] == [less[index] for index in in_less]


def test_frequent_tokens_of_long_sentences_are_shared_too():
    """difflib would take a token for junk that makes up over 1 % of 200 or more."""
    ids = [7, 8] * 150
    none = [False] * 300
    assert find_shared_positions(ids, ids, none, none) == (list(range(300)), list(range(300)))


@pytest.mark.parametrize("p", [1e-300, 1e-9, 0.01, 0.25, 0.5, 0.9, 0.999])
def test_the_distance_is_equation_3(p):
    assert jensen_shannon_distance(np.array(math.log(p))) == pytest.approx(distance(p), abs=1e-12)


def test_the_distance_at_its_ends_and_of_whole_distributions():
    ends = jensen_shannon_distance(np.array([-np.inf, -1e6, -800.0, 0.0, 1e-7]))
    assert ends.tolist() == [1, 1, 1, 0, 0]
    # Near certainty JSD = (1 − p) / 2 to first order, where the formula as it stands would have lost every digit.
    np.testing.assert_allclose(jensen_shannon_distance(np.array([-1e-12, -1e-20])), [5e-13**0.5, 5e-21**0.5], rtol=1e-3)
    assert (np.diff(jensen_shannon_distance(np.log(np.linspace(1e-6, 1, 1000)))) < 0).all()
    # Equation 1, on a distribution over five tokens and one that is certain of the second.
    p, gold = np.array([0.3, 0.2, 0.1, 0.35, 0.05]), np.array([0.0, 1, 0, 0, 0])

    def entropy(q):
        return -sum(value * math.log2(value) for value in q if value)

    divergence = entropy((p + gold) / 2) - (entropy(p) + entropy(gold)) / 2
    assert jensen_shannon_distance(np.log(p[1])) == pytest.approx(math.sqrt(divergence))
