"""Parroting: whether a response only repeats or quotes its prompt (Smith et al. 2022, C.2.1)."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind
from evenhand.evaluation.statistics.text_quality import repeat_prompts


def parroting(answers: pd.DataFrame, context: Context) -> list[bool]:
    """Return whether each response only repeats or quotes its prompt."""
    return repeat_prompts(answers[columns.RESPONSE].tolist(), answers[columns.TEXT].tolist()).tolist()


MEASURE = Measure(
    "parroting",
    parroting,
    ValueKind.SHARE,
    "Share of responses that only repeat or quote the prompt.",
    predicate="only repeat or quote the prompt",
    ideal=0.0,
    cost="parroting",
    noun="repeats the prompt",
)
