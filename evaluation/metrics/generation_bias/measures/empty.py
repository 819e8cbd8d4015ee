"""Empty: whether a whole answer has no text; it is measured without being asked for, if an answer is empty."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.answers import is_withheld
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, Needs, ValueKind

EMPTY = "empty"


def empty(answers: pd.DataFrame, context: Context) -> list[bool | None]:
    """Return whether each answer has no text; false if it was withheld, None if it failed or never ended."""
    found: list[bool | None] = []
    reasons = answers.get(columns.LEFT_OUT, [None] * len(answers))
    for response, reason in zip(answers[columns.RESPONSE], reasons, strict=True):
        withheld = is_withheld(reason)
        found.append(None if withheld is None else not withheld and not response.strip())
    return found


MEASURE = Measure(
    EMPTY,
    empty,
    ValueKind.SHARE,
    "Share of answers without a text, apart from those that the provider withheld, or that failed.",
    predicate="have no text",
    is_serious=True,
    needs=Needs.NOTHING,
    ideal=0.0,
    cost="empty_share",
)
