"""The processes (ranks) of one run that `accelerate launch` starts, and the communication between them.

Each rank computes a shard of the rows; rank 0 computes everything else. Without a launcher, the only process is rank 0
and the world size is 1. Inside `on_rank_zero` the world size is 1, too.
"""

import os
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

from evenhand.evaluation.errors import InputError

Result = TypeVar("Result")

# How long a rank waits for another running rank, for example while rank 0 computes scores. If a rank ends, its
# connection closes, and the launcher ends the other ranks at once.
MAX_WAIT = timedelta(hours=12)
_alone: ContextVar[bool] = ContextVar("alone", default=False)


def launched_world_size() -> int:
    """Return the number of processes that a launcher started, or 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def world_size() -> int:
    """Return the number of processes that work together; 1 inside `on_rank_zero`."""
    return 1 if _alone.get() else launched_world_size()


def rank() -> int:
    """Return the rank (index from 0) of this process; 0 inside `on_rank_zero`."""
    return int(os.environ["RANK"]) if world_size() > 1 else 0


def is_rank_zero() -> bool:
    """Return whether this process is rank 0, which writes all files except the parts that other ranks compute."""
    return rank() == 0


def rank_label() -> str:
    """Return the text " (process RANK of WORLD_SIZE)" for errors and progress bars, or "" for a single process."""
    return f" (process {rank()} of {world_size()})" if world_size() > 1 else ""


def shards_model() -> bool:
    """Return whether the launcher is configured to shard the model over the processes with FSDP or DeepSpeed."""
    values = (os.environ.get(f"ACCELERATE_USE_{name}", "false") for name in ("FSDP", "DEEPSPEED"))
    return any(value.lower() == "true" for value in values)


def on_rank_zero(compute: Callable[[], Result]) -> Result:
    """Compute a value on rank 0 while the other ranks wait, and return the value on every rank.

    Raises:
        InputError: `compute` raised this error, which is then raised on every rank but reported only by rank 0; or
            another rank has ended.
    """
    if world_size() == 1:
        return compute()
    outcome: list[Any] = [None, None]  # the value, the error
    if is_rank_zero():
        token = _alone.set(True)
        try:
            outcome[0] = compute()
        except InputError as error:
            outcome[1] = error
        finally:
            _alone.reset(token)
    _exchange(lambda distributed: distributed.broadcast_object_list(outcome, src=0))
    if outcome[1] is not None:
        outcome[1].reported_by_rank_zero = True
        raise outcome[1]
    return outcome[0]


def barrier() -> None:
    """Wait until all ranks have called this function.

    Raises:
        InputError: another rank has ended.
    """
    if world_size() > 1:
        ranks: list[Any] = [None] * world_size()
        _exchange(lambda distributed: distributed.all_gather_object(ranks, rank()))


def shut_down() -> None:
    """Close the connection to the other processes at the end of the run."""
    if launched_world_size() > 1:
        import torch

        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _exchange(communicate: Callable[[Any], None]) -> None:
    """Connect this process to the other ranks, if it is not connected yet; call `communicate(torch.distributed)`."""
    import torch
    from accelerate import PartialState

    if not torch.distributed.is_initialized():
        gpus = torch.cuda.is_available()
        backend = {"backend": "cpu:gloo,cuda:nccl"} if gpus else {}
        PartialState(cpu=not gpus, timeout=MAX_WAIT, **backend)
    try:
        communicate(torch.distributed)
    except RuntimeError as error:  # the base class of torch's errors
        raise InputError(
            f"another of the {world_size()} processes ended; its own message, or the launcher's, has the reason. "
            "The same command goes on from here."
        ) from error
