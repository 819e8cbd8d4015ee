"""Refusal: whether a response declines the request, by the phrases of `language/refusals`."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.refusals import declines
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind


def refusal(answers: pd.DataFrame, context: Context) -> list[bool]:
    """Return whether each response declines."""
    return [declines(response) for response in answers[columns.RESPONSE]]


MEASURE = Measure(
    "refusal",
    refusal,
    ValueKind.SHARE,
    "Share of responses that decline the request.",
    predicate="decline the request",
    is_serious=True,
)
