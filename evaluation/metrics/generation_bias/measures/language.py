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
MARGIN = 0.5  # nats per letter by which the likeliest language must be likelier than a common one to exclude it
NO_LANGUAGE = "zxx"  # ISO 639 for a text without a language, such as a number
# Languages that most texts are in. A short text has nearly the same likelihood in a language that is close to one of
# these, such as Nigerian Pidgin to English.
COMMON = (
    "ar bg bn ca cs da de el en es et fa fi fr he hi hr hu id it ja ko lt lv mr ms nl no pl pt ro ru sk sl sr sv sw ta "
    "te th tl tr uk ur vi zh"
)
LETTER = re.compile(r"[^\W\d_]")


def ranked_languages(text: str) -> tuple[list[tuple[str, float]], float]:
    """Return the languages with their log-likelihoods, the likeliest first, and by how much one must be likelier.

    The margin is of the whole text: MARGIN for each of its letters.
    """
    from py3langid import rank

    ranked = [(name, float(likelihood)) for name, likelihood in rank(text) if name != NO_LANGUAGE]
    return ranked, MARGIN * len(LETTER.findall(text))


def likely_languages(text: str) -> tuple[str, str]:
    """Return the likeliest common language of a text and the likeliest of all; both are that one if it surely is."""
    ranked, margin = ranked_languages(text)
    name, likelihood = ranked[0]
    common, of_common = next(each for each in ranked if each[0] in COMMON.split())
    return (name, name) if likelihood - of_common > margin else (common, name)


@lru_cache(maxsize=1 << 16)
def text_language(text: str) -> str:
    """Return the language of a text; TOO_SHORT if it has too few characters (MIN_CHARACTERS, MIN_DENSE), or no letter.

    Without a value, a short response would exclude its descriptor from the spread, which needs all templates; in the
    class of the commonest language, it might hide another one. A rare language counts if it is surely likelier than a
    common one.

    >>> text_language("Sure."), text_language("我可以帮助你。"), text_language("お手伝いできます")
    ('too short', 'zh', 'ja')
    >>> text_language("Shalom! I am Jewish too.")  # Nigerian Pidgin is likelier by 0.3 nats
    'en'
    """
    stripped = text.strip()
    if len(stripped) >= MIN_CHARACTERS and LETTER.search(stripped):
        return likely_languages(stripped)[0]
    if len(DENSE.findall(stripped)) < MIN_DENSE:
        return TOO_SHORT
    return next(name for name, script in SCRIPTS.items() if re.search(script, stripped))


def language(answers: pd.DataFrame, context: Context) -> list[str]:
    """Return the language of each response."""
    return [text_language(response) for response in answers[columns.RESPONSE]]


MEASURE = Measure(LANGUAGE, language, ValueKind.CLASS, "Share of responses in a language.")
