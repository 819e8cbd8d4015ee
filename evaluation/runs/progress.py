"""Progress of long computations: a bar in a terminal, or a line every 15 seconds in a log."""

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from evenhand.evaluation.runs import processes
from evenhand.evaluation.untrusted_text import escape_hidden

log = logging.getLogger("evenhand")

SECONDS_BETWEEN_LINES = 15.0


@contextmanager
def progress(total: int | None, description: str, unit: str, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show the progress of a computation of `total` units; yield a function that adds n finished units.

    The progress includes rate and remaining time. If `total` is None, as for a stream, there is no remaining time. Only
    rank 0 shows progress.

    Args:
        total: number of units, including finished units.
        description: description of the computation.
        unit: the plural noun for a unit.
        done: number of units that an earlier run finished.
    """
    if not processes.is_rank_zero():
        yield lambda n: None
        return
    if sys.stderr.isatty():
        with tqdm(total=total, initial=done, desc=description, unit=f" {unit}", dynamic_ncols=True) as bar:
            yield bar.update
        return
    start = last = time.monotonic()
    count = 0

    def advance(n: int) -> None:
        nonlocal last, count
        count += n
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last, rate = now, count / (now - start)
            if total is None:
                log.info("%s: %d, %.3g %s/s", description, done + count, rate, unit)
            else:
                left = (total - done - count) / rate
                log.info("%s: %d of %d, %.3g %s/s, %.0f s left", description, done + count, total, rate, unit, left)

    yield advance
    seconds = time.monotonic() - start
    log.info("%s: %d %s in %.1f s (%.3g/s)", description, count, unit, seconds, count / max(seconds, 1e-9))


def start_logging() -> None:
    """Configure logging to stderr: progress and warnings of Evenhand, and warnings of other libraries."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    log.setLevel(logging.INFO)
    logging.raiseExceptions = False  # no traceback if a library cannot write its log to a full disk
    # Users cannot act on libraries' warnings about their next versions and about each other.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)  # about a kernel that is not used
    warnings.filterwarnings("ignore", category=FutureWarning)


class _LineFormatter(logging.Formatter):
    """A formatter that replaces hidden characters by codes, because a log may contain texts of a server or a model."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of the record with codes instead of hidden characters."""
        return "\n".join(map(escape_hidden, super().format(record).split("\n")))
