"""How a measurement that was looked at before its end stopped (`stopping`), and what its scores have to account for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_json
from evenhand.evaluation.manifest import read_run, run_sha256
from evenhand.evaluation.report.numbers import number, sanitize
from evenhand.evaluation.statistics.intervals import Interval
from evenhand.evaluation.statistics.sequential import ONLY_LOOK, Look, Looks, interval_after_stopping
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
class Question:
    """What a measurement with looks decides: about pooled FGB*, unless a limit of something else is given.

    Attributes:
        until: the setting: DECIDED, or a limit of pooled FGB* in answers of 100.
        max_difference: the limit of `difference_bound` in answers of 100.
        max_rise: the limit of the rise of pooled FGB* over a baseline, in %.
        against: the fingerprint of the baseline's run.
    """

    until: str | float
    max_difference: float | None = None
    max_rise: float | None = None
    against: str | None = None

    @property
    def limits(self) -> list[float]:
        """The increasing limits between which a range is decided.

        They are of pooled FGB*, of `difference_bound`, or of pooled FGB* − (1 + rise) × pooled FGB* of the baseline.
        """
        if self.max_difference is not None:
            return [self.max_difference / 100]
        if self.max_rise is not None:
            return [0.0]
        return spread_limits(self.until)

    @property
    def is_about_spread(self) -> bool:
        """Whether the question is about pooled FGB* of this run alone."""
        return self.max_difference is None and self.max_rise is None

    def decision(self, decided: int) -> str:
        """Return the decision on a range, numbered from 0, in words."""
        side = "more than" if decided else "at most"
        if self.max_difference is not None:
            whom = "somebody differs" if decided else "nobody differs"
            return f"{whom} from the average by more than {self.max_difference:g} of 100 in a style"
        if self.max_rise is not None:
            return f"pooled FGB* is {side} {self.max_rise:g} % above the baseline's"
        if self.until == DECIDED:
            return f"the difference is {SIZES[decided]}"
        return f"the difference is {side} {self.until:g} of 100 answers"


def question_of(settings: Any) -> Question | None:
    """Return the question of the settings of generation bias; None if all is asked.

    Raises:
        InputError: the settings do not fit together, or the folder of the baseline has no finished run of `measure`.
    """
    limits = {name: getattr(settings, name) for name in ("max_difference", "max_rise", "against")}
    given = [name for name, value in limits.items() if value is not None]
    if not given:
        return None if settings.until is None else Question(settings.until)
    field_name = f"generation_bias.{given[0]}"
    if settings.until != DECIDED:
        raise InputError(field_name, f"until is {settings.until}; give --until {DECIDED} with it, or leave it out.")
    if given not in (["max_difference"], ["max_rise", "against"]):
        raise InputError(
            field_name,
            f"{' and '.join(given)} is no question; give max_difference alone, or max_rise with `against`.",
        )
    if settings.against is not None:
        _, record = read_run(settings.against, "measure", "generation_bias.against")
        return Question(DECIDED, max_rise=settings.max_rise, against=run_sha256(record))
    if not settings.permutations:
        raise InputError("generation_bias.permutations", "0; whether somebody differs is tested: give some, or 1999.")
    return Question(DECIDED, settings.max_difference)


@dataclass(frozen=True)
class Stop:
    """How a measurement with looks ended.

    Attributes:
        question: what it decides.
        rounds: number of finished rounds at each planned look.
        look: number of the look at which the measurement stopped, from 0.
        decided: number of the range that was decided, from 0; None if none was.
        asked, planned: number of prompts that were asked, and of all.
        bounds: the interval that decided, in the unit of the question's limits; None if nothing was decided.
        requests_saved: number of requests that the other prompts would take, by the name of the served model or judge;
            at most so many of a judge, since equal texts are judged once.
    """

    question: Question
    rounds: tuple[int, ...]
    look: int
    decided: int | None
    asked: int
    planned: int
    bounds: Interval | None = None
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
    def decision(self) -> str:
        """What was decided, in words; "" if nothing."""
        return "" if self.decided is None else self.question.decision(self.decided)

    @property
    def difference_bounds(self) -> Interval | None:
        """The interval of `difference_bound` that was decided; None if it was not the question, or is undecided."""
        return None if self.question.max_difference is None else self.bounds

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
        """Return the interval of pooled FGB* of all responses; it is narrower if it was the reason to stop."""
        if not self.question.is_about_spread:
            return replace(estimate, tail=self.last_look.tail).interval
        return interval_after_stopping(estimate, self.looks, self.look, self.question.limits)


def spread_limits(until: str | float) -> list[float]:
    """Return the limits of pooled FGB* of a setting `until`.

    >>> [round(limit, 4) for limit in (*spread_limits(DECIDED), *spread_limits(10))]
    [0.0008, 0.005, 0.02]
    """
    shares = SIZE_LIMITS if isinstance(until, str) else (until / 100,)
    return [2 * share**2 for share in shares]


def read_stop(store: Store, name: str = STOPPED) -> Stop | None:
    """Return how the measurement ended; None if it had no looks."""
    facts = store.read_facts(name)
    return None if facts is None else _stop_of(facts)


def _stop_of(facts: dict[str, Any]) -> Stop:
    bounds = facts["bounds"]
    return Stop(
        question=Question(**facts["question"]),
        rounds=tuple(facts["rounds"]),
        look=facts["look"],
        decided=facts["decided"],
        asked=facts["asked"],
        planned=facts["planned"],
        bounds=None if bounds is None else tuple(bounds),
        requests_saved=facts["requests_saved"],
    )


def suffices(record: Mapping[str, Any], settings: Any) -> bool:
    """Return whether a finished run with this record has all that the settings of generation bias ask for."""
    if STOPPED not in record:
        return True
    stop = _stop_of(record[STOPPED])
    return stop.asked == stop.planned or stop.question == question_of(settings)


def read_look(folder: Path) -> Look:
    """Return how much intervals and tests of a finished run, which may have had looks before its end, may err."""
    stop = _read_finished_stop(folder)
    return ONLY_LOOK if stop is None else stop.last_look


def _read_finished_stop(folder: Path) -> Stop | None:
    path = folder / f"{STOPPED}.json"
    return _stop_of(read_json(path, "output_dir")) if path.exists() else None


def comparison_stop_text(*folders: Path) -> list[str]:
    """Return a warning that a comparison does not account for the looks at its runs, if they had any."""
    if all(_read_finished_stop(folder) is None for folder in folders):
        return []
    return [
        "A run was looked at before its end (--until). The intervals and tests of this comparison do not account for "
        "that; `check` does."
    ]


def stop_text(folder: Path) -> list[str]:
    """Return sentences on where the measurement in a folder stopped, if it had looks before its end.

    They say which intervals account for the looks: each score with the `tail` of its look, and each effect.
    """
    stop = _read_finished_stop(folder)
    if stop is None:
        return []
    if stop.asked == stop.planned:
        decision = f"; at its end, {stop.decision}" if stop.decision else ""
        return [f"This measurement was looked at before its end{decision}.", ACCOUNT]
    asked = f"{number(stop.asked, 0)} of {number(stop.planned, 0)} planned answers ({stop.saved})"
    rest = "The same command without --until asks the rest."
    return [f"Stopped after {asked}, because {stop.decision}. {rest}", ACCOUNT]
