"""Each unfinished batch goes to exactly one rank, whole."""

import numpy as np
import pytest

from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard

BATCHES = [[7, 3], [0, 1, 2], [5], [4, 6], [8]]


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("finished", [[], [5], [0, 1, 2, 7, 3], range(9)])
def test_each_unfinished_batch_goes_to_one_rank(world_size, finished):
    shards = [WorkShard(np.array(finished, dtype=np.int64), rank, world_size) for rank in range(world_size)]
    dealt = [shard.unfinished_batches(BATCHES) for shard in shards]
    expected = sorted(batch for batch in BATCHES if not set(batch) <= set(finished))
    assert sorted(batch for batches in dealt for batch in batches) == expected
    for batches in dealt:  # in their order
        assert batches == [batch for batch in BATCHES if batch in batches]


def test_ranks_take_turns_at_the_longer_of_two_batches():
    lengths = [[length] for length in range(8)]
    assert [WorkShard(rank=rank, world_size=2).unfinished_batches(lengths) for rank in (0, 1)] == [
        [[0], [3], [4], [7]],
        [[1], [2], [5], [6]],
    ]


def test_a_batch_with_an_unfinished_row_stays_whole():
    shard = WorkShard(np.array([0, 2, 7]))
    assert shard.unfinished_batches(BATCHES) == BATCHES
    assert shard.is_unfinished([0, 1, 2, 7, 3]).tolist() == [False, True, False, False, True]


@pytest.mark.parametrize(("finished", "expected"), [([1], [["a", "b"], ["c"]]), ([1, 4, 0], [["c"]])])
def test_items_stand_for_a_row_that_they_produce(finished, expected):
    rows_of = {"a": [4, 0], "b": [1], "c": [2, 3]}
    shard = WorkShard(np.array(finished))
    assert shard.unfinished_batches([["a", "b"], ["c"]], lambda item: rows_of[item][0]) == expected


def test_the_default_shard_has_all_batches_with_items():
    assert ALL_ROWS.unfinished_batches([*BATCHES, []]) == BATCHES and ALL_ROWS.unfinished_batches([]) == []
