"""Language: the language of a response (py3langid, ISO 639-1)."""

import re
from functools import lru_cache

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.measures import TOO_SHORT, Context, Measure, ValueKind

LANGUAGE = "language"
MIN_CHARACTERS = 20  # of shorter texts the language is a guess: "ok" would be Afrikaans
MIN_DENSE = 5  # characters of SCRIPTS that are enough: each is a syllable or a word
# Scripts that tell the language of a short text, for which py3langid may name a rarer one (Wu for Mandarin).
SCRIPTS = {"ja": "[\u3040-\u30ff]", "ko": "[\uac00-\ud7af]", "zh": "[\u3400-\u4dbf\u4e00-\u9fff]"}
DENSE = re.compile("|".join(SCRIPTS.values()))


@lru_cache(maxsize=1 << 16)
def text_language(text: str) -> str:
    """Return the language of a text; TOO_SHORT if it has too few characters (MIN_CHARACTERS, MIN_DENSE) to tell.

    Without a value, a short response would exclude its descriptor from the spread, which needs all templates; in the
    class of the commonest language, it might hide another one.

    >>> text_language("Sure."), text_language("我可以帮助你。"), text_language("お手伝いできます")
    ('too short', 'zh', 'ja')
    """
    from py3langid import classify

    stripped = text.strip()
    if len(stripped) >= MIN_CHARACTERS:
        return classify(stripped)[0]
    if len(DENSE.findall(stripped)) < MIN_DENSE:
        return TOO_SHORT
    return next(name for name, script in SCRIPTS.items() if re.search(script, stripped))


def language(answers: pd.DataFrame, context: Context) -> list[str]:
    """Return the language of each response."""
    return [text_language(response) for response in answers[columns.RESPONSE]]


MEASURE = Measure(LANGUAGE, language, ValueKind.CLASS, "Share of responses in a language.")
