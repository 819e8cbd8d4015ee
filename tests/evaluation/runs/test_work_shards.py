"""Batches are dealt out whole, each to one process, and what is finished to none."""

import numpy as np
import pytest

from evenhand.evaluation.runs.work_shards import ALL, WorkShard

BATCHES = [[7, 3], [0, 1, 2], [5], [4, 6], [8]]


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
@pytest.mark.parametrize("finished", [[], [5], [0, 1, 2, 7, 3], range(9)])
def test_each_batch_that_is_left_is_one_processs(processes, finished):
    shares = [WorkShard(np.array(finished, dtype=np.int64), process, processes) for process in range(processes)]
    dealt = [batch for share in shares for batch in share.of(BATCHES)]
    assert sorted(dealt) == sorted(batch for batch in BATCHES if not set(batch) <= set(finished))
    for share in shares:  # in their order
        assert share.of(BATCHES) == [batch for batch in BATCHES if batch in share.of(BATCHES)]


def test_the_longest_of_two_falls_to_each_process_in_turn():
    lengths = [[length] for length in range(8)]
    assert [WorkShard(process=process, processes=2).of(lengths) for process in (0, 1)] == [
        [[0], [3], [4], [7]],
        [[1], [2], [5], [6]],
    ]


def test_a_batch_of_which_a_row_is_left_is_made_whole():
    assert WorkShard(np.array([0, 2, 7])).of(BATCHES) == BATCHES
    assert WorkShard(np.array([0, 2, 7])).left([0, 1, 2, 7, 3]).tolist() == [False, True, False, False, True]


def test_items_are_known_by_a_row_that_they_make():
    rows_of = {"a": [4, 0], "b": [1], "c": [2, 3]}
    assert WorkShard(np.array([1])).of([["a", "b"], ["c"]], lambda item: rows_of[item][0]) == [["a", "b"], ["c"]]
    assert WorkShard(np.array([1, 4, 0])).of([["a", "b"], ["c"]], lambda item: rows_of[item][0]) == [["c"]]


def test_without_processes_and_parts_all_is_left():
    assert ALL.of(BATCHES) == BATCHES and ALL.of([[]]) == [] and ALL.of([]) == []
