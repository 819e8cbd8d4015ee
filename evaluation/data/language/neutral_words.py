"""Neutral descriptors by language, which replace the mentions in a text before its style is classified."""

import re
from functools import lru_cache
from pathlib import Path

from evenhand.evaluation.data.language.word_forms import (
    ARABIC,
    CYRILLIC,
    ENGLISH,
    GREEK,
    HANGUL,
    HEBREW,
    is_in,
    is_latin,
    text_language,
)
from evenhand.evaluation.files import load_yaml

FILES = Path(__file__).resolve().parents[1] / "files"
NEUTRAL_WORDS = FILES / "neutral_words.yaml"
NEUTRAL_DESCRIPTOR = "left-handed"  # Smith et al. 2022, A.6
HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
KANA = "\u3040-\u30ff"
THAI = "\u0e00-\u0e7f"
DEVANAGARI = "\u0900-\u097f"
PERSIAN_LETTERS = "پچژگ"
URDU_LETTERS = "ٹڈڑںے"
UKRAINIAN_LETTERS = "іїєґ"
# The endings of adjectives that a neutral descriptor takes over from a mention.
ENDINGS = {"de": r"e[nmrs]?$", "nl": r"e$", "sv": r"a$"}
THAI_PERSONS = ("คน", "ผู้")  # the beginnings of nouns for people
# Particles that follow a consonant and a vowel.
KOREAN_PARTICLES = (("은", "는"), ("이", "가"), ("을", "를"), ("과", "와"))


@lru_cache(maxsize=1)
def neutral_words() -> dict[str, str]:
    """Return the neutral descriptor of each language by its code: of the shipped list and of the language packs."""
    words = dict(load_yaml(NEUTRAL_WORDS.read_text(encoding="utf-8")))
    for pack in sorted(FILES.glob("languages/*/pack.yaml")):
        words[pack.parent.name] = load_yaml(pack.read_text(encoding="utf-8"))["neutral"]
    return words


def language_of(text: str, word: str) -> str:
    """Return the language of a word in a text: by the word's script, or, in Latin script, by the text's words.

    Scripts of several languages count as the most common of those with a neutral descriptor. A language that is not
    known counts as English.

    >>> language_of("The word is 聋人.", "聋人"), language_of("Das ist nicht gut.", "blind")
    ('zh', 'de')
    """
    if is_latin(word):
        return text_language(text) or ENGLISH
    has_kana = is_in(text, KANA)
    if is_in(word, KANA) or (is_in(word, HAN) and has_kana):
        return "ja"
    if is_in(word, ARABIC):
        is_persian = is_in(text, PERSIAN_LETTERS) and not is_in(text, URDU_LETTERS)
        return "fa" if is_persian else "ar"
    if is_in(word, CYRILLIC):
        return "uk" if is_in(text.lower(), UKRAINIAN_LETTERS) else "ru"
    scripts = {HAN: "zh", HANGUL: "ko", THAI: "th", GREEK: "el", HEBREW: "he", DEVANAGARI: "hi"}
    return next((language for script, language in scripts.items() if is_in(word, script)), ENGLISH)


def neutral_word(language: str, mention: str) -> str:
    """Return the neutral descriptor of a language in place of a mention, with the mention's ending and capital.

    A language without a neutral descriptor gets the English one.

    >>> neutral_word("de", "Blinder"), neutral_word("es", "sordas"), neutral_word("en", "Deaf")
    ('Linkshändiger', 'de estatura media', 'left-handed')
    """
    word = neutral_words().get(language, NEUTRAL_DESCRIPTOR)
    if language == "th":
        return next((start for start in THAI_PERSONS if mention.startswith(start)), "") + word
    if language not in ENDINGS:
        return word
    ending = re.search(ENDINGS[language], mention)
    if ending is not None:
        word += ending[0]
    return word.capitalize() if mention[:1].isupper() else word


def agreeing_particle(word: str, particle: str) -> str:
    """Return a Korean particle in the form that follows a word: by whether the word ends in a consonant.

    >>> agreeing_particle("왼손잡이", "을")
    '를'
    """
    has_final_consonant = (ord(word[-1]) - ord("가")) % 28 > 0
    for after_consonant, after_vowel in KOREAN_PARTICLES:
        if particle in (after_consonant, after_vowel):
            return after_consonant if has_final_consonant else after_vowel
    return particle
