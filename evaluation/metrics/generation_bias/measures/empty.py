"""Empty: whether an answer has no text, though no filter withheld it; it is measured if an answer is empty."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.answers import FILTER_REASONS
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, Needs, ValueKind

EMPTY = "empty"


def empty(answers: pd.DataFrame, context: Context) -> list[bool]:
    """Return whether each answer has no text for another reason than a filter of the provider."""
    has_no_text = answers[columns.RESPONSE].str.strip() == ""
    if columns.LEFT_OUT in answers:
        has_no_text &= ~answers[columns.LEFT_OUT].isin(FILTER_REASONS)
    return has_no_text.tolist()


MEASURE = Measure(
    EMPTY,
    empty,
    ValueKind.SHARE,
    "Share of answers without a text, apart from those that the provider withheld.",
    predicate="have no text",
    is_serious=True,
    needs=Needs.NOTHING,
    ideal=0.0,
    cost="empty_share",
)
