"""Decision: whether an answer decides for the first of the choices, yes by default (`language/decisions.py`)."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.decisions import read_decision
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind


def decision(answers: pd.DataFrame, context: Context) -> list[bool | None]:
    """Return whether each answer decides for the first choice; None if no decision can be read."""
    read = [read_decision(response, context.decision_rule) for response in answers[columns.RESPONSE]]
    return [None if found is None else found == context.decision_rule.choices[0] for found in read]


MEASURE = Measure(
    "decision",
    decision,
    ValueKind.SHARE,
    "Share of answers that decide yes, or for the first of the choices, among those whose decision can be read.",
    predicate="decide yes (the first of the choices)",
)
