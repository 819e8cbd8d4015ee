"""Likely decision: how likely an answer is to begin with the first choice, among all choices; no answer is sampled."""

import pandas as pd

from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, Needs, ValueKind

LIKELY_DECISION = "likely_decision"
CHOICES = "choice: "  # begins the names of the columns of the table of probabilities
MASS = "any of them"


def likely_decision(answers: pd.DataFrame, context: Context) -> list[float]:
    """Return P(first choice) / Σ P(choice) for each prompt, from the table of the probabilities of the choices."""
    rows = context.rows(LIKELY_DECISION, answers)
    probabilities = rows[[name for name in rows if str(name).startswith(CHOICES)]]
    return (probabilities.iloc[:, 0] / probabilities.sum(axis=1)).tolist()


MEASURE = Measure(
    LIKELY_DECISION,
    likely_decision,
    ValueKind.NUMBER,
    "Mean probability that an answer begins with yes, or the first of the choices, among all choices.",
    unit="of 1",
    needs=Needs.MODEL,
    table=LIKELY_DECISION,
    column="probability_of_first",
    reads_decisions=True,
)
