"""Rows held out by context."""

import pytest
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.training.data import hold_out


def test_no_context_is_on_both_sides():
    contexts = [f"c{index % 40}" for index in range(200)]
    rows = Dataset.from_dict({"context": contexts, "row": range(200)})
    train, validation = hold_out(rows, 0.1, seed=3)
    assert not set(train["context"]) & set(validation["context"])
    assert sorted([*train["row"], *validation["row"]]) == list(range(200))
    assert len(validation) == 20  # four contexts of five rows each
    assert hold_out(rows, 0.1, seed=3)[1]["row"] == validation["row"]
    assert hold_out(rows, 0.1, seed=4)[1]["row"] != validation["row"]


def test_there_is_always_something_on_each_side():
    rows = Dataset.from_dict({"context": ["a", "b"]})
    assert [len(side) for side in hold_out(rows, 0.99, 0)] == [1, 1]
    assert [len(side) for side in hold_out(rows, 0.01, 0)] == [1, 1]
    with pytest.raises(InputError, match="1 distinct contexts"):
        hold_out(Dataset.from_dict({"context": ["a", "a"]}), 0.5, 0)
