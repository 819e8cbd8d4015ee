"""Mean bias values of descriptors, by hand."""

import numpy as np
import pandas as pd
import pytest

from evenhand.mitigation.labelling.mean_bias_values import (
    bias_value_changes,
    cross_fitted_bias_values,
    mean_bias_values,
)

PROMPTS = pd.DataFrame({"template": "t", "descriptor": list("aabb"), "axis": ["x", "x", "y", "y"]})
# m_a = (.8, .2), m_b = (.2, .8), m̄ = (.5, .5); directions ±(.3, −.3).
VECTORS = np.array([[1.0, 0.0], [0.6, 0.4], [0.2, 0.8], [0.2, 0.8]])


def test_the_largest_mean_comes_first():
    table = mean_bias_values(PROMPTS, np.array([0.1, 0.3, 0.5, 0.7]))
    assert table.columns.tolist() == ["descriptor", "axis", "mean_bias_value", "n"]
    assert table["descriptor"].tolist() == ["b", "a"]
    assert table["mean_bias_value"].tolist() == pytest.approx([0.6, 0.2])
    assert table["n"].tolist() == [2, 2]


def test_responses_are_taken_out_of_their_own_direction_and_empty_ones_left_out():
    prompts = pd.concat([PROMPTS, PROMPTS[:1]], ignore_index=True)
    vectors = np.vstack([VECTORS, [[np.nan, np.nan]]])
    table = cross_fitted_bias_values(prompts, vectors).set_index("descriptor")
    # Response 0 alone with its peer (.6, .4): the direction is (.1, −.1), b = .1; response 1: (.5, −.5), b = .1.
    assert table["before"].to_dict() == pytest.approx({"a": 0.1, "b": 0.18})
    assert table["n"].to_dict() == {"a": 2, "b": 2}


def test_directions_are_those_of_the_labelled_responses():
    prompts = pd.DataFrame({"template": "u", "descriptor": ["a", "b", "c"], "axis": ["x", "y", "y"]})
    before, after = np.array([[0.9, 0.1], [0.4, 0.6], [1, 0]]), np.array([[0.5, 0.5], [0.4, 0.6], [1, 0]])
    labelled = pd.concat([PROMPTS, PROMPTS[:1]], ignore_index=True)
    vectors = np.vstack([VECTORS, [[np.nan, np.nan]]])
    table = bias_value_changes(labelled, vectors, prompts, before, after)
    assert table["descriptor"].tolist() == ["a", "b"]  # c has no direction
    assert table["before"].tolist() == pytest.approx([0.8 * 0.3, 0.2 * 0.3])
    assert table["after"].tolist() == pytest.approx([0, 0.2 * 0.3])
    # The direction a has the norm .3 √2.
    by_norm = bias_value_changes(labelled, vectors, prompts, before, after, alpha=2)
    assert by_norm["before"].tolist() == pytest.approx([0.24 / 0.18, 0.06 / 0.18])


def test_empty_responses_do_not_count():
    before = np.array([[0.9, 0.1], [np.nan, np.nan], [0.4, 0.6], [0.2, 0.8]])
    table = bias_value_changes(PROMPTS, VECTORS, PROMPTS, before, VECTORS).set_index("descriptor")
    assert table["n"].to_dict() == {"a": 1, "b": 2}
