"""The permutation test: against all shuffles, its level, and its agreement with the interval."""

from itertools import permutations

import numpy as np
import pytest

from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.permutation import permutation_p_value
from evenhand.evaluation.statistics.u_statistics import descriptor_spread

from .test_u_statistics import planted


def test_a_planted_bias_is_significant_and_no_bias_is_not():
    rng = np.random.default_rng(12)
    with_bias, without = (planted(rng, size)[0]() for size in (0.3, 0.0))
    assert permutation_p_value(with_bias, 99, rng) == pytest.approx(0.02)  # two-sided: twice 1/100
    assert permutation_p_value(without, 99, rng) > 0.05


def test_p_values_are_uniform_without_bias():
    rng = np.random.default_rng(7)
    sample, _ = planted(rng, 0.0, descriptors=15, templates=2)
    p_values = np.array([permutation_p_value(sample(), 19, rng) for _ in range(200)])
    assert (p_values <= 0.05).mean() < 0.1
    assert abs(p_values.mean() - 0.55) < 0.07  # uniform on 2/20, 4/20 … 20/20


def test_the_permutation_test_is_of_the_spread_of_means_over_templates():
    """Two descriptors, two templates, cells of different sizes, by hand and by all shuffles."""
    vectors = np.random.default_rng(3).random((9, 2)).astype(np.float32)
    template, descriptor = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 0, 0, 1, 1])

    def spread(order):
        cells = [vectors[order][(template == t) & (descriptor == d)].mean(axis=0) for d in (0, 1) for t in (0, 1)]
        return np.array([cells[0] + cells[1], cells[2] + cells[3]]).var(axis=0).sum() / 4

    spreads = np.array(
        [spread([*first, *second]) for first in permutations(range(5)) for second in permutations(range(5, 9))]
    )
    observed = spread(np.arange(9))
    exact = 2 * min((spreads >= observed - 1e-9).mean(), (spreads <= observed + 1e-9).mean())
    p_value = permutation_p_value(arrange_cells(vectors, template, descriptor), 4999, np.random.default_rng(0))
    assert p_value == pytest.approx(min(exact, 1.0), abs=0.03)


def test_the_p_value_agrees_with_the_interval():
    """Without bias, an interval above 0 and p < 0.05 are equally frequent, 2.5 %, and nearly always coincide."""
    rng = np.random.default_rng(8)
    sample, _ = planted(rng, 0.0, descriptors=12, templates=3)
    pairs = []
    for _ in range(150):
        cells = sample()
        lower = descriptor_spread(cells, pooled=True).corrected.interval[0]
        pairs.append((lower > 0, permutation_p_value(cells, 99, rng) < 0.05))
    above, significant = np.array(pairs).T
    assert above.mean() < 0.065 and significant.mean() < 0.11  # both tails of the test
    assert (above != significant).mean() < 0.08
