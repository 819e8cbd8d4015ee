"""Progress of long computations: a bar and signs of life in a terminal, at most a line a minute in other logs."""

import io
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from evenhand.evaluation.runs import processes
from evenhand.evaluation.untrusted_text import escape_hidden

log = logging.getLogger("evenhand")

SECONDS_IN_A_TERMINAL = 10.0  # between lines
SECONDS_IN_A_LOG = 60.0
SIGNS_OF_LIFE = "signs of life"  # the name of a thread
_running: list[tuple[str, float]] = []  # description and start of what is computed, the innermost last
_last_line = time.monotonic()  # when a line was last written


def is_watched() -> bool:
    """Return whether a person watches: the errors go to a terminal, and no CI service runs the command."""
    return sys.stderr.isatty() and os.environ.get("CI", "").lower() in ("", "0", "false")


def seconds_between_lines() -> float:
    """Return the time between two lines on progress."""
    return SECONDS_IN_A_TERMINAL if is_watched() else SECONDS_IN_A_LOG


class _Bar(tqdm):
    """A bar of tqdm, which counts as a line when it moves."""

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw the bar."""
        _note_line()
        super().display(msg, pos)


class _LoggedBar(tqdm):
    """A bar of tqdm that writes its numbers to the log instead of the terminal."""

    shown = 0  # a line that nothing is done yet says no more than the line before it

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self.n != self.shown and self.initial != self.total:
            self.shown = self.n
            log.info("%s", self.format_meter(**{**self.format_dict, "ncols": 0}))


@contextmanager
def progress(total: int | None, description: str, unit: str, done: int = 0) -> Iterator[tqdm]:
    """Show number, rate and time left of a computation; yield a bar, whose `update(n)` adds n finished units.

    Only rank 0 shows progress.

    Args:
        total: number of units, including finished units; None for a stream, which has no time left.
        description: description of the computation.
        unit: the plural noun for a unit.
        done: number of units that an earlier run finished.
    """
    is_disabled = not processes.is_rank_zero()
    arguments = {"total": total, "desc": description, "unit": f" {unit}", "initial": done, "disable": is_disabled}
    arguments["smoothing"] = 0  # batches differ much in size and time: only the rate of the whole run is stable
    if is_watched():
        bar = _Bar(**arguments, dynamic_ncols=True)
    else:
        seconds = seconds_between_lines()
        bar = _LoggedBar(**arguments, file=io.StringIO(), mininterval=seconds, maxinterval=seconds)
    with working(description), bar:
        yield bar


@contextmanager
def working(description: str) -> Iterator[None]:
    """Name what the block computes. If it is silent for `seconds_between_lines`, the log says how long it has run.

    The command line writes these lines (`start_logging`), on rank 0.
    """
    _running.append((description, time.monotonic()))
    try:
        yield
    finally:
        _running.pop()


def _note_line() -> None:
    global _last_line
    _last_line = time.monotonic()


def _write_signs_of_life() -> None:
    """Write a line whenever nothing was written for `seconds_between_lines`; ends with the process."""
    while True:
        time.sleep(1)
        write_sign_of_life(time.monotonic())


def write_sign_of_life(now: float) -> None:
    """Write what is computed, and since when, if nothing was written in the `seconds_between_lines` before `now`."""
    if _running and now - _last_line >= seconds_between_lines():
        description, start = _running[-1]
        log.info("%s: at work for %.0f s", description, now - start)


def start_logging() -> None:
    """Configure logging to stderr: progress and warnings of Evenhand, and warnings of other libraries."""
    handler = _LineHandler()
    handler.setFormatter(_LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    log.setLevel(logging.INFO)
    logging.raiseExceptions = False  # no traceback if a library cannot write its log to a full disk
    # Users cannot act on libraries' warnings about their next versions and about each other.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", category=FutureWarning)
    # PEFT saves an adapter whose base is a GGUF file of a package, which has no config; Evenhand changes no vocabulary.
    warnings.filterwarnings("ignore", "Could not find a config file in", UserWarning)
    if processes.is_rank_zero() and not any(thread.name == SIGNS_OF_LIFE for thread in threading.enumerate()):
        threading.Thread(target=_write_signs_of_life, name=SIGNS_OF_LIFE, daemon=True).start()


class _LineHandler(logging.StreamHandler):
    """A handler that writes its lines above a progress bar, not into it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, and note when."""
        _note_line()
        with tqdm.external_write_mode(file=self.stream):
            super().emit(record)


class _LineFormatter(logging.Formatter):
    """A formatter that replaces hidden characters by codes, because a log may contain texts of a server or a model."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of the record with codes instead of hidden characters."""
        return "\n".join(map(escape_hidden, super().format(record).split("\n")))
