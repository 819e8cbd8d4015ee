"""Ranks as a launcher sets them in the environment, and values that rank 0 computes for all."""

import pytest

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError


def of_two(monkeypatch, number):
    for name, value in (("LOCAL_RANK", number), ("RANK", number), ("WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("number", [0, 1])
def test_the_launcher_says_which_process_it_is(monkeypatch, number):
    of_two(monkeypatch, number)
    assert (processes.launched_world_size(), processes.world_size(), processes.rank()) == (2, 2, number)
    assert processes.is_rank_zero() == (number == 0) and processes.rank_label() == f" (process {number} of 2)"


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
