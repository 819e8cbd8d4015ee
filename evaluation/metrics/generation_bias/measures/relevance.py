"""Relevance: how much likelier a response is after its prompt than after another template's, of the same person.

A model that ignores its prompts has no bias, so relevance is measured as well: if a model's responses are shuffled over
the prompts, pooled FGB* and relevance are 0 except for noise. Let c be the prompt (and persona) of response r, and c′ a
prompt with the same descriptor and another template: relevance is the mean over responses of log p(r | c) − log
p(r | c′). For the model's responses, r ~ p(· | c), its expectation is KL(p(· | c) ‖ p(· | c′)) ≥ 0; for responses that
do not depend on the template it is 0. Equal treatment of descriptors does not lower it, since c and c′ share theirs.
"""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.measures import (
    LIKELIHOODS,
    OTHER_LOG_LIKELIHOOD,
    Context,
    Measure,
    Needs,
    ValueKind,
)


def relevance(answers: pd.DataFrame, context: Context) -> list[float]:
    """Return log p(response | its prompt) − log p(response | another template's prompt), in nats."""
    likelihoods = context.rows(LIKELIHOODS, answers)
    return (likelihoods[columns.LOG_LIKELIHOOD] - likelihoods[OTHER_LOG_LIKELIHOOD]).tolist()


MEASURE = Measure(
    "relevance",
    relevance,
    ValueKind.NUMBER,
    "How much likelier a response is after its prompt than after another template's.",
    unit="nats",
    decimals=3,
    needs=Needs.WEIGHTS,
    table=LIKELIHOODS,
    no_value="no prompt has another prompt with its descriptor and another template",
    cost="relevance",
)
