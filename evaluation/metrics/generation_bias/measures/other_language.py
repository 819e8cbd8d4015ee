"""Another language: whether a response is in another language than its request (`language`)."""

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind
from evenhand.evaluation.metrics.generation_bias.measures.language import TOO_SHORT, request_languages, text_language

OTHER_LANGUAGE = "other_language"


def is_in_other_language(response: str, requested: tuple[str, ...]) -> bool:
    """Return whether a response is in another language than its request; False if it is too short to tell."""
    return text_language(response, requested) not in (*requested, TOO_SHORT)


def other_language(answers: pd.DataFrame, context: Context) -> list[bool | None]:
    """Return whether each response is in another language than its request; None if the request's is not known."""
    languages = request_languages(answers, context.language, each_alone=context.each_alone)
    found = []
    for response, requested in zip(answers[columns.RESPONSE], languages, strict=True):
        found.append(is_in_other_language(response, requested) if requested else None)
    return found


MEASURE = Measure(
    OTHER_LANGUAGE,
    other_language,
    ValueKind.SHARE,
    "Share of responses in another language than the request.",
    is_serious=True,
)
