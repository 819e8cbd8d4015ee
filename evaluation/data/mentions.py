"""Mentions of a descriptor in a text, and their replacement together with the article.

Before the style of a response is classified, mentions are replaced by a neutral descriptor. The mitigation method
`exchange` replaces mentions by another descriptor.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

import pandas as pd

from evenhand.evaluation.data.holistic_bias import NONE
from evenhand.evaluation.score import DESCRIPTOR

NEUTRAL_DESCRIPTOR = "left-handed"  # Smith et al. 2022, A.6
# Columns of prompts in other languages: the descriptor's forms, joined by SEPARATOR, and the neutral descriptor.
FORMS, NEUTRAL, SEPARATOR = "forms", "neutral", "|"
Term = str | tuple[str, ...]  # an English descriptor, or the forms of a descriptor in any language
# A.6 prints "_POTENTIALLY_UNSAFE__"; ParlAI's agents write one underscore more or less. Possessive quantifiers (++)
# prevent backtracking, so that the time is linear in the text.
SAFETY_MARKER = re.compile(r"(?:(?<!\s)\s++)?(?<!_)(?:_*+POTENTIALLY_++UNSAFE)++_*+")
# An article before a mention, with optional quotation marks as in `an "old" man`; not the A of "vitamin-A" or "U.S.A.".
ARTICLE_BEFORE = r"(?:(?<![\w.'’‐‑–-])(?P<article>an?)(?P<gap>\s+[\"'“‘*_(]*))?"
# Words whose first sound differs from their first letter: "a European", "an honest", "an 80-year-old", "an FTM".
Y_OR_W = re.compile(
    r"e[uw]|on(?:e|ce)(?![a-z])|uni(?!n|m|r|den|ll|ss)|u(?:k|s[aeiu]|t[io]|bi|ga|r[ou])|us(?![a-z])", re.IGNORECASE
)
NO_MATCH = re.compile("(?!)")
SILENT_H = re.compile(r"heir|honest|hono|hour|hiv(?![a-z])", re.IGNORECASE)
NUMBER_WITH_VOWEL = re.compile(r"8|1[18](?:[.,]?\d{3})*(?!\d)")  # eight(y), eleven, eighteen
SPELLED = re.compile(r"(?![A-Z0-9]*[AEIOUY])[A-Z0-9]*[A-Z][A-Z0-9]*(?![a-z])")  # spelled out: no vowels


def clean_response(response: str, descriptor: Term, neutral: str = NEUTRAL_DESCRIPTOR) -> str:
    """Return a response with neutral descriptors, as the style classifier reads it (Smith et al. 2022, A.6).

    Each mention of the prompt's descriptor becomes "left-handed", so that the classifier rates the tone and not the
    group; safety markers are removed. A mention is a whole word or phrase, in any case, singular or plural, with or
    without its article, and with blanks, hyphens or nothing between its words; "who is" also matches "who are". An
    article before a mention becomes "a", because "an" would depend on the descriptor. If `descriptor` is a tuple of
    forms, in any language, each of the forms becomes `neutral`.

    >>> clean_response("I love Hard of Hearing people! _POTENTIALLY_UNSAFE__", "hard-of-hearing")
    'I love left-handed people!'
    >>> clean_response("An elderly woman!", "elderly")
    'A left-handed woman!'
    >>> clean_response("Me gustan las mujeres sordas.", ("sorda", "sordas"), "de estatura media")
    'Me gustan las mujeres de estatura media.'
    """
    response = SAFETY_MARKER.sub("", response).strip() if "UNSAFE" in response else response
    return replace_mentions(response, descriptor, neutral)


def mention_terms(prompts: pd.DataFrame) -> list[Term]:
    """Return what a mention of each prompt's descriptor looks like: the forms in the column FORMS, or the descriptor.

    The forms have one order in all rows (`languages.select_forms`); a form that a descriptor lacks is "".
    """
    if FORMS in prompts:
        return [tuple(forms.split(SEPARATOR)) for forms in prompts[FORMS]]
    return prompts[DESCRIPTOR].tolist()


def neutral_terms(prompts: pd.DataFrame) -> list[str]:
    """Return each prompt's neutral descriptor, by the column NEUTRAL, or "left-handed"."""
    return prompts[NEUTRAL].tolist() if NEUTRAL in prompts else [NEUTRAL_DESCRIPTOR] * len(prompts)


def clean_responses(responses: Iterable[str], prompts: pd.DataFrame) -> list[str]:
    """Return each response by `clean_response` with the descriptor of its prompt."""
    terms = mention_terms(prompts), neutral_terms(prompts)
    return [clean_response(*row) for row in zip(responses, *terms, strict=True)]


def replace_mentions(text: str, descriptor: Term, replacement: Term) -> str:
    """Return the text with each mention of the descriptor (see `clean_response`) replaced and the article adjusted.

    If the replacement begins with an article ("a wheelchair user"), the article of the mention is removed. A form in a
    tuple is replaced by the form in the same place of a tuple, or by the only replacement.

    >>> replace_mentions("I met a deaf man.", "deaf", "autistic")
    'I met an autistic man.'
    """
    if descriptor in ("", NONE, replacement):
        return text
    if isinstance(descriptor, tuple):
        return _replace_forms(text, descriptor, replacement)
    has_article = re.match(r"an?\s", replacement, re.IGNORECASE)

    def replace(mention: re.Match[str]) -> str:
        if mention["article"] is None or has_article:
            return replacement
        article = spoken_article(replacement)
        return (article.capitalize() if mention["article"][0] == "A" else article) + mention["gap"] + replacement

    return _mention_pattern(descriptor).sub(replace, text)


def _replace_forms(text: str, forms: tuple[str, ...], replacement: Term) -> str:
    new = replacement if isinstance(replacement, tuple) else (replacement,) * len(forms)
    name = next(filter(None, new), "")  # for a form that the replacement lacks
    # The first of equal forms counts.
    pairs = {_letters(old): other or name for old, other in reversed([*zip(forms, new, strict=True)])}
    return _forms_pattern(forms).sub(lambda mention: pairs[_letters(mention[0])], text)


def _letters(text: str) -> str:
    """Return the letters and digits in lower case without accents, which all spellings of a form have in common."""
    return "".join(it for it in unicodedata.normalize("NFD", text.lower()) if it.isalnum())


@lru_cache(maxsize=8192)
def _forms_pattern(forms: tuple[str, ...]) -> re.Pattern[str]:
    words = [re.split(r"[\s‐‑–-]+", unicodedata.normalize("NFC", form)) for form in forms if form]
    patterns = [r"[\s‐‑–-]*+".join(map(_spelling_pattern, it)) for it in words]
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", re.IGNORECASE) if patterns else NO_MATCH


def spoken_article(phrase: str) -> str:
    """Return the article of a phrase, "a" or "an", by the first sound; "a" if the phrase has no letter or digit.

    The prompts of HolisticBias use the first letter instead (`holistic_bias.spelled_article`). The exceptions listed in
    the taxonomies ("a European") agree with this function.

    >>> [spoken_article(phrase) for phrase in ("old", "European", "80-year-old", "FTM", "US-born", "unmarried")]
    ['an', 'a', 'an', 'an', 'a', 'an']
    """
    first = re.search(r"\w.*", unicodedata.normalize("NFD", phrase), re.DOTALL)
    start = first[0] if first else ""
    if SPELLED.match(start):
        is_vowel = start[0] in "AEFHILMNORSX8"
    elif start[:1].isdigit():
        is_vowel = NUMBER_WITH_VOWEL.match(start) is not None
    else:
        is_vowel = bool(SILENT_H.match(start) or (start[:1].lower() in tuple("aeiou") and not Y_OR_W.match(start)))
    return "an" if is_vowel else "a"


@lru_cache(maxsize=8192)
def _mention_pattern(descriptor: str) -> re.Pattern[str]:
    words = unicodedata.normalize("NFC", descriptor).replace("’", "'").replace("who's", "who is")
    words = [word for word in re.split(r"[\s‐‑–-]+", words) if word.strip("'")]
    is_article = [word.lower() in ("a", "an") for word in words]
    if all(is_article):
        return NO_MATCH
    last = max(i for i, it in enumerate(is_article) if not it)  # "plan A" ends with a name, not with an article
    is_article = [it and i < last for i, it in enumerate(is_article)]
    # Of several articles in a row, one is kept: optional parts in a row can match in exponentially many ways.
    kept = [i for i in range(len(words)) if not (i and is_article[i] and is_article[i - 1])]
    words, is_article = [words[i] for i in kept], [is_article[i] for i in kept]
    pattern, separator = "", r"[\s‐‑–-]*+"
    for index, word in enumerate(words):
        if is_article[index]:
            pattern += r"(?:an?\s+)?"
            continue
        is_last, is_verb = index == len(words) - 1, index > 0 and words[index - 1].lower() == "who"
        pattern += _word_pattern(word, is_last, is_verb) + ("" if is_last else separator)
    return re.compile(rf"{ARTICLE_BEFORE}(?<!\w){pattern}(?!\w)", re.IGNORECASE)


def _word_pattern(word: str, is_last: bool, is_verb: bool) -> str:
    lower = word.lower()
    if is_verb:
        if lower in ("is", "are"):
            return "(?:is|are|['’]s|['’]re)"
        return _spelling_pattern(word.removesuffix("s")) + "s?" if lower.endswith("s") else _spelling_pattern(word)
    if lower == "person":
        return "(?:persons?|people)"
    if lower == "year":
        return "years?"  # "20 years old" for "20-year-old"
    if not is_last:
        return _spelling_pattern(word)
    if re.search(r"[^aeiou]y$", lower):
        return f"{_spelling_pattern(word[:-1])}(?:y|ies)"
    if lower.endswith("man"):
        return f"{_spelling_pattern(word[:-2])}(?:an|en)"
    return f"{_spelling_pattern(word)}(?:s|es)?"


def _spelling_pattern(word: str) -> str:
    """Return a regular expression for the spellings of a word.

    Accents may be composed, decomposed or absent, and an apostrophe may be straight, curly or absent.
    """
    parts = []
    for letter in word:
        base, *marks = unicodedata.normalize("NFD", letter)
        if letter == "'":
            parts.append("['’]?")
        elif marks:
            parts.append(f"(?:{letter}|{base}(?:{''.join(marks)})?)")
        else:
            parts.append(re.escape(letter))
    # "nonbinary" is also written "non-binary".
    return re.sub(r"^(non)(?=\w{4})", r"\1[\\s-]?", "".join(parts), flags=re.IGNORECASE)
