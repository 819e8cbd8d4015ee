"""Progress of long computations: a bar in a terminal, or a line every 15 seconds in a log."""

import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from evenhand.evaluation import processes
from evenhand.evaluation.untrusted_text import escape_hidden

log = logging.getLogger("evenhand")

SECONDS_BETWEEN_LINES = 15.0


class _LoggedBar(tqdm):
    """A bar of tqdm that writes its numbers to the log instead of the terminal."""

    shown = -1

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self.n != self.shown and self.initial != self.total:
            self.shown = self.n
            log.info("%s", self.format_meter(**{**self.format_dict, "ncols": 0}))


@contextmanager
def progress(total: int | None, description: str, unit: str, done: int = 0) -> Iterator[Callable[[int], object]]:
    """Show number, rate and time left of a computation; yield a function that adds n finished units.

    Only rank 0 shows progress.

    Args:
        total: number of units, including finished units; None for a stream, which has no time left.
        description: description of the computation.
        unit: the plural noun for a unit.
        done: number of units that an earlier run finished.
    """
    how = {"total": total, "desc": description, "unit": f" {unit}", "initial": done}
    if sys.stderr.isatty():
        bar = tqdm(**how, disable=not processes.is_rank_zero(), dynamic_ncols=True)
    else:
        how |= {"file": io.StringIO(), "mininterval": SECONDS_BETWEEN_LINES}
        bar = _LoggedBar(**how, disable=not processes.is_rank_zero())
    with bar:
        yield bar.update


def start_logging() -> None:
    """Configure logging to stderr: progress and warnings of Evenhand, and warnings of other libraries."""
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    log.setLevel(logging.INFO)
    logging.raiseExceptions = False  # no traceback if a library cannot write its log to a full disk
    # Users cannot act on libraries' warnings about their next versions and about each other.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore", category=FutureWarning)


class _LineFormatter(logging.Formatter):
    """A formatter that replaces hidden characters by codes, because a log may contain texts of a server or a model."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of the record with codes instead of hidden characters."""
        return "\n".join(map(escape_hidden, super().format(record).split("\n")))
