"""How a measurement with looks before its end stopped (`interim_looks`), and what its scores have to account for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import read_json
from evenhand.evaluation.metrics.generation_bias.stopping_question import Question, question_of
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.intervals import Interval
from evenhand.evaluation.statistics.level import ONE_LOOK, Level
from evenhand.evaluation.statistics.sequential import LookPlan, interval_after_stopping

if TYPE_CHECKING:
    from evenhand.evaluation.metrics.generation_bias.settings import FamilySettings

STOPPED = "stopped"  # the file of a `Stop`, and its entry in the record of a run


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
    def is_early(self) -> bool:
        """Whether some prompts were not asked."""
        return self.asked < self.planned

    @property
    def plan(self) -> LookPlan:
        """The planned looks."""
        return LookPlan(tuple(self.rounds))

    @property
    def level(self) -> Level:
        """The error that tests and intervals are allowed at the look at which the measurement stopped."""
        return self.plan.level(self.look)

    @property
    def decision(self) -> Finding | None:
        """What was decided; None if nothing was."""
        return None if self.decided is None else self.question.decision(self.decided)

    @property
    def difference_bounds(self) -> Interval | None:
        """The interval of `difference_bound` that was decided; None if it was not the question, or is undecided."""
        return None if self.question.max_difference is None else self.bounds

    @property
    def extent(self) -> dict[str, int]:
        """How many of the answers were asked, as values of a finding."""
        return {"asked": self.asked, "planned": self.planned}

    @property
    def saving(self) -> Finding | None:
        """How many answers or requests the early stop saved; None if it was not early."""
        if not self.is_early:
            return None
        return Finding("saved", {"n": self.planned - self.asked, "requests": dict(self.requests_saved)})

    def interval(self, estimate: Estimate) -> Interval | None:
        """Return the interval of pooled FGB* of all responses; it is narrower if it was the reason to stop."""
        if not self.question.is_about_spread:
            return replace(estimate, level=self.level).interval
        return interval_after_stopping(estimate, self.plan, self.look, self.question.limits)


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


def has_asked_enough(record: Mapping[str, Any], settings: "FamilySettings") -> bool:
    """Return whether a finished run with this record has asked all that the settings of generation bias ask for."""
    if STOPPED not in record:
        return True
    stop = _stop_of(record[STOPPED])
    return not stop.is_early or stop.question == question_of(settings)


def read_finished_stop(folder: Path) -> Stop | None:
    """Return how the measurement of a finished run ended; None if it had no looks."""
    path = folder / f"{STOPPED}.json"
    return _stop_of(read_json(path, "output_dir")) if path.exists() else None


def level_of_comparison(before: Path, after: Path, n_common: int, field_name: str) -> Level:
    """Return how much a comparison of two finished runs on their common prompts may err; both may have had looks.

    Runs with the same planned prompts are asked in the same order. Where at least one of them stopped, the comparison
    is on the prompts of a planned look: of the first stop, if both stopped. The intervals of a comparison at all looks
    hold together, and its tests err together in 5 of 100 cases at most. So the comparison at this look holds whatever
    the reason of either run to stop, also if this was a bias that chance made large.

    Args:
        before, after: folders of the two runs.
        n_common: number of prompts that both runs have.
        field_name: the setting with the folder of the run after, for the message.

    Raises:
        InputError: both runs stopped early, and were asked in different orders.
    """
    stops = [stop for stop in (read_finished_stop(before), read_finished_stop(after)) if stop is not None]
    if len(stops) == 2 and all(stop.is_early for stop in stops) and n_common < min(stop.asked for stop in stops):
        until = spelled("generation_bias.until")
        raise InputError(
            field_name,
            f"{after} and {before} stopped early ({until}), each in an order of its prompts that the other one does "
            f"not have; ask the rest of one of them by the same command without {until}, or give both the same "
            "prompts and seed.",
        )
    return min((stop.level for stop in stops), key=lambda error: error.share, default=ONE_LOOK)


def comparison_stops(before: Path, after: Path) -> list[Finding]:
    """Return which of two runs was looked at before its end, and which changes account for it; [] if none was."""
    if read_finished_stop(before) is None and read_finished_stop(after) is None:
        return []
    early = [*early_stops("before", before), *early_stops("after", after)]
    return [*(early or [Finding("a_run_was_looked_at")]), Finding("intervals_after_looks", {"of": "changes"})]


def early_stops(which: str, folder: Path) -> list[Finding]:
    """Return [how many prompts a run lacks because it stopped early], or []; `which` run it is in a comparison."""
    stop = read_finished_stop(folder)
    if stop is None or not stop.is_early:
        return []
    return [Finding("stopped_early", {"which": which, **stop.extent})]


def run_stops(folder: Path) -> list[Finding]:
    """Return where the measurement in a folder stopped and which intervals account for it; [] if it had no looks."""
    stop = read_finished_stop(folder)
    if stop is None:
        return []
    how = Finding("looked_at", {"decision": stop.decision})
    if stop.is_early:
        how = Finding("stopped", {**stop.extent, "saving": stop.saving, "decision": stop.decision})
    return [how, Finding("intervals_after_looks", {"of": "run"})]
