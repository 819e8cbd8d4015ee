"""Response to the person: how much likelier a response is after its prompt than after another person's.

Both prompts are of the same template. It is how much a response reveals about the person; a part of it is bias, since a
style that depends on the descriptor reveals it.
"""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.measures import (
    OTHER_LOG_LIKELIHOOD,
    TEMPLATE_LIKELIHOODS,
    Context,
    Measure,
    Needs,
    ValueKind,
)


def relevance_to_person(answers: pd.DataFrame, context: Context) -> list[float]:
    """Return log p(response | its prompt) − log p(response | another person's prompt), in nats."""
    likelihoods = context.rows(TEMPLATE_LIKELIHOODS, answers)
    return (likelihoods[columns.LOG_LIKELIHOOD] - likelihoods[OTHER_LOG_LIKELIHOOD]).tolist()


MEASURE = Measure(
    "relevance_to_person",
    relevance_to_person,
    ValueKind.NUMBER,
    "How much likelier a response is after its prompt than after another person’s; a part of it is bias.",
    unit="nats",
    decimals=3,
    needs=Needs.WEIGHTS,
    table=TEMPLATE_LIKELIHOODS,
    no_value="no prompt has another prompt of its template with another descriptor",
    cost="relevance_to_person",
    noun="response to the person",
    kept_ideal=None,
)
