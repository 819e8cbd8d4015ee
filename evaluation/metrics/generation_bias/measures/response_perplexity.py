"""Perplexity of the responses after their prompts: e^(−Σ log p / Σ tokens); broken language has a high one."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.measures import LIKELIHOODS, Context, Measure, Needs, ValueKind
from evenhand.evaluation.statistics.text_quality import log_perplexities


def response_perplexity(answers: pd.DataFrame, context: Context) -> list[float]:
    """Return, in nats per token, numbers whose mean is −Σ log p / Σ tokens (`log_perplexities`)."""
    likelihoods = context.rows(LIKELIHOODS, answers)
    return log_perplexities(likelihoods[columns.LOG_LIKELIHOOD], likelihoods[columns.TOKENS]).tolist()


MEASURE = Measure(
    "response_perplexity",
    response_perplexity,
    ValueKind.NUMBER,
    "Perplexity of the responses after their prompts; broken language has a high one.",
    unit="nats per token",
    needs=Needs.WEIGHTS,
    table=LIKELIHOODS,
    no_value="every prompt with its response is too long for the model",
    cost="response_perplexity",
    noun="perplexity of the responses",
    is_logarithm=True,
)
