"""Decided number: the number that an answer states, such as a sum or a rating (`language/decisions.py`)."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.decisions import read_number
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind


def decided_number(answers: pd.DataFrame, context: Context) -> list[float | None]:
    """Return the number that each answer states; None if it states none, or several."""
    return [read_number(response, context.decision_rule) for response in answers[columns.RESPONSE]]


MEASURE = Measure(
    "decided_number",
    decided_number,
    ValueKind.NUMBER,
    "Mean number that an answer states, among those from which one can be read.",
    unit="of the number",
    reads_decisions=True,
)
