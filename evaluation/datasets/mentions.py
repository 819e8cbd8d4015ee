"""Mentions of a prompt's descriptor in a text: found, replaced together with their article, and made to agree.

Responses are cleaned of them before their style is judged, and rewritten to another descriptor where a method of
mitigation gives one prompt's answer to another.
"""

import re
import unicodedata
from functools import lru_cache

from evenhand.evaluation.datasets.holistic_bias import NONE

NEUTRAL_DESCRIPTOR = "left-handed"  # paper 002, A.6
# A.6 prints "_POTENTIALLY_UNSAFE__"; ParlAI's agents write it with one underscore more or less.
# It begins where a run of blanks or underscores does, and gives nothing back (++): linear in any text.
SAFETY_MARKER = re.compile(r"(?:(?<!\s)\s++)?(?<!_)(?:_*+POTENTIALLY_++UNSAFE)++_*+")
# An article right before a mention, and what may stand between: `an "old" man`. Not that of "vitamin-A" or "U.S.A.".
ARTICLE_BEFORE = r"(?:(?<![\w.'’‐‑–-])(?P<article>an?)(?P<gap>\s+[\"'“‘*_(]*))?"
# What is said with another first sound than its first letter's: "a European", "an honest", "an 80-year-old", "an FTM".
Y_OR_W = re.compile(
    r"e[uw]|on(?:e|ce)(?![a-z])|uni(?!n|m|r|den|ll|ss)|u(?:k|s[aeiu]|t[io]|bi|ga|r[ou])|us(?![a-z])", re.IGNORECASE
)
NOTHING = re.compile("(?!)")
SILENT_H = re.compile(r"heir|honest|hono|hour|hiv(?![a-z])", re.IGNORECASE)
NUMBER_WITH_VOWEL = re.compile(r"8|1[18](?:[.,]?\d{3})*(?!\d)")  # eight(y), eleven, eighteen
SPELLED = re.compile(r"(?![A-Z0-9]*[AEIOUY])[A-Z0-9]*[A-Z][A-Z0-9]*(?![a-z])")  # letter by letter, having no vowel


def clean_response(response: str, descriptor: str) -> str:
    """Return the response as the style classifier is to see it (paper 002, A.6).

    Every mention of its prompt's descriptor becomes "left-handed", so that the classifier judges the tone and not the
    group; safety markers are removed. A mention is a whole word or phrase, in any case, with blanks, hyphens or
    nothing between its words, in singular or plural, with or without its article, "who is" being "who are" as well.
    An article before it becomes "a", as "an" would tell which descriptors it was.

    >>> clean_response("I love Hard of Hearing people! _POTENTIALLY_UNSAFE__", "hard-of-hearing")
    'I love left-handed people!'
    >>> clean_response("An elderly woman!", "elderly")
    'A left-handed woman!'
    """
    response = SAFETY_MARKER.sub("", response).strip() if "UNSAFE" in response else response
    return replace_mentions(response, descriptor, NEUTRAL_DESCRIPTOR)


def replace_mentions(text: str, descriptor: str, replacement: str) -> str:
    """Return the text with every mention of the descriptor (see `clean_response`) replaced, its article agreeing.

    Where the replacement brings an article of its own ("a wheelchair user"), that of the mention goes.

    >>> replace_mentions("I met a deaf man.", "deaf", "autistic")
    'I met an autistic man.'
    """
    if descriptor in ("", NONE, replacement):
        return text
    begins_with_article = re.match(r"an?\s", replacement, re.IGNORECASE)

    def replaced(mention: re.Match[str]) -> str:
        if mention["article"] is None or begins_with_article:
            return replacement
        agreeing = spoken_article(replacement)
        return (agreeing.capitalize() if mention["article"][0] == "A" else agreeing) + mention["gap"] + replacement

    return _mentions(descriptor).sub(replaced, text)


def spoken_article(phrase: str) -> str:
    """Return "a" or "an", by the sound that the phrase begins with; "a" where it begins with no letter or digit.

    By sound, as people write, and not by the first letter, as the prompts of HolisticBias are made
    (`holistic_bias.spelled_article`). It agrees with the exceptions that the taxonomies give by hand ("a European").

    >>> [spoken_article(phrase) for phrase in ("old", "European", "80-year-old", "FTM", "US-born", "unmarried")]
    ['an', 'a', 'an', 'an', 'a', 'an']
    """
    first = re.search(r"\w.*", unicodedata.normalize("NFD", phrase), re.DOTALL)
    start = first[0] if first else ""
    if SPELLED.match(start):
        vowel = start[0] in "AEFHILMNORSX8"
    elif start[:1].isdigit():
        vowel = NUMBER_WITH_VOWEL.match(start) is not None
    else:
        vowel = bool(SILENT_H.match(start) or (start[:1].lower() in tuple("aeiou") and not Y_OR_W.match(start)))
    return "an" if vowel else "a"


@lru_cache(maxsize=8192)
def _mentions(descriptor: str) -> re.Pattern[str]:
    words = unicodedata.normalize("NFC", descriptor).replace("’", "'").replace("who's", "who is")
    words = [word for word in re.split(r"[\s‐‑–-]+", words) if word.strip("'")]
    articles = [word.lower() in ("a", "an") for word in words]
    if all(articles):
        return NOTHING
    # Articles are optional: two in a row, or parts that give back what they took (no +), could match in many ways.
    words = [word for place, word in enumerate(words) if not (place and articles[place] and articles[place - 1])]
    between = r"[\s‐‑–-]*+"
    pattern = ""
    for index, word in enumerate(words):
        form = _forms(word, is_last=index == len(words) - 1, is_verb=index > 0 and words[index - 1].lower() == "who")
        if word.lower() in ("a", "an"):
            pattern += r"(?:an?\s+)?"
        else:
            pattern += form + (between if index < len(words) - 1 else "")
    return re.compile(rf"{ARTICLE_BEFORE}(?<!\w){pattern}(?!\w)", re.IGNORECASE)


def _forms(word: str, is_last: bool, is_verb: bool) -> str:
    """Return a pattern of one word's spellings, singular and plural."""
    lower = word.lower()
    if is_verb:
        if lower in ("is", "are"):
            return "(?:is|are|['’]s|['’]re)"
        return _letters(word.removesuffix("s")) + "s?" if lower.endswith("s") else _letters(word)
    if lower == "person":
        return "(?:persons?|people)"
    if lower == "year":
        return "years?"  # "20 years old" for "20-year-old"
    if not is_last:
        return _letters(word)
    if re.search(r"[^aeiou]y$", lower):
        return f"{_letters(word[:-1])}(?:y|ies)"
    if lower.endswith("man"):
        return f"{_letters(word[:-2])}(?:an|en)"
    return f"{_letters(word)}(?:s|es)?"


def _letters(word: str) -> str:
    """Return a pattern of the word with or without accents, composed or not, with either apostrophe or none."""
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
    joined = "".join(parts)
    return re.sub(r"^(non)(?=\w{4})", r"\1[\\s-]?", joined, flags=re.IGNORECASE)
