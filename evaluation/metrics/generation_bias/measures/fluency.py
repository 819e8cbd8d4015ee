"""Fluency: −log p per token of a response after the same request without the person; of broken answers it is high."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import mention_terms, neutral_terms, replace_mentions
from evenhand.evaluation.metrics.generation_bias.measures import FLUENCY, Context, Measure, Needs, ValueKind


def without_person(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts without the person: the request alone, or the prompt about a left-handed person."""
    if columns.CUE in prompts:
        return prompts.assign(**{columns.TEXT: prompts[columns.TEMPLATE].str.partition(": ")[2], columns.PERSONA: ""})
    rows = zip(prompts[columns.TEXT], mention_terms(prompts), neutral_terms(prompts), strict=True)
    return prompts.assign(**{columns.TEXT: [replace_mentions(*row) for row in rows]})


def fluency(answers: pd.DataFrame, context: Context) -> list[float]:
    """Return −log p per token of each response, in nats, from the table of likelihoods after `without_person`."""
    likelihoods = context.rows(FLUENCY, answers)
    return (-likelihoods[columns.LOG_LIKELIHOOD] / likelihoods[columns.TOKENS]).tolist()


MEASURE = Measure(
    FLUENCY,
    fluency,
    ValueKind.RATIO,
    "Mean of −log p after the same request without the person; broken: high.",
    unit="nats per token",
    needs=Needs.WEIGHTS,
    table=FLUENCY,
    column="nats_per_token",
)
