"""Forms of a word in a text: by its script, and by the language of the text for the endings of Latin script.

These are rules of thumb, not dictionaries: they find common inflections, and leave out what could be another word.
"""

import re
from collections import Counter
from functools import lru_cache

ENGLISH = "en"
# Scripts whose words have no spaces between them: Han, kana, Thai, Lao, Tibetan, Burmese, Khmer.
NO_SPACES = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0e7f\u0e80-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
)
HANGUL = "\uac00-\ud7a3\u1100-\u11ff"
CYRILLIC = "\u0400-\u052f"
GREEK = "\u0370-\u03ff\u1f00-\u1fff"
ARABIC = "\u0600-\u06ff\u0750-\u077f"
HEBREW = "\u0590-\u05ff"
INDIC = "\u0900-\u0dff"
INDIC_SIGNS = "\u0900-\u0903\u093a-\u094f\u0955-\u0957\u0962\u0963\u0980-\u0983\u09bc-\u09cd\u0a3c-\u0a4d\u0abc-\u0acd"
# articles, conjunctions, …
ARABIC_PREFIX = "[وف]?(?:ال|لل|بال|كال|[بكل])?"
HEBREW_PREFIX = "[והבכלמש]{0,2}"
ARABIC_SIGNS = "[\u064b-\u0652\u0670\u0640]*"  # vowel signs, and the stroke that stretches a word
KOREAN_PARTICLES = "은|는|이|가|을|를|의|에|와|과|도|만|인|들|하|한|로|으"
AGREEING_PARTICLES = "은는이가을를과와"  # which depend on the last sound of the word before
# A single Han character is a part of many words: 老 is old, and 老师 a teacher.
AFTER_ONE_HAN = "(?=[人者的族裔性])"
# Words in which few letters of a text decide its language; English comes first in a tie.
STOPWORDS = {
    ENGLISH: "the and is are you your of to that it this with have for not be was can what how my me do i a in an as "
    "at by from but she he they we his her their there has had will would about who so on or if come",
    "de": "der die das und ist nicht ich sie du ein eine einen mit zu auf für von es den dem sich auch wie kann wir",
    "nl": "de het een en niet ik je van dat met voor op zijn ook maar hij zij wij deze",
    "sv": "och att det är en ett jag du inte som för på med av till har den vi",
    "da": "og at det er en et jeg du ikke som for på med af av til har de vi",
    "es": "el la los las que de y es en un una no con para por se lo su muy como más",
    "pt": "o a os as que de e é em um uma não com para por se do da muito como mais você",
    "it": "il lo la gli che di e è un una non con per si sono del della molto come più i",
    "fr": "le la les que de et est un une ne pas avec pour dans des du je vous il elle sont",
    "pl": "i w nie to jest się na z że do jak jestem mam po są dla osób",
    "cs": "a je se na v že to s jak jsem není pro jsou lidé",
    "tr": "ve bir bu için çok ile da de ne değil olan gibi",
    "fi": "ja on ei se että en ole mutta kuin joka ovat",
    "hu": "a az és hogy nem egy is van meg",
}
STOPWORD_LANGUAGES = {
    word: [language for language, words in STOPWORDS.items() if word in words.split()]
    for words in STOPWORDS.values()
    for word in words.split()
}
# The letters that an ending replaces, and the endings, by language.
SCANDINAVIAN = ("[ea]", "(?:a|e|t|n|r|ar|er|or|na|en|et|ne|s)?")
AGGLUTINATIVE = ("", r"\w{0,7}")
SLAVIC = (r"[yaeioáéíýаяоеёиыуюй]{1,2}", r"\w{0,4}")
ENDINGS = {
    "de": ("(?<=..)e[nmrs]?", "(?:e[nmrs]?|s|n|in(?:nen)?)?"),
    "nl": ("(?<=..)e", "(?:e[nr]?|s)?"),
    "sv": SCANDINAVIAN,
    "da": SCANDINAVIAN,
    "es": ("(?:[oae]s?)", "(?:[oae]s?|s)?"),
    "pt": ("(?:[oae]s?)", "(?:[oae]s?|s)?"),
    "it": ("[oaie]", "[oaie]?"),
    "fr": ("(?:e?s?)", "(?:e?s|e|x)?"),
    "pl": SLAVIC,
    "cs": SLAVIC,
    "tr": AGGLUTINATIVE,
    "fi": ("[aeiouyäö]", r"\w{0,7}"),
    "hu": AGGLUTINATIVE,
}
CYRILLIC_ENDINGS = (  # of adjectives and nouns in Russian and Ukrainian
    "(?:[ыиоі]й|[аяоеыиу]я|[оеыи]е|[оеі]ї|[оеь]го|[оеь]му|[ыиоеі]м|ую|[ыиі]х|[ыи]ми|ою|ею|[оеі]в|[ао]ві|[ая]м|[ая]ми|[ая]х"
    "|[аяуюеиыоьіїєй])?"
)
CONTRACTED = re.compile(r"(?<=\w)['’](?:s|t|d|m|re|ve|ll)(?!\w)")  # "she's": its s is no word, as it is in Czech
MIN_STEM = 4  # letters of a word that takes any ending


@lru_cache(maxsize=4096)
def text_language(text: str) -> str | None:
    """Return the language of a text by the number of its words in STOPWORDS; None if they do not tell.

    >>> text_language("Die blinden Menschen sind nicht allein, und das ist gut.")
    'de'
    """
    found: Counter[str] = Counter()
    for word in set(re.findall(r"(?<![\w-])[^\W\d_]+(?![\w-])", CONTRACTED.sub(" ", text.lower()))):
        found.update(STOPWORD_LANGUAGES.get(word, ()))
    if not found:
        return None
    most = max(found.values())
    best = [language for language in STOPWORDS if found[language] == most]
    return best[0] if most > 1 and (len(best) == 1 or best[0] == ENGLISH) else None


def is_in(word: str, script: str) -> bool:
    """Return whether a word contains a letter of a script. `script` is a range of characters, such as "а-я"."""
    return re.search(f"[{script}]", word) is not None


@lru_cache(maxsize=8192)
def is_latin(word: str) -> bool:
    """Return whether a word is in none of the scripts for which this module has other rules."""
    return not any(is_in(word, script) for script in (NO_SPACES, HANGUL, CYRILLIC, GREEK, ARABIC, HEBREW, INDIC))


def script_pattern(phrase: str) -> str:
    """Return a regular expression for the forms of a phrase in another script than Latin, with its boundaries."""
    words = phrase.split()
    if is_in(phrase, NO_SPACES):
        before = "" if is_in(phrase[0], NO_SPACES) else r"(?<!\w)"
        after = "" if is_in(phrase[-1], NO_SPACES) else r"(?!\w)"
        is_one_han = len(phrase) == 1 and "\u3400" <= phrase <= "\u9fff"
        return before + r"\s*".join(map(re.escape, words)) + (AFTER_ONE_HAN if is_one_han else after)
    if is_in(phrase, HANGUL):  # particles follow the last word without a space
        after = rf"(?P<particle>[{AGREEING_PARTICLES}](?!\w))"
        after += "?" if len(words[-1]) > 1 else rf"|(?={KOREAN_PARTICLES}|\W|$)"
        return r"(?<!\w)" + r"\s*".join(map(re.escape, words)) + f"(?:{after})"
    if is_in(phrase, ARABIC):
        first, *others = map(_arabic_stem, words)
        forms = [f"(?P<prefix>{ARABIC_PREFIX}){first}", *(ARABIC_PREFIX + stem for stem in others)]
        return r"(?<!\w)" + r"\s+".join(forms) + r"(?!\w)"
    if is_in(phrase, HEBREW):
        first, *others = [re.escape(re.sub("(?:ים|ות|ה|ת)$", "", word)) + "(?:ים|ות|ה|ת)?" for word in words]
        forms = [f"(?P<prefix>{HEBREW_PREFIX}){first}", *(HEBREW_PREFIX + stem for stem in others)]
        return r"(?<!\w)" + r"\s+".join(forms) + r"(?!\w)"
    if is_in(phrase, INDIC):  # signs of vowels are no letters in regular expressions
        stems = [re.escape(word.rstrip(_indic_signs())) if len(word) > 2 else re.escape(word) for word in words]
        ending = f"(?:[{INDIC_SIGNS}]|[{INDIC}](?=[{INDIC_SIGNS}])){{0,4}}"
        return rf"(?<![\w{INDIC_SIGNS}])" + r"\s+".join(stem + ending for stem in stems) + rf"(?![\w{INDIC_SIGNS}])"
    return r"(?<!\w)" + r"\s+".join(map(_slavic_or_greek_word, words)) + r"(?!\w)"


def _indic_signs() -> str:
    return "".join(character for character in map(chr, range(0x900, 0xE00)) if re.match(f"[{INDIC_SIGNS}]", character))


def _arabic_stem(word: str) -> str:
    """Return a pattern of a word without its article, with any ending, with or without signs, and with any alef."""
    bare = re.sub("[\u064b-\u0652\u0670\u0640]", "", word)
    stem = bare.removeprefix("ال") if len(bare) > 4 else bare
    stem = re.sub("(?:ون|ين|ات|ة|ه)$", "", stem) if len(stem) > 4 else stem
    letters = ["[أإآا]" if letter in "أإآا" else re.escape(letter) for letter in stem]
    return f"{ARABIC_SIGNS.join(letters)}{ARABIC_SIGNS}(?:ة|ه|ون|ين|ات|ان)?"


def _slavic_or_greek_word(word: str) -> str:
    stem = re.sub("(?:[аяоеёиыуюйьіїє]{1,2}|[αοηιυεωάόήίύέώ]?ς?)$", "", word)
    endings = CYRILLIC_ENDINGS if is_in(word, CYRILLIC) else r"\w{0,4}"
    return re.escape(stem) + endings if len(stem) >= MIN_STEM else re.escape(word)


def inflected(word: str, language: str, spelling: str) -> str:
    """Return a regular expression for the forms of a word in a language of Latin script.

    `spelling` is the pattern of the word's spellings, of which the ending is replaced.
    """
    if language not in ENDINGS:
        return spelling
    replaced, endings = ENDINGS[language]
    stem = re.sub(f"{replaced}$", "", word.lower()) if replaced else word
    is_free = endings.startswith(r"\w")
    if is_free and len(stem) < MIN_STEM:
        return f"{spelling}(?:l[ae]r\\w{{0,4}})?" if language == "tr" else spelling
    if len(stem) < 2 or not spelling.lower().startswith(re.escape(stem)):  # accents in the ending
        return spelling + endings
    return spelling[: len(re.escape(stem))] + endings
