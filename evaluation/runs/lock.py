"""The lock of a run folder, by which one process at a time works in it; it ends with its process."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import check_links_inside, explain_full_disk

LOCK = ".lock"
TRACKERS = ("wandb", "tensorboard")  # their folders contain links to other files, and nothing in them is deleted


class RunLocked(InputError):
    """Another process works in the run folder."""


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Lock a folder until the block ends; create it if it is absent.

    Raises:
        RunLocked: another process has locked it.
        InputError: the folder cannot be written, or a link in it leads out, so that other files could be changed.
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
