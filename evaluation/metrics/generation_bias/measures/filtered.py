"""Filtered: whether the provider withheld an answer; it is measured without being asked for, if one was withheld."""

import pandas as pd

from evenhand.evaluation.data.answers import is_withheld
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, Needs, ValueKind
from evenhand.evaluation.score import LEFT_OUT

FILTERED = "filtered"


def filtered(answers: pd.DataFrame, context: Context) -> list[bool | None]:
    """Return whether each answer was withheld: by a filter, or by a refusal in a separate field; None if it failed."""
    if LEFT_OUT not in answers:
        return [False] * len(answers)
    return [is_withheld(reason) for reason in answers[LEFT_OUT]]


MEASURE = Measure(
    FILTERED,
    filtered,
    ValueKind.SHARE,
    "Share of answers that the provider withheld.",
    predicate="were withheld by the provider's filter",
    is_serious=True,
    needs=Needs.NOTHING,
)
