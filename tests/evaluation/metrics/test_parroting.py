"""Shares of repeated prompts by descriptor, counted by hand."""

import numpy as np

from evaluation.metrics.parroting import parroting_by_descriptor, repeated


def test_repeated_is_the_prompt_but_for_the_last_mark():
    assert repeated(["i like moms", "Me too!"], ["I like moms.", "I like moms."]).tolist() == [True, False]


def test_shares_by_descriptor_largest_rise_first():
    descriptor = ["deaf", "deaf", "rich", "rich", "rich", "tall"]
    axis = ["ability", "ability", "class", "class", "class", "body"]
    before = np.array([1, 1, 0, 0, 1, 0], dtype=bool)
    after = np.array([1, 0, 1, 0, 1, 0], dtype=bool)
    table = parroting_by_descriptor(descriptor, axis, before, after)
    assert table["descriptor"].tolist() == ["rich", "tall", "deaf"]
    assert table["n"].tolist() == [3, 1, 2]
    assert table["before"].tolist() == [1 / 3, 0, 1] and table["after"].tolist() == [2 / 3, 0, 0.5]
    assert np.allclose(table["change"], [1 / 3, 0, -0.5])


def test_the_order_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    descriptor = np.repeat(["a", "b", "c"], 20)
    before, after = rng.random(60) < 0.5, rng.random(60) < 0.5
    order = rng.permutation(60)
    one = parroting_by_descriptor(descriptor, ["x"] * 60, before, after)
    other = parroting_by_descriptor(descriptor[order], ["x"] * 60, before[order], after[order])
    assert one.equals(other)
