"""Shares of variance: hand-derived values, invariances, coverage of the intervals, and undefined designs."""

import math

import numpy as np
import pytest

from benchmarks.coverage import Simulation, draw, means
from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.variance_shares import SOURCES, variance_parts

TEMPLATE, DESCRIPTOR = (np.array(list(map(int, codes))) for codes in ("00001111", "00110011"))


def values(parts):
    return [parts.template.value, parts.descriptor.value, parts.interaction.value, parts.chance]


def test_two_templates_two_descriptors_two_responses_by_hand():
    """Cell means 1, 3 | 7, 5, each of m ± 1: the variance within a cell is 2, that of a cell's mean 1.

    Descriptors differ by −2 and by 2 on the templates: ½ · (−2) · 2 = −2. Templates differ by 6 and by 2 with the
    descriptors: ½ · 6 · 2 = 6. Within the templates the variances are 2 and 2, less 1: FGB* = 1, so the interaction is
    1 − (−2).
    """
    x = np.array([0.0, 2, 2, 4, 6, 8, 4, 6])[:, None]
    parts = variance_parts(arrange_cells(x, TEMPLATE, DESCRIPTOR))
    assert values(parts) == pytest.approx([6.0, -2.0, 3.0, 2.0])
    assert [share.value for share in parts.shares().values()] == pytest.approx(np.array([6.0, -2.0, 3.0, 2.0]) / 9)


def test_one_response_or_one_template_leave_the_shares_undefined_with_a_reason():
    codes = np.indices((2, 2)).reshape(2, -1)
    single = variance_parts(arrange_cells(np.eye(4), *codes, min_count=1)).shares()
    one = variance_parts(arrange_cells(np.eye(8), 0 * TEMPLATE, DESCRIPTOR)).shares()
    assert tuple(single) == tuple(one) == SOURCES
    for shares, reason in ((single, "two responses"), (one, "one template")):
        assert all(math.isnan(share.value) and reason in share.reason for share in shares.values())


@pytest.mark.parametrize("answers_per_cell", [2, "2 to 6"])
def test_intervals_contain_the_true_shares_in_about_95_percent_of_simulations(answers_per_cell):
    rng = np.random.default_rng(1)
    design = Simulation(12, 6, answers_per_cell, "large", "one-hot")
    p, _ = means(design, rng)

    def spread_over_pairs(table):  # (units, other units, styles): products of different other units
        difference = table[:, None] - table[None]
        k = table.shape[1]
        sums = (difference.sum(axis=2) ** 2).sum(axis=-1) - (difference**2).sum(axis=(2, 3))
        return 0.5 * sums.sum() / (k * (k - 1)) / (len(table) * (len(table) - 1))

    descriptor = spread_over_pairs(p)
    interaction = p.var(axis=0, ddof=1).sum(axis=1).mean() - descriptor
    chance = (1 - (p**2).sum(axis=2)).mean()
    truth = np.array([spread_over_pairs(p.transpose(1, 0, 2)), descriptor, interaction, chance])
    found = []
    for _ in range(150):
        count = rng.integers(2, 7, 72) if answers_per_cell == "2 to 6" else np.full(72, 2)
        cell = np.repeat(np.arange(72), count)
        found.append(variance_parts(arrange_cells(draw(p, cell, True, rng), cell % 6, cell // 6)))
    assert np.mean([values(parts) for parts in found], axis=0) == pytest.approx(truth, abs=0.006)
    intervals = np.array([[share.interval for share in parts.shares().values()] for parts in found])
    covered = (intervals[:, :, 0] <= truth / truth.sum()) & (truth / truth.sum() <= intervals[:, :, 1])
    assert (covered.mean(axis=0) > 0.9).all()


def test_each_share_lies_in_its_interval_also_where_all_variance_is_chance():
    """Of an even model, the unbiased share of chance is above 1 in about half of all measurements."""
    rng = np.random.default_rng(0)
    template, descriptor = np.divmod(np.arange(13 * 20).repeat(2), 20)
    above_one = 0
    for _ in range(20):
        cells = arrange_cells(np.eye(3)[rng.integers(3, size=len(template))], template, descriptor)
        for share in variance_parts(cells).shares().values():
            assert share.interval[0] <= share.value <= share.interval[1]
            above_one += share.value > 1
    assert above_one
