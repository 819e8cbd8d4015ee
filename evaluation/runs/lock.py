"""A lock on a run folder, so that only one process at a time works in the folder. The lock ends with the process."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import check_links_inside, explain_full_disk

LOCK = ".lock"
TRACKERS = ("wandb", "tensorboard")  # these folders contain links to other files, and nothing in them is deleted


class RunLocked(InputError):
    """The error that another process works in the run folder."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Lock a folder until the block ends; create the folder if it does not exist.

    Raises:
        RunLocked: another process has locked the folder.
        InputError: the folder cannot be written, or a link inside leads out of the folder, so that other files could be
            changed.
    """
    check_links_inside(folder, "output_dir", leave_out=TRACKERS)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        with explain_full_disk(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    except Timeout:
        holder = (folder / LOCK).read_text(encoding="utf-8") or "another process"
        raise RunLocked(f"output_dir: {holder} is at work in {folder}; wait for it, or give another.") from None
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}; choose another --output_dir.") from None
    try:
        with explain_full_disk(folder):
            (folder / LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield
    finally:
        lock.release()
