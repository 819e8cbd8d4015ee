"""The processes of one run, as `accelerate launch` starts them: rows are shared out, the main process does all else.

Without a launcher there is one process, which waits for nobody. What the main process does alone it does as if it were
the only one.
"""

import os
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

from evenhand.evaluation.errors import InputError

Result = TypeVar("Result")

# How long a process waits for another that lives: as long as the main one may score. One that is gone is noticed at
# once, by its connections and by the launcher, which ends the others.
MAX_WAIT = timedelta(hours=12)
_alone: ContextVar[bool] = ContextVar("alone", default=False)


def launched_world_size() -> int:
    """Return how many processes a launcher started: 1 without one."""
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def world_size() -> int:
    """Return how many processes share the work at hand."""
    return 1 if _alone.get() else launched_world_size()


def rank() -> int:
    """Return which of them this is, from 0."""
    return int(os.environ["RANK"]) if world_size() > 1 else 0


def is_rank_zero() -> bool:
    """Return whether this is the process that writes what is not a share of the rows."""
    return rank() == 0


def rank_label() -> str:
    """Return what errors call this process; "" where it is the only one."""
    return f" (process {rank()} of {world_size()})" if world_size() > 1 else ""


def shards_model() -> bool:
    """Return whether the launcher was told to spread a model in training over the processes, by FSDP or DeepSpeed."""
    told = (os.environ.get(f"ACCELERATE_USE_{by}", "false") for by in ("FSDP", "DEEPSPEED"))
    return any(value.lower() == "true" for value in told)


def on_rank_zero(compute: Callable[[], Result]) -> Result:
    """Return in every process what the main one computes alone, while the others wait.

    Raises:
        InputError: in every process the one that the main process raised, which alone says it; or the main process is
            gone.
    """
    if world_size() == 1:
        return compute()
    told: list[Any] = [None, None]
    if is_rank_zero():
        token = _alone.set(True)
        try:
            told[0] = compute()
        except InputError as error:
            told[1] = error
        finally:
            _alone.reset(token)
    _exchange(lambda distributed: distributed.broadcast_object_list(told, src=0))
    if told[1] is not None:
        told[1].reported_by_rank_zero = True
        raise told[1]
    return told[0]


def barrier() -> None:
    """Go on when all processes have come here.

    Raises:
        InputError: one of them is gone.
    """
    if world_size() > 1:
        came: list[Any] = [None] * world_size()
        _exchange(lambda distributed: distributed.all_gather_object(came, rank()))


def shut_down() -> None:
    """Part from the other processes, when all work is done."""
    if launched_world_size() > 1:
        import torch

        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _exchange(messages: Callable[[Any], None]) -> None:
    """Join the other processes, if this is the first time, and exchange messages with them, on the CPU."""
    import torch
    from accelerate import PartialState

    if not torch.distributed.is_initialized():
        gpus = torch.cuda.is_available()
        further = {"backend": "cpu:gloo,cuda:nccl"} if gpus else {}
        PartialState(cpu=not gpus, timeout=MAX_WAIT, **further)
    try:
        messages(torch.distributed)
    except RuntimeError as error:  # torch's own errors are of this class
        raise InputError(
            f"another of the {world_size()} processes ended; its own message, or the launcher's, has the reason. "
            "The same command goes on from here."
        ) from error
