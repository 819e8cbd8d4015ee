"""The processes (ranks) of one run that `accelerate launch` starts, and the communication between them.

Each rank computes a shard of the rows; rank 0 computes everything else. Without a launcher, the only process is rank 0
and the world size is 1. Inside `on_rank_zero` the world size is 1, too.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

from evenhand.evaluation.errors import InputError, first_line

Result = TypeVar("Result")

# How long a rank waits for another running rank, for example while rank 0 computes scores. If a rank ends, its
# connection closes, and the launcher ends the other ranks at once.
MAX_WAIT = timedelta(hours=12)
SECONDS_TO_CONNECT = 600  # all ranks start within this time, or there are none: the variables are left over
SECONDS_TO_NOTE = 5  # then a rank says for whom it waits
VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK")
log = logging.getLogger("evenhand")
_alone: ContextVar[bool] = ContextVar("alone", default=False)


def check_launcher() -> None:
    """Raise InputError if the environment variables of a launcher do not fit together."""
    if "LOCAL_RANK" not in os.environ:
        return
    values = {name: os.environ.get(name, "1" if name == "WORLD_SIZE" else "0") for name in VARIABLES}
    is_valid = all(text.isascii() and text.isdigit() for text in values.values())
    if not is_valid or not int(values["RANK"]) < int(values["WORLD_SIZE"]):
        listed = ", ".join(f"{name} {text!r}" for name, text in values.items())
        raise InputError("LOCAL_RANK", f"the launcher's variables ({listed}) do not fit together; unset them.")


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
    _communicate(lambda distributed: distributed.broadcast_object_list(outcome, src=0))
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
        ranks: list[int | None] = [None] * world_size()
        _communicate(lambda distributed: distributed.all_gather_object(ranks, rank()))


def shut_down() -> None:
    """Close the connection to the other processes at the end of the run."""
    if launched_world_size() > 1:
        import torch

        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _communicate(communicate: Callable[[Any], None]) -> None:
    """Connect this process to the other ranks, if it is not connected yet; call `communicate(torch.distributed)`."""
    import torch

    if not torch.distributed.is_initialized():
        _connect()
    try:
        communicate(torch.distributed)
    except RuntimeError as error:  # the base class of torch's errors
        raise InputError(
            "processes",
            f"another of the {world_size()} processes ended; its own message, or the launcher's, has the reason. "
            "The same command goes on from here.",
        ) from error


def _connect() -> None:
    """Connect this process to the other ranks, in a thread, so that signals still end the process.

    Raises:
        InputError: the other ranks do not connect in time, or the connection fails.
    """
    import torch
    from accelerate import PartialState

    errors: list[Exception] = []
    gpus = torch.cuda.is_available()
    backend = {"backend": "cpu:gloo,cuda:nccl"} if gpus else {}

    def connect() -> None:
        try:
            PartialState(cpu=not gpus, timeout=MAX_WAIT, **backend)
        except Exception as error:  # of torch, of accelerate or of the network
            errors.append(error)

    others = f"the other {launched_world_size() - 1} of WORLD_SIZE {launched_world_size()} processes"
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(SECONDS_TO_NOTE)
    if thread.is_alive():
        log.warning("waiting for %s; without a launcher, unset %s", others, ", ".join(VARIABLES))
    end = time.monotonic() + SECONDS_TO_CONNECT
    while thread.is_alive() and time.monotonic() < end:
        thread.join(1)
    if thread.is_alive() or errors:
        reason = f" ({first_line(errors[0])})" if errors else f" in {SECONDS_TO_CONNECT} seconds"
        raise InputError(
            "WORLD_SIZE",
            f"{others} did not connect{reason}; start all of them by a launcher, or unset {', '.join(VARIABLES)}.",
        )
    if gpus:
        torch.cuda.set_device(PartialState().device)  # the current device is a property of the thread
