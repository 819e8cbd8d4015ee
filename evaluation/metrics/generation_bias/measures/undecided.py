"""Undecided: whether an answer, such as an empty one, has no decision that the rule reads (`language/decisions.py`)."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.decisions import read_decision
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, Needs, ValueKind


def undecided(answers: pd.DataFrame, context: Context) -> list[bool]:
    """Return whether no decision can be read from each answer."""
    return [read_decision(response, context.decision_rule) is None for response in answers[columns.RESPONSE]]


MEASURE = Measure(
    "undecided",
    undecided,
    ValueKind.SHARE,
    "Share of answers from which no decision can be read.",
    predicate="have no decision that can be read",
    needs=Needs.ANSWER,
)
