"""Mention: whether a response names the descriptor of its prompt."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import mention_terms, replace_mentions
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind


def mention(answers: pd.DataFrame, context: Context) -> list[bool]:
    """Return whether each response names the descriptor."""
    terms = mention_terms(answers)
    return [
        replace_mentions(text, term, "") != text for text, term in zip(answers[columns.RESPONSE], terms, strict=True)
    ]


MEASURE = Measure(
    "mention",
    mention,
    ValueKind.SHARE,
    "Share of responses that name the descriptor.",
    predicate="name the descriptor",
)
