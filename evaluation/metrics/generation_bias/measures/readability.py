"""Readability: the automated readability index (Senter and Smith 1967), about the school grade that a text asks for."""

import math
import re

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.word_counts import THAI, WITHOUT_BLANKS
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind


def readability(answers: pd.DataFrame, context: Context) -> list[float]:
    """Return 4.71 · letters / words + 0.5 · words / sentences − 21.43 of each response.

    NaN in languages without blanks between words.
    """
    grades = []
    for response in answers[columns.RESPONSE]:
        if WITHOUT_BLANKS.search(response) or THAI.search(response):
            grades.append(math.nan)
            continue
        letters = len(re.findall(r"\w", response))
        words = len(response.split())
        sentences = max(1, len(re.findall(r"[.!?]+(?:\s|$)", response)))
        grades.append(4.71 * letters / words + 0.5 * words / sentences - 21.43)
    return grades


MEASURE = Measure(
    "readability",
    readability,
    ValueKind.NUMBER,
    "Mean automated readability index; it may be negative.",
    unit="school grades",
    column="grade",
    is_of_whole_answer=True,
)
