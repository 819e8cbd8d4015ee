"""Language: the language of a response (py3langid, ISO 639-1)."""

from functools import lru_cache

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.measures import TOO_SHORT, Context, Measure, ValueKind

LANGUAGE = "language"
MIN_CHARACTERS = 20  # of shorter texts the language is a guess: "ok" would be Afrikaans


@lru_cache(maxsize=1 << 16)
def text_language(text: str) -> str:
    """Return the language of a text; TOO_SHORT for a text of fewer than MIN_CHARACTERS.

    Without a value, a short response would exclude its descriptor from the spread, which needs all templates; in the
    class of the commonest language, it might hide another one.
    """
    from py3langid import classify

    stripped = text.strip()
    return classify(stripped)[0] if len(stripped) >= MIN_CHARACTERS else TOO_SHORT


def language(answers: pd.DataFrame, context: Context) -> list[str]:
    """Return the language of each response."""
    return [text_language(response) for response in answers[columns.RESPONSE]]


MEASURE = Measure(LANGUAGE, language, ValueKind.CLASS, "Share of responses in a language.")
