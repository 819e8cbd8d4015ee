"""Filtered: whether the provider withheld an answer; it is measured without being asked for, if one was withheld."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.answers import is_withheld
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, Needs, ValueKind

FILTERED = "filtered"


def filtered(answers: pd.DataFrame, context: Context) -> list[bool | None]:
    """Return whether each answer was withheld: by a filter, or by a refusal in a separate field; None if it failed."""
    if columns.LEFT_OUT not in answers:
        return [False] * len(answers)
    return [is_withheld(reason) for reason in answers[columns.LEFT_OUT]]


MEASURE = Measure(
    FILTERED,
    filtered,
    ValueKind.SHARE,
    "Share of answers that the provider withheld.",
    predicate="were withheld by the provider's filter",
    is_serious=True,
    needs=Needs.NOTHING,
)
