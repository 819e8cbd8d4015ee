"""Ranks as a launcher sets them in the environment, and the batches that each rank computes."""

import numpy as np
import pytest

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard


def of_two(monkeypatch, number):
    for name, value in (("LOCAL_RANK", number), ("RANK", number), ("WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))


def test_without_a_launcher_there_is_one_process_which_does_all(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")  # of another kind of launcher
    assert (processes.launched_world_size(), processes.world_size(), processes.rank(), processes.rank_label()) == (
        1,
        1,
        0,
        "",
    )
    assert processes.is_rank_zero() and processes.on_rank_zero(lambda: 3) == 3
    processes.barrier()
    with pytest.raises(TuningRejected) as refused:
        processes.on_rank_zero(raising)
    assert not refused.value.reported_by_rank_zero


def raising():
    raise TuningRejected("model: spoiled.")


@pytest.mark.parametrize("number", [0, 1])
def test_the_launcher_says_which_process_it_is(monkeypatch, number):
    of_two(monkeypatch, number)
    assert (processes.launched_world_size(), processes.world_size(), processes.rank()) == (2, 2, number)
    assert processes.is_rank_zero() == (number == 0) and processes.rank_label() == f" (process {number} of 2)"


def test_what_the_main_process_does_alone_it_does_as_the_only_one(monkeypatch):
    of_two(monkeypatch, 0)
    monkeypatch.setattr(processes, "_exchange", lambda messages: None)
    alone = processes.on_rank_zero(
        lambda: (processes.world_size(), processes.rank_label(), processes.on_rank_zero(lambda: "nested"))
    )
    assert alone == (1, "", "nested") and processes.world_size() == 2


def test_a_process_that_is_gone_is_one_line(monkeypatch):
    import torch

    of_two(monkeypatch, 1)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)

    def closed(*_, **__):
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(torch.distributed, "broadcast_object_list", closed)
    monkeypatch.setattr(torch.distributed, "all_gather_object", closed)
    for waiting in (lambda: processes.on_rank_zero(lambda: 1), processes.barrier):
        with pytest.raises(InputError, match="another of the 2 processes .*The same command"):
            waiting()


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


def test_batches_stay_whole_and_ranks_take_turns():
    lengths = [[length] for length in range(8)]
    assert [WorkShard(rank=rank, world_size=2).unfinished_batches(lengths) for rank in (0, 1)] == [
        [[0], [3], [4], [7]],
        [[1], [2], [5], [6]],
    ]
    shard = WorkShard(np.array([0, 2, 7]))
    assert shard.unfinished_batches(BATCHES) == BATCHES
    assert shard.is_unfinished([0, 1, 2, 7, 3]).tolist() == [False, True, False, False, True]
    assert ALL_ROWS.unfinished_batches([*BATCHES, []]) == BATCHES and ALL_ROWS.unfinished_batches([]) == []


@pytest.mark.parametrize(("finished", "expected"), [([1], [["a", "b"], ["c"]]), ([1, 4, 0], [["c"]])])
def test_items_stand_for_a_row_that_they_produce(finished, expected):
    rows_of = {"a": [4, 0], "b": [1], "c": [2, 3]}
    shard = WorkShard(np.array(finished))
    assert shard.unfinished_batches([["a", "b"], ["c"]], lambda item: rows_of[item][0]) == expected
