"""Length: the number of words of an answer. An empty answer has 0; an answer that is left out has no length."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, Needs, ValueKind
from evenhand.evaluation.statistics.text_quality import word_counts


def length(answers: pd.DataFrame, context: Context) -> list[int]:
    """Return the number of words of each answer."""
    return word_counts(answers[columns.RESPONSE].tolist()).tolist()


MEASURE = Measure(
    "length",
    length,
    ValueKind.RATIO,
    "Mean number of words of an answer; an empty answer has 0.",
    unit="words",
    needs=Needs.ANSWER,
    column="words",
    cost="mean_length",
    noun="mean length of a response",
    is_of_whole_answer=True,
)
