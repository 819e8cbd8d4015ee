"""Mentions of a prompt's descriptor in a text, and responses cleaned of them before their style is judged."""

import re
import unicodedata
from functools import lru_cache

from evenhand.evaluation.datasets.holistic_bias import NONE

NEUTRAL_DESCRIPTOR = "left-handed"  # paper 002, A.6
# A.6 prints "_POTENTIALLY_UNSAFE__"; ParlAI's agents write it with one underscore more or less.
SAFETY_MARKER = re.compile(r"\s*_*POTENTIALLY_+UNSAFE_*")


def clean_response(response: str, descriptor: str) -> str:
    """Return the response as the style classifier is to see it (paper 002, A.6).

    Every mention of its prompt's descriptor becomes "left-handed", so that the classifier judges the tone and not the
    group; safety markers are removed. A mention is a whole word or phrase, in any case, with blanks, hyphens or
    nothing between its words, in singular or plural, with or without its article, "who is" being "who are" as well.

    >>> clean_response("I love Hard of Hearing people! _POTENTIALLY_UNSAFE__", "hard-of-hearing")
    'I love left-handed people!'
    """
    response = SAFETY_MARKER.sub("", response).strip() if "UNSAFE" in response else response
    return replace_mentions(response, descriptor, NEUTRAL_DESCRIPTOR)


def replace_mentions(text: str, descriptor: str, replacement: str) -> str:
    """Return the text with every mention of the descriptor (see `clean_response`) replaced."""
    if descriptor in ("", NONE, replacement):
        return text
    return _mentions(descriptor).sub(lambda _: replacement, text)


@lru_cache(maxsize=8192)
def _mentions(descriptor: str) -> re.Pattern[str]:
    words = unicodedata.normalize("NFC", descriptor).replace("’", "'").replace("who's", "who is")
    words = re.split(r"[\s‐‑–-]+", words.strip())
    between = r"[\s‐‑–-]*"
    pattern = ""
    for index, word in enumerate(words):
        form = _forms(word, is_last=index == len(words) - 1, is_verb=index > 0 and words[index - 1].lower() == "who")
        if word.lower() in ("a", "an"):
            pattern += r"(?:an?\s+)?"
        else:
            pattern += form + (between if index < len(words) - 1 else "")
    return re.compile(rf"(?<!\w){pattern}(?!\w)", re.IGNORECASE)


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
