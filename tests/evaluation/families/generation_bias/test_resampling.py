"""Draws from candidates by the weights of their styles, and the exponents of prompts."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.collect.resampling import (
    draw_candidates,
    prompt_exponents,
    read_exponents,
)


def test_a_candidate_is_drawn_by_its_weight_and_the_first_is_kept_where_possible():
    """With candidates in random order, as sampled, each is drawn with the probability of its weight."""
    rng = np.random.default_rng(0)
    n, weights = 40_000, np.array([1.0, 2.0, 5.0])
    order = np.argsort(rng.random((n, 3)), axis=1)
    drawn = draw_candidates(np.log(weights)[order], rng.random((n, 2)))
    shares = np.bincount(order[np.arange(n), drawn]) / n
    assert shares == pytest.approx(weights / 8, abs=0.01)
    distance = 0.5 * np.abs(weights / 8 - 1 / 3).sum()  # in total variation: the least share of changed responses
    assert (drawn > 0).mean() == pytest.approx(distance, abs=0.01)


def test_equal_weights_keep_the_first_candidate_and_undefined_weights_are_not_drawn():
    scores = np.array([[0.0, 0.0], [np.nan, -5.0], [np.nan, np.nan], [0.0, np.nan]])
    draws = np.random.default_rng(0).random((4, 2))
    assert draw_candidates(scores, draws).tolist() == [0, 1, 0, 0]


EXPONENTS = pd.DataFrame(
    {"kind": ["descriptor", "descriptor", "axis"], "unit": ["old", "deaf", "age"], "x": [1.0, 2.0, 3.0], "y": 0.0}
)


def test_a_prompt_has_the_exponent_of_its_descriptor_else_of_its_axis_else_none():
    prompts = pd.DataFrame({"descriptor": ["deaf", "young", "tall"], "axis": ["ability", "age", "body"]})
    assert prompt_exponents(EXPONENTS, prompts, ("x", "y")).tolist() == [[2, 0], [3, 0], [0, 0]]
    with pytest.raises(InputError, match=r"^resampling\.exponents: .*other styles"):
        prompt_exponents(EXPONENTS, prompts, ("x", "z"))


def test_another_table_is_rejected(tmp_path):
    EXPONENTS.to_parquet(tmp_path / "exponents.parquet")
    assert read_exponents(tmp_path / "exponents.parquet").equals(EXPONENTS)
    EXPONENTS[["x", "y"]].to_parquet(tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"^resampling\.exponents: .*no table of exponents"):
        read_exponents(tmp_path / "other.parquet")
