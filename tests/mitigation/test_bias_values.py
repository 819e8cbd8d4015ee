"""Bias values by hand and by their properties (Smith et al. 2022, C.1), and their means by descriptor."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.labels import (
    bias_values,
    bias_values_along,
    cross_fitted_bias_values,
    descriptor_means,
    mean_bias_values,
)

# One template, two descriptors, two responses each; S = 2.
VECTORS = np.array([[1.0, 0.0], [0.6, 0.4], [0.2, 0.8], [0.2, 0.8]])
TEMPLATE = np.array([0, 0, 0, 0])
DESCRIPTOR = np.array([0, 0, 1, 1])


def test_by_hand():
    # m_0 = (.8, .2), m_1 = (.2, .8), m̄ = (.5, .5); directions ±(.3, −.3) of squared norm .18.
    assert descriptor_means(VECTORS, TEMPLATE, DESCRIPTOR) == pytest.approx(np.array([[0.8, 0.2], [0.2, 0.8]]))
    assert bias_values(VECTORS, TEMPLATE, DESCRIPTOR, 0) == pytest.approx([0.30, 0.06, 0.18, 0.18])
    assert bias_values(VECTORS, TEMPLATE, DESCRIPTOR, 1) == pytest.approx(
        np.array([0.30, 0.06, 0.18, 0.18]) / 0.18**0.5
    )
    assert bias_values(VECTORS, TEMPLATE, DESCRIPTOR, 2) == pytest.approx(np.array([0.30, 0.06, 0.18, 0.18]) / 0.18)
    # Descriptor 0 has three responses to template 0 and one to template 1: each template counts once.
    vectors = np.array([[1.0, 0.0]] * 3 + [[0.0, 1.0]] + [[0.5, 0.5]] * 2)
    means = descriptor_means(vectors, np.array([0, 0, 0, 1, 0, 1]), np.array([0, 0, 0, 0, 1, 1]))
    assert means[0] == pytest.approx([0.5, 0.5])
    # Without response 0, m_0 is (.6, .4), m̄ is (.4, .6) and the direction (.2, −.2).
    b = bias_values(VECTORS, TEMPLATE, DESCRIPTOR, 0, cross_fitted=True)
    assert b[0] == pytest.approx(0.5 * 0.2 + -0.5 * -0.2)
    assert b[2:] == pytest.approx([0.18, 0.18])  # equal responses do not shape each other's direction


def test_cross_fitted_values_of_a_fair_model_are_0_on_average():
    """Two people whose styles have one distribution: the mean of 2,000 simulated means is within 4 standard errors."""
    descriptor, template = np.repeat([0, 1], 8), np.tile(np.repeat(np.arange(4), 2), 2)
    means = []
    for seed in range(2000):
        vectors = np.random.default_rng(seed).dirichlet(np.ones(3), 16)
        means.append(bias_values(vectors, template, descriptor, 0, cross_fitted=True).mean())
    assert abs(np.mean(means)) < 4 * np.std(means) / len(means) ** 0.5


def random_case(seed):
    rng = np.random.default_rng(seed)
    descriptor, template = np.repeat(np.arange(5), 12), np.tile(np.repeat(np.arange(3), 4), 5)
    return rng.dirichlet(np.ones(4), 60), template, descriptor


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), alpha=st.sampled_from([0, 1, 2]))
def test_mean_bias_value_of_a_balanced_descriptor_is_its_squared_distance(seed, alpha):
    vectors, template, descriptor = random_case(seed)
    b = bias_values(vectors, template, descriptor, alpha)
    m_d = descriptor_means(vectors, template, descriptor)
    distance = np.linalg.norm(m_d - m_d.mean(axis=0), axis=1)
    assert [b[descriptor == d].mean() for d in range(5)] == pytest.approx(distance ** (2 - alpha))


def test_symmetries_labels_and_alpha():
    vectors, template, descriptor = random_case(1)
    m_d = descriptor_means(vectors, template, descriptor)
    assert bias_values(vectors, template, descriptor, 2)[descriptor == 3].mean() == pytest.approx(1)
    assert m_d.shape == (5, 4)
    vectors, template, descriptor = random_case(2)
    order = np.random.default_rng(0).permutation(60)
    b = bias_values(vectors, template, descriptor, 1, cross_fitted=True)
    assert bias_values(vectors[order], template[order], descriptor[order], 1, cross_fitted=True) == pytest.approx(
        b[order]
    )
    with pytest.raises(InputError, match="alpha: 3"):
        bias_values(VECTORS, TEMPLATE, DESCRIPTOR, 3)


PROMPTS = pd.DataFrame({"template": "t", "descriptor": list("aabb"), "axis": ["x", "x", "y", "y"]})
# m_a = (.8, .2), m_b = (.2, .8), m̄ = (.5, .5); directions ±(.3, −.3).


def test_the_largest_mean_comes_first():
    table = mean_bias_values(PROMPTS, mean_bias_value=np.array([0.1, 0.3, 0.5, 0.7]))
    assert table.columns.tolist() == ["descriptor", "axis", "mean_bias_value", "n"]
    assert table["descriptor"].tolist() == ["b", "a"]
    assert table["mean_bias_value"].tolist() == pytest.approx([0.6, 0.2])
    assert table["n"].tolist() == [2, 2]


def test_responses_are_taken_out_of_their_own_direction_and_empty_ones_left_out():
    prompts = pd.concat([PROMPTS, PROMPTS[:1]], ignore_index=True)
    vectors = np.vstack([VECTORS, [[np.nan, np.nan]]])
    table = mean_bias_values(prompts, before=cross_fitted_bias_values(prompts, vectors)).set_index("descriptor")
    # Without response 0, the direction is (.2, −.2) and b = .2; without response 1, (.4, −.4) and b = .08.
    assert table["before"].to_dict() == pytest.approx({"a": 0.14, "b": 0.18})
    assert table["n"].to_dict() == {"a": 2, "b": 2}


def test_directions_and_empty_responses():
    prompts = pd.DataFrame({"template": "u", "descriptor": ["a", "b", "c"], "axis": ["x", "y", "y"]})
    before, after = np.array([[0.9, 0.1], [0.4, 0.6], [1, 0]]), np.array([[0.5, 0.5], [0.4, 0.6], [1, 0]])
    labelled = pd.concat([PROMPTS, PROMPTS[:1]], ignore_index=True)
    directions = labelled, np.vstack([VECTORS, [[np.nan, np.nan]]]), prompts["descriptor"]
    b = {name: bias_values_along(*directions, it) for name, it in (("before", before), ("after", after))}
    table = mean_bias_values(prompts, **b)
    assert table["descriptor"].tolist() == ["a", "b"]  # c has no direction
    assert table["before"].tolist() == pytest.approx([0.8 * 0.3, 0.2 * 0.3])
    assert table["after"].tolist() == pytest.approx([0, 0.2 * 0.3])
    # The direction a has the norm .3 √2.
    by_norm = bias_values_along(*directions, before, alpha=2)
    assert by_norm[:2].tolist() == pytest.approx([0.24 / 0.18, 0.06 / 0.18])
    before = np.array([[0.9, 0.1], [np.nan, np.nan], [0.4, 0.6], [0.2, 0.8]])
    table = mean_bias_values(PROMPTS, before=bias_values_along(PROMPTS, VECTORS, PROMPTS["descriptor"], before))
    assert table.set_index("descriptor")["n"].to_dict() == {"a": 1, "b": 2}
