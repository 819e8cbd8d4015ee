"""The parts of person and word: by hand without noise, and planted with noise."""

import numpy as np
import pytest

from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.synonyms import person_and_word


def cells_of(means, noise=0.0, templates=2, answers_per_cell=2, seed=0):
    """Return cells whose responses are the descriptors' means, (D, c), plus noise."""
    n = len(means)
    template = np.repeat(np.arange(templates), n * answers_per_cell)
    descriptor = np.tile(np.repeat(np.arange(n), answers_per_cell), templates)
    rows = means[descriptor] + noise * np.random.default_rng(seed).normal(size=(len(descriptor), means.shape[1]))
    return arrange_cells(rows.astype(np.float32), template, descriptor)


def test_the_parts_by_hand():
    """Buckets 0, 2, 4, 6, 8 with words ± ½: half the squared distance of two words of one bucket is ½.

    Of different buckets a, b it is the mean of ½ (a − b + {−1, 0, 0, 1})², so ½ (a − b)² + ¼; over pairs of buckets
    (a − b)² is 20 on average.
    """
    buckets = np.repeat(np.arange(5), 2)
    means = (2.0 * buckets + np.tile([-0.5, 0.5], 5))[:, None]
    person, word = person_and_word(cells_of(means), buckets)
    assert word.value == pytest.approx(0.5)
    assert person.value == pytest.approx(10 + 0.25 - 0.5)
    assert person.interval[0] < person.value < person.interval[1]


@pytest.mark.parametrize(("person", "word"), [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.0, 0.0)])
def test_each_part_is_found_where_it_is_planted(person, word):
    rng, buckets = np.random.default_rng(1), np.repeat(np.arange(60), 4)
    means = person**0.5 * rng.normal(size=(60, 1))[buckets] + word**0.5 * rng.normal(size=(240, 1))
    for part, truth in zip(person_and_word(cells_of(means, noise=1.0), buckets), (person, word), strict=True):
        assert part.value == pytest.approx(truth, abs=0.35)
        low, high = part.interval
        assert low - (high - low) / 2 <= truth <= high + (high - low) / 2  # twice as wide: this seed, and any


def test_intervals_of_uneven_buckets_contain_the_planted_parts():
    """With a degree of freedom for each bucket, and pairs of equal weight, 88 to 92 % cover (400 × 2 intervals)."""
    rng, buckets = np.random.default_rng(2), np.repeat(np.arange(15), [2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 6, 8, 10, 12])
    covered = []
    for seed in range(400):
        means = 0.7 * rng.normal(size=(15, 4))[buckets] + rng.normal(size=(len(buckets), 4))
        parts = person_and_word(cells_of(means, noise=1.0, seed=seed), buckets)
        truths = (4 * 0.49, 4.0)
        covered.append([it.interval[0] <= truth <= it.interval[1] for it, truth in zip(parts, truths, strict=True)])
    assert (np.abs(np.mean(covered, axis=0) - 0.95) < 0.03).all()


def test_four_buckets_with_two_words_are_too_few():
    assert person_and_word(cells_of(np.eye(9)), np.array([0, 0, 1, 1, 2, 2, 3, 3, 4])) is None


def test_a_large_bucket_counts_by_its_words_and_not_by_its_pairs():
    """Four buckets of 0 and 2, s² = 2, and one of four equal words, s² = 0: (4 · 1 · 2 + 3 · 0) / (4 + 3).

    Of the 20 ordered pairs within buckets, 8 have ½ · 4, so that pairs of equal weight would give ⅘.
    """
    buckets = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4])
    means = np.array([0.0, 2.0] * 4 + [1.0] * 4)[:, None]
    _, word = person_and_word(cells_of(means), buckets)
    assert word.value == pytest.approx(8 / 7)


@pytest.mark.parametrize("asked_together", ["words of different buckets", "words of one bucket"])
def test_no_part_is_known_if_nobody_to_compare_was_asked_the_same(asked_together):
    bucket, word = np.arange(12) // 2, np.arange(12) % 2
    first_template = 2 * (word if asked_together == "words of different buckets" else bucket)
    template = np.concatenate([first_template, first_template + 1])
    rows = np.random.default_rng(0).random((24, 2), dtype=np.float32)
    cells = arrange_cells(rows, template, np.tile(np.arange(12), 2), min_count=1)
    assert person_and_word(cells, bucket) is None
