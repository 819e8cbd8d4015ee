"""Changes of effects: exact for two descriptors, none where nothing changed, found where one is removed."""

import numpy as np
import pytest

from evenhand.evaluation.statistics.cell_table import Design, SetOfTests
from evenhand.evaluation.statistics.person_effects import changed_effects, joint_effects


def measure_changes(before, after, template, descriptor, draws=199, seed=0):
    design = Design(np.asarray(template), np.asarray(descriptor), np.zeros((0, max(descriptor) + 1)))
    families = [SetOfTests("style", np.asarray(side, dtype=np.float64), has_overall=False) for side in (before, after)]
    sides = [joint_effects(design, [family], 0, np.random.default_rng(0))[0] for family in families]
    return changed_effects(design, *families, *sides, draws, np.random.default_rng(seed))


def test_two_descriptors_by_hand():
    # On eight templates D is 1.1 and 0.9 in turn for the first descriptor, and 0 for the second: (1 − 0) / 2. Only if
    # all signs of a descriptor are equal is a change as large, and only if those of both are, is its error as small.
    n = 8
    template, descriptor = np.divmod(np.arange(2 * n), 2)
    after = np.where(descriptor == 0, 1.0 + 0.1 * (-1.0) ** template, 0.0)[:, None]
    result = measure_changes(0 * after, after, template, descriptor.tolist(), draws=1999)
    assert result.effect.ravel() == pytest.approx([0.5, -0.5])
    assert (result.p_set <= 0.002).all()


def responses(rng, p, answers_per_cell):
    """Return one-hot styles of p, (templates, descriptors, styles)."""
    rows = np.repeat(p.reshape(-1, p.shape[2]), answers_per_cell, axis=0)
    return np.eye(p.shape[2])[(rows.cumsum(axis=1) < rng.random((len(rows), 1))).sum(axis=1)]


def design(p, answers_per_cell):
    return (np.repeat(each.ravel(), answers_per_cell).tolist() for each in np.indices(p.shape[:2]))


def two_models(removed):
    """Return probabilities before and after: style 0 loses with all descriptors; descriptor 7 has an effect before."""
    before = np.tile([0.35, 0.3, 0.25, 0.1], (10, 12, 1))
    after = before + np.array([-0.2, 0.1, 0.1, 0.0])
    before[:, 7] += [-0.3, -0.15, -0.1, 0.55]
    after[:, 7] += np.zeros(4) if removed else [-0.1, -0.25, -0.2, 0.55]
    return before, after


def test_a_removed_effect_is_found_and_nothing_else():
    rng, (before, after) = np.random.default_rng(5), two_models(removed=True)
    template, descriptor = design(before, 4)
    result = measure_changes(responses(rng, before, 4), responses(rng, after, 4), template, descriptor)
    found = np.argwhere(result.p_set <= 0.05)
    assert [7, 3] in found.tolist() and set(found[:, 0]) == {7}
    assert result.low[7, 3] < -0.55 * 11 / 12 < result.high[7, 3]


def test_where_all_change_alike_a_false_change_is_shown_in_one_of_twenty():
    wrong, shape = 0, (5, 10, 4)
    before, after = (np.broadcast_to(p, shape) for p in ([0.08, 0.02, 0.1, 0.8], [0.01, 0.02, 0.37, 0.6]))
    template, descriptor = design(before, 2)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sides = (responses(rng, side, 2) for side in (before, after))
        wrong += bool((measure_changes(*sides, template, descriptor, 39, seed).p_set <= 0.05).any())
    assert wrong <= 11  # of 100 with probability 0.05: more with a probability of 0.4 %


def test_swapped_runs_change_the_sign():
    rng, (before, after) = np.random.default_rng(1), two_models(removed=False)
    sides, cells = [responses(rng, side, 2) for side in (before, after)], list(design(before, 2))
    whole, swapped = measure_changes(*sides, *cells), measure_changes(*sides[::-1], *cells)
    np.testing.assert_allclose(swapped.effect, -whole.effect, atol=1e-12)
    np.testing.assert_allclose(swapped.p_set, whole.p_set, atol=0.05)  # other signs


def test_a_change_of_the_detectable_size_is_shown_in_80_percent():
    even = np.broadcast_to([0.1, 0.3, 0.6], (10, 24, 3))
    template, descriptor = design(even, 2)

    def measured(after, seed):
        rng = np.random.default_rng(seed)
        return measure_changes(responses(rng, even, 2), responses(rng, after, 2), template, descriptor, 99, seed)

    size = np.median([measured(even, seed).detectable[:, 0] for seed in range(5)]) * 24 / 23  # as in test_effects
    after = even.copy()
    after[:, 0] += [size, -size / 3, -size * 2 / 3]
    shown = [measured(after, seed).p_set[0, 0] <= 0.05 for seed in range(60)]
    assert 0.65 <= np.mean(shown) <= 0.92
