"""Decision: whether an answer decides for the first of the choices, yes by default.

It is read by a rule (`language/decisions.py`), or by a judge (`models/decision_judges.py`).
"""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.decisions import read_decision
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind

DECISION = "decision"
JUDGED = "judged_decisions"  # the table of the decisions that a judge read: prompt_id, and decision or null


def stated_decisions(answers: pd.DataFrame, context: Context) -> list[str | None]:
    """Return the choice that each answer decides for; None if no decision can be read."""
    if JUDGED in context.tables:
        judged = context.rows(JUDGED, answers)[DECISION]
        return [None if pd.isna(choice) else choice for choice in judged]
    return [read_decision(response, context.decision_rule) for response in answers[columns.RESPONSE]]


def decision(answers: pd.DataFrame, context: Context) -> list[bool | None]:
    """Return whether each answer decides for the first choice; None if no decision can be read."""
    first = context.decision_rule.choices[0]
    return [None if choice is None else choice == first for choice in stated_decisions(answers, context)]


MEASURE = Measure(
    DECISION,
    decision,
    ValueKind.SHARE,
    "Share of answers that decide yes, or for the first of the choices, among those whose decision can be read.",
    predicate="decide yes (the first of the choices)",
    reads_decisions=True,
)
