"""Contrasts of two attributes: by hand, their error under the null hypothesis, and a planted interaction."""

import numpy as np
import pytest

from evenhand.evaluation.statistics.interactions import contrast_matrix, crossed_contrasts, nested_contrasts


def test_a_contrast_is_what_main_effects_do_not_explain():
    """Means 1, 2 / 3, 8: each contrast is (1 − 2 − 3 + 8) / 4 = 1 or −1; sums of two effects have none."""
    means = np.array([1.0, 2.0, 3.0, 8.0])
    found = contrast_matrix(2, 2) @ means
    assert found.tolist() == [1.0, -1.0, -1.0, 1.0]  # (1 − 2 − 3 + 8) / 4
    additive = np.add.outer([0.0, 5.0, 1.0], [1.0, 2.0]).ravel()
    np.testing.assert_allclose(contrast_matrix(3, 2) @ additive, 0, atol=1e-12)


@pytest.mark.parametrize("kind", ["main effect only", "rare"])
def test_the_error_of_all_contrasts_is_five_percent(kind):
    wrong = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        means = rng.normal(size=(20, 2, 3, 4)) + 3 * np.arange(2)[None, :, None, None]
        if kind == "rare":
            means = (rng.random((20, 2, 3, 4)) < 0.05).astype(float)
        wrong += bool((crossed_contrasts(means, 199, rng).p <= 0.05).any())
    assert wrong <= 20  # 10 are expected of 200; more than 20 have a probability of 0.2 %


def test_a_planted_interaction_is_found_and_its_interval_contains_it():
    rng = np.random.default_rng(0)
    means = rng.normal(0, 0.1, size=(26, 2, 2, 1))
    means[:, 1, 1] += 0.4
    found = crossed_contrasts(means, 999, rng)
    assert found.p.max() <= 0.01
    assert np.all(found.low[[0, 3]] < 0.1) and np.all(found.high[[0, 3]] > 0.1)  # 0.4 / 4
    np.testing.assert_allclose(found.value[[0, 3]], -found.value[[1, 2]])


def test_a_contrast_that_is_the_same_at_all_templates_is_shown_and_none_is_not():
    """One combination alone always has the property, such as with a model that is not sampled."""
    means = np.zeros((8, 2, 2, 2))
    means[:, 1, 1, 0] = 1
    found = crossed_contrasts(means, 199, np.random.default_rng(0))
    assert found.value[::2].tolist() == [0.25, -0.25, -0.25, 0.25] and found.p[::2].tolist() == [1 / 200] * 4
    assert found.p[1::2].tolist() == [1.0] * 4


def test_names_are_the_units_of_nested_contrasts():
    """An interaction of one unusual name in a cell of ten is not shown; one of all names is."""
    rng = np.random.default_rng(1)
    first, second = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], 10, axis=1)
    values = rng.normal(0, 0.1, size=(40, 1))
    one = values.copy()
    one[-1] += 2.0
    assert nested_contrasts(one, first, second, 999, rng).p.min() > 0.05
    values[-10:] += 0.4
    found = nested_contrasts(values, first, second, 999, rng)
    assert found.p.max() <= 0.01 and found.low[3] < 0.1 < found.high[3]


def test_the_error_of_nested_contrasts():
    wrong = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        first, second = np.repeat([[0, 0, 1, 1], [0, 1, 0, 1]], 10, axis=1)
        values = rng.normal(size=(40, 3)) + first[:, None]
        wrong += bool((nested_contrasts(values, first, second, 199, rng).p <= 0.05).any())
    assert wrong <= 20
