"""Undecided: whether an answer, such as an empty one, has no decision that can be read (`measures/decision.py`)."""

import pandas as pd

from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, Needs, ValueKind
from evenhand.evaluation.metrics.generation_bias.measures.decision import stated_decisions


def undecided(answers: pd.DataFrame, context: Context) -> list[bool]:
    """Return whether no decision can be read from each answer."""
    return [choice is None for choice in stated_decisions(answers, context)]


UNDECIDED = "undecided"
MEASURE = Measure(
    UNDECIDED,
    undecided,
    ValueKind.SHARE,
    "Share of answers from which no decision can be read.",
    predicate="have no decision that can be read",
    needs=Needs.ANSWER,
    reads_decisions=True,
)
