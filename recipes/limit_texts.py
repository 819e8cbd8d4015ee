"""Results of limits in words, for `check` and `audit`: the families' templates have the sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.evaluation.facts import LimitResult
from evenhand.evaluation.metrics import Family


@dataclass(frozen=True)
class LimitText:
    """The result of a limit as texts: what is limited, whether it holds, what was measured, and details."""

    name: str
    status: str
    text: str
    details: Sequence[str] = ()

    def __str__(self) -> str:
        return "\n  ".join([f"{self.status}: {self.name}", f"Measured: {self.text}", *self.details])


def limit_texts(results: Sequence[LimitResult], family: Family) -> list[LimitText]:
    """Return the results of a family's limits in words."""
    texts = []
    for result in results:
        text = LimitText(
            name=family.sentence(result.limit),
            status=result.status,
            text=family.sentence(result.measured),
            details=[family.sentence(detail) for detail in result.details],
        )
        texts.append(text)
    return texts
