"""The lock of a run's folder, in which one process works at a time."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import check_links_inside, explain_full_disk, writes_checked
from evenhand.evaluation.runs.results import LOCK, TRACKERS


class RunLocked(InputError):
    """The error that another process works in the run folder."""


@contextmanager
def run_lock(folder: Path, list_result: Callable[[Path], None] = lambda path: None) -> Iterator[None]:
    """Lock a folder until the block ends; create the folder if it does not exist.

    `list_result` is called with the resolved path of each file in the folder before it is written within the block.

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
        raise RunLocked("output_dir", f"{holder} is at work in {folder}; wait for it, or give another.") from None
    except OSError as error:
        raise InputError(
            folder,
            f"cannot be written ({error.strerror or error}); choose another {spelled('output_dir')}, or allow writing "
            "there.",
        ) from None
    try:
        with explain_full_disk(folder):
            (folder / LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        held = _file_number(folder / LOCK)

        def check(path: Path) -> None:
            if _file_number(folder / LOCK) != held:
                raise InputError(
                    "output_dir",
                    f"{folder} was deleted while this command worked in it, and perhaps another one works "
                    f"in it now; nothing more was written. Give another {spelled('output_dir')}, or the command again.",
                )
            list_result(path)

        with writes_checked(folder, check):
            yield
    finally:
        lock.release()


def _file_number(path: Path) -> tuple[int, int] | None:
    """Return the numbers of the device and of the file; another file at the same path has other numbers."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
