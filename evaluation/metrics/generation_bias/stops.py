"""How a measurement that was looked at before its end stopped (`stopping`), and what its scores have to account for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.evaluation.files import read_json
from evenhand.evaluation.report.numbers import number, sanitize
from evenhand.evaluation.statistics.intervals import Interval
from evenhand.evaluation.statistics.sequential import Look, Looks, interval_after_stopping
from evenhand.evaluation.statistics.spread import Estimate
from evenhand.evaluation.store import Store

DECIDED = "decided"
SIZES = ("small", "medium", "large")
SIZE_LIMITS = (0.02, 0.05)  # between the sizes, as shares of answers as if moved to another style (docs/deciding.md)
ACCOUNT = (
    "All tests account for the looks, and so do the intervals of FGB, PGB, SCGB, effects, and the spread of outcomes. "
    "Intervals of averages, quality, relevance, frequencies, feminine − masculine, the parts of person and word, and "
    "the shares of the variance are ordinary ones."
)
STOPPED = "stopped"  # the file of a `Stop`, and its entry in the record of a run


@dataclass(frozen=True)
class Stop:
    """How a measurement with looks ended.

    Attributes:
        until: the setting: DECIDED, or a limit in answers of 100.
        rounds: number of finished rounds at each planned look.
        look: number of the look at which the measurement stopped, from 0.
        decided: number of the range that was decided, from 0; None if none was.
        asked, planned: number of prompts that were asked, and of all.
        requests_saved: number of requests that the other prompts would take, by the name of the served model or judge;
            at most so many of a judge, since equal texts are judged once.
    """

    until: str | float
    rounds: tuple[int, ...]
    look: int
    decided: int | None
    asked: int
    planned: int
    requests_saved: Mapping[str, int] = field(default_factory=dict)

    @property
    def looks(self) -> Looks:
        """The planned looks."""
        return Looks(tuple(self.rounds))

    @property
    def last_look(self) -> Look:
        """How much the scores may err."""
        return self.looks.at(self.look)

    @property
    def limits(self) -> list[float]:
        """The limits of pooled FGB* between which a range is decided."""
        return spread_limits(self.until)

    @property
    def decision(self) -> str:
        """What was decided, in words; "" if nothing."""
        if self.decided is None:
            return ""
        if self.until == DECIDED:
            return f"the difference is {SIZES[self.decided]}"
        side = "above" if self.decided else "at most"
        return f"the difference is {side} {self.until:g} of 100 answers"

    @property
    def saved(self) -> str:
        """How many answers or requests were not necessary, in words; "" if none."""
        if self.asked == self.planned:
            return ""
        if not self.requests_saved:
            return f"{number(self.planned - self.asked, 0)} answers saved"
        by_server = [f"{number(n, 0)} to {sanitize(name, 120)}" for name, n in self.requests_saved.items()]
        return f"requests saved: {', '.join(by_server)}"

    def interval(self, estimate: Estimate) -> Interval | None:
        """Return the interval of pooled FGB* of all responses, which was the reason to stop, or the end."""
        return interval_after_stopping(estimate, self.looks, self.look, self.limits)


def spread_limits(until: str | float) -> list[float]:
    """Return the limits of pooled FGB* of a setting `until`.

    >>> [round(limit, 4) for limit in (*spread_limits(DECIDED), *spread_limits(10))]
    [0.0008, 0.005, 0.02]
    """
    shares = SIZE_LIMITS if until == DECIDED else (until / 100,)
    return [2 * share**2 for share in shares]


def read_stop(store: Store, name: str = STOPPED) -> Stop | None:
    """Return how the measurement ended; None if it had no looks."""
    facts = store.read_facts(name)
    return None if facts is None else Stop(**{**facts, "rounds": tuple(facts["rounds"])})


def suffices(record: Mapping[str, Any], until: str | float | None) -> bool:
    """Return whether a finished run with this record has all that the setting `until` asks for."""
    stop = record.get(STOPPED)
    return stop is None or stop["asked"] == stop["planned"] or stop["until"] == until


def stop_text(folder: Path) -> list[str]:
    """Return sentences on where the measurement in a folder stopped, if it had looks before its end.

    They say which intervals account for the looks: each score with the `tail` of its look, and each effect.
    """
    path = folder / f"{STOPPED}.json"
    if not path.exists():
        return []
    facts = read_json(path, "output_dir")
    facts.pop("run", None)
    stop = Stop(**facts)
    if stop.asked == stop.planned:
        decision = f"; at its end, {stop.decision}" if stop.decision else ""
        return [f"This measurement was looked at before its end{decision}.", ACCOUNT]
    asked = f"{number(stop.asked, 0)} of {number(stop.planned, 0)} planned answers ({stop.saved})"
    rest = "The same command without --until asks the rest."
    return [f"Stopped after {asked}, because {stop.decision}. {rest}", ACCOUNT]
