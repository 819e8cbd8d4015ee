"""How a measurement with looks before its end stopped (`interim_looks`), and what its scores have to account for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_json
from evenhand.evaluation.metrics.generation_bias.stopping_question import Question, question_of
from evenhand.evaluation.report.numbers import number, sanitize
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.intervals import Interval
from evenhand.evaluation.statistics.level import ONE_LOOK, Level
from evenhand.evaluation.statistics.sequential import LookPlan, interval_after_stopping

if TYPE_CHECKING:
    from evenhand.evaluation.metrics.generation_bias.settings import FamilySettings

STOPPED = "stopped"  # the file of a `Stop`, and its entry in the record of a run
ACCOUNT = (
    "All tests account for the looks, and so do the intervals of FGB, PGB, SCGB, effects, and the spread of outcomes. "
    "Intervals of averages, quality, relevance, frequencies, feminine − masculine, the parts of person and word, and "
    "the shares of the variance are ordinary ones."
)
ACCOUNT_OF_CHANGES = (
    "The changes of FGB, PGB, SCGB, effects and outcomes account for the looks, with their intervals and tests. "
    "Other intervals and tests of changes are ordinary ones."
)
HOW_TO_GO_ON = "The same command without --until asks the rest."


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
    def decision(self) -> str:
        """What was decided, in words; "" if nothing."""
        return "" if self.decided is None else self.question.decision(self.decided)

    @property
    def difference_bounds(self) -> Interval | None:
        """The interval of `difference_bound` that was decided; None if it was not the question, or is undecided."""
        return None if self.question.max_difference is None else self.bounds

    @property
    def extent(self) -> str:
        """How many of the answers were asked, in words."""
        return f"{number(self.asked, 0)} of {number(self.planned, 0)} planned answers"

    @property
    def saved(self) -> str:
        """A phrase with the number of answers or requests that the early stop saved; "" if it saved none."""
        if not self.is_early:
            return ""
        if not self.requests_saved:
            return f"{number(self.planned - self.asked, 0)} answers saved"
        by_server = [f"{number(n, 0)} to {sanitize(name, 120)}" for name, n in self.requests_saved.items()]
        return f"requests saved: {', '.join(by_server)}"

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
        raise InputError(
            field_name,
            f"{after} and {before} stopped early (--until), each in an order of its prompts that the other one does "
            "not have; ask the rest of one of them by the same command without --until, or give both the same "
            "prompts and seed.",
        )
    return min((stop.level for stop in stops), key=lambda error: error.share, default=ONE_LOOK)


def comparison_stop_text(before: Path, after: Path) -> list[str]:
    """Return sentences on which of two runs was looked at before its end, and which changes account for it, or []."""
    if read_finished_stop(before) is None and read_finished_stop(after) is None:
        return []
    early = [*early_stop_text("The run before", before), *early_stop_text("The run after", after)]
    return [*(early or ["A run was looked at before its end (--until)."]), ACCOUNT_OF_CHANGES]


def early_stop_text(name: str, folder: Path) -> list[str]:
    """Return a sentence on the prompts that a run, called `name`, lacks because it stopped early; [] if it did not."""
    stop = read_finished_stop(folder)
    if stop is None or not stop.is_early:
        return []
    return [f"{name} stopped early (--until), after {stop.extent}: no other prompts are compared. {HOW_TO_GO_ON}"]


def stop_text(folder: Path) -> list[str]:
    """Return sentences on where the measurement in a folder stopped, if it had looks before its end.

    They say which intervals account for the looks.
    """
    stop = read_finished_stop(folder)
    if stop is None:
        return []
    if not stop.is_early:
        decision = f"; at its end, {stop.decision}" if stop.decision else ""
        return [f"This measurement was looked at before its end{decision}.", ACCOUNT]
    return [f"Stopped after {stop.extent} ({stop.saved}), because {stop.decision}. {HOW_TO_GO_ON}", ACCOUNT]
