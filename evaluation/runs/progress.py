"""Progress of long computations: a bar in a terminal, or a line every 15 seconds in a log.

A thread writes the lines, so that they appear also while one batch takes long. If steps are nested, only the innermost
step is shown. `planned_work` adds the time left of a whole command to the lines.
"""

import logging
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from tqdm import tqdm

from evenhand.evaluation.runs import processes
from evenhand.evaluation.untrusted_text import escape_hidden

log = logging.getLogger("evenhand")

SECONDS_BETWEEN_LINES = 15.0
SECONDS_BETWEEN_CHECKS = 1.0


@dataclass
class _Step:
    """A running step: an earlier run finished `done` of the `total` units, and this run has finished `count`.

    `part` is the progress of the unfinished batch, in units. A step without a unit has only a duration.
    """

    description: str
    unit: str = ""
    total: int | None = None
    done: int = 0
    bar: tqdm | None = None
    count: float = 0
    part: float = 0.0
    start: float = field(default_factory=time.monotonic)

    @property
    def planned_name(self) -> str:
        """Return the description without the label of the process; the plan of a command knows steps by this name."""
        return self.description.removesuffix(processes.rank_label())

    def advance(self, n: float) -> None:
        """Add n finished units, which end the unfinished batch."""
        self.count, self.part = self.count + n, 0.0
        self.show_bar()

    def show_bar(self) -> None:
        if self.bar is not None:
            self.bar.update(int(self.done + self.count + self.part) - self.bar.n)

    def line(self) -> str:
        """Return the line for the log: units, rate, time left of the step, and time left of the command if planned."""
        seconds, worked = time.monotonic() - self.start, self.count + self.part
        if not worked:
            of = "" if self.total is None else f" {self.done} of {self.total} {self.unit},"
            return f"{self.description}:{of} {seconds:.0f} s so far"
        rate, finished = worked / seconds, int(self.done + worked)
        if self.total is None:
            return f"{self.description}: {finished}, {rate:.3g} {self.unit}/s"
        left = max(0.0, self.total - self.done - worked) / rate
        line = f"{self.description}: {finished} of {self.total}, {rate:.3g} {self.unit}/s, {left:.0f} s left"
        later = _later_cost() * seconds * self.total / worked / _cost(self.planned_name)
        return f"{line}; about {_duration(left + later)} left in all" if later else line


_steps: list[_Step] = []  # the innermost step comes last
_plans: list[Mapping[str, float]] = []
_last_line = 0.0


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
    bar = None
    if sys.stderr.isatty():
        bar = tqdm(total=total, initial=done, desc=description, unit=f" {unit}", dynamic_ncols=True)
    step = _Step(description, unit, total, done, bar)
    with nullcontext() if bar is None else bar, _shown(step):
        yield step.advance
    if bar is not None:
        return
    seconds, count = time.monotonic() - step.start, step.count
    _write(f"{description}: {count} {unit} in {seconds:.1f} s ({count / max(seconds, 1e-9):.3g}/s)")


@contextmanager
def working(description: str) -> Iterator[None]:
    """Write a line every 15 seconds while the block computes and no step within it is shown."""
    if not processes.is_rank_zero():
        yield
        return
    with _shown(_Step(description)):
        yield


def report_part(units: float, unit: str) -> None:
    """Show that the unfinished batch of the innermost step is worth `units` finished units.

    A batch of 128 responses of which 10 of 40 tokens are generated is worth 32 responses. Without a step that counts
    `unit`, nothing is shown.
    """
    if _steps and _steps[-1].unit == unit:
        _steps[-1].part = units
        _steps[-1].show_bar()


@contextmanager
def planned_work(costs: Mapping[str, float]) -> Iterator[None]:
    """Show the time left of all planned steps while the block computes.

    The rate of the current step predicts the duration of the later steps. Plans can be nested: a step of the outer plan
    then has an inner plan.

    Args:
        costs: the expected cost of each step in order of execution, by the step's description, in any unit that all
            plans share.
    """
    _plans.append(costs)
    try:
        yield
    finally:
        _plans.remove(costs)


def _cost(description: str) -> float:
    """Return the planned cost of a step; infinity if it is not planned, so that it predicts no time of later steps."""
    return next((costs[description] for costs in reversed(_plans) if costs.get(description)), math.inf)


def _later_cost() -> float:
    """Return the cost of all planned steps after the steps that are shown."""
    shown, later = {step.planned_name for step in _steps}, 0.0
    for costs in _plans:
        if current := [place for place, name in enumerate(costs) if name in shown]:
            later += sum(list(costs.values())[current[-1] + 1 :])
    return later


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


@contextmanager
def _shown(step: _Step) -> Iterator[None]:
    """Show a step while the block computes."""
    _steps.append(step)
    if len(_steps) == 1:
        threading.Thread(target=_write_lines, args=(step,), daemon=True).start()
    try:
        yield
    finally:
        _steps.remove(step)


def _write_lines(outermost: _Step) -> None:
    """Write a line of the innermost step whenever none was written for a while, until the outermost step ends."""
    while outermost in _steps:
        time.sleep(SECONDS_BETWEEN_CHECKS)
        step = _steps[-1] if outermost in _steps else None
        if step is None or step.bar is not None:
            continue
        if time.monotonic() - max(_last_line, outermost.start) >= SECONDS_BETWEEN_LINES:
            _write(step.line())


def _write(line: str) -> None:
    global _last_line
    _last_line = time.monotonic()
    log.info("%s", line)


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
