"""The question at which a measurement with `until` stops, and the limits between which it is decided."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.runs.record import read_run, run_sha256

if TYPE_CHECKING:
    from evenhand.evaluation.metrics.generation_bias.settings import FamilySettings

DECIDED = "decided"
# The sizes of docs/deciding.md by their upper ends, as shares of answers as if moved to another style.
SIZES = {0.02: "small", 0.05: "medium", math.inf: "large"}


@dataclass(frozen=True)
class Question:
    """The question that a measurement decides before it stops.

    It is about pooled FGB*, unless `max_difference` or `max_rise` is given.

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

        They are limits of pooled FGB*, of `difference_bound`, or of pooled FGB* less (1 + rise) × the baseline's.
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

    def decision(self, decided: int) -> Finding:
        """Return the decision on a range, numbered from 0."""
        is_above = decided > 0
        if self.max_difference is not None:
            return Finding("decided_difference", {"is_above": is_above, "limit": self.max_difference})
        if self.max_rise is not None:
            return Finding("decided_rise", {"is_above": is_above, "limit": self.max_rise})
        if self.until == DECIDED:
            return Finding("decided_size", {"word": list(SIZES.values())[decided]})
        return Finding("decided_limit", {"is_above": is_above, "limit": self.until})


def question_of(settings: "FamilySettings") -> Question | None:
    """Return the question of the settings of generation bias; None if all prompts are asked.

    Raises:
        InputError: the settings do not fit together, or the folder of the baseline has no finished run of `measure`.
    """
    names = ("max_difference", "max_rise", "against")
    present = [name for name in names if getattr(settings, name) is not None]
    if not present:
        return None if settings.until is None else Question(settings.until)
    field_name = f"generation_bias.{present[0]}"
    if settings.until != DECIDED:
        decided = spelled("generation_bias.until", DECIDED)
        raise InputError(field_name, f"until is {settings.until}; give {decided} with it, or leave it out.")
    if present not in (["max_difference"], ["max_rise", "against"]):
        raise InputError(
            field_name,
            f"{' and '.join(present)} is no question; give max_difference alone, or max_rise with `against`.",
        )
    if settings.against is not None:
        _, record = read_run(settings.against, "measure", "generation_bias.against")
        return Question(DECIDED, max_rise=settings.max_rise, against=run_sha256(record))
    if not settings.permutations:
        raise InputError("generation_bias.permutations", "0; whether somebody differs is tested: give some, or 1999.")
    return Question(DECIDED, max_difference=settings.max_difference)


def spread_limits(until: str | float) -> list[float]:
    """Return the limits of pooled FGB* of a setting `until`.

    >>> [round(limit, 4) for limit in (*spread_limits(DECIDED), *spread_limits(10))]
    [0.0008, 0.005, 0.02]
    """
    shares = list(SIZES)[:-1] if isinstance(until, str) else [until / 100]
    return [2 * share**2 for share in shares]
