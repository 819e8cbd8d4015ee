"""Mentions of a descriptor in a text, and their replacement together with the article.

Before the style of a response is classified, mentions are replaced by a neutral descriptor. The mitigation method
`exchange` replaces mentions by another descriptor.
"""

import logging
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import NONE, load_taxonomy
from evenhand.evaluation.data.language.neutral_words import (
    NEUTRAL_DESCRIPTOR,
    agreeing_particle,
    language_of,
    neutral_word,
)
from evenhand.evaluation.data.language.word_forms import ENDINGS, inflected, is_latin, script_pattern

log = logging.getLogger("evenhand")

# Columns of prompts in other languages: the descriptor's forms, joined by SEPARATOR, and the neutral descriptor.
FORMS = "forms"
NEUTRAL = "neutral"
SEPARATOR = "|"
Term = str | tuple[str, ...]  # an English descriptor, or the forms of a descriptor in any language
# A.6 prints "_POTENTIALLY_UNSAFE__"; ParlAI's agents write one underscore more or less. Possessive quantifiers (++)
# prevent backtracking, so that the time is linear in the text.
SAFETY_MARKER = re.compile(r"(?:(?<!\s)\s++)?(?<!_)(?:_*+POTENTIALLY_++UNSAFE)++_*+")
# An article before a mention, with optional quotation marks as in `an "old" man`; not the A of "vitamin-A" or "U.S.A.".
ARTICLE_BEFORE = r"(?:(?<![\w.'’‐‑–-])(?P<article>an?)(?P<gap>\s+[\"'“‘*_(]*))?"
# Words whose first sound differs from their first letter: "a European", "an honest", "an 80-year-old", "an FTM".
Y_OR_W = re.compile(
    r"e[uw]|on(?:e|ce)(?![a-z])|uni(?!n|m|r|den|ll|ss)|u(?:\.|k|s[aeiu]|t[aeio]|bi|ga|r[iou]|y)|us(?![a-z])",
    re.IGNORECASE,
)
ARTICLES = ("a", "an")
NO_MATCH = re.compile("(?!)")
OUTSIDE = r"(?<![^\W_])"  # before a word; underscores around it are markup
NO_ARTICLE = "(?P<article>(?!))?(?P<gap>)"  # the groups of ARTICLE_BEFORE, in other languages
# English words that in capitals are descriptors, such as "US": a mention has capitals, and "us" is none.
ENGLISH_WORDS = "aids all am any as at be by can do go he if in is it may me no of on or so to up us we who"
AFTER_THE = re.compile(r"\bTHE\s+$")
SENTENCE_END = re.compile(r"[.!?…\n]")
# Names that are English words, too: a mention has a capital, and does not begin a sentence as a word of it.
NAME_WORDS = (
    "amber angel art august autumn bill bob brook carol chance chase dawn dean destiny diamond don drew ebony "
    "faith frank gene ginger grace grant guy heather holly hope hunter iris ivy jack jade jasmine jay jean jewel "
    "joy june king lane lily mark mason may melody mercy miles olive pat patience pearl peg penny pierce precious "
    "prince ray reed rich rob rock rose ruby rusty sandy sterling stone storm sue summer violet ward will young"
)
NAME_ENDS = re.compile(r"\s*(?:[,!.?;:…–—)]|-\s|['’]s\b|and\b|&|$)")  # what follows a name at the start of a sentence
NOT_AFTER_NAME = re.compile(r"['’]t\b")  # "Don't"
SENTENCE_START = re.compile(r"(?:^|[.!?…:\n])[\s\"'“‘*_(-]*$")
# Descriptors that are also a colour or a verb: a mention is of a person.
AMBIGUOUS = ("black", "white", "brown", "polish")
PERSONS = (  # nouns that the taxonomy lacks, before which a colour is a person's
    "people person persons folk folks friend friends student students teacher teachers worker workers neighbor "
    "neighbors neighbour neighbours colleague colleagues american americans european europeans african africans "
    "british youth community communities family families culture history voters women's men's character characters "
    "author authors artist artists athlete athletes doctor doctors immigrant immigrants lives identity heritage"
)
OF_THING = re.compile(  # words before a colour that is no person's
    r"\b(?:wear\w*|wore|worn|dress\w* in|painted?|paint it|turn\w*|in|colou?r\w*|black and|white and)\s+$",
    re.IGNORECASE,
)
OF_AGE = re.compile(r"\b(?:years?|yrs?|months?|weeks?|days?|how)[\s‐‑–-]+$", re.IGNORECASE)  # "20 years old" is any age
NEXT_WORD = re.compile(r"[\s‐‑–-]*[\"'”’*)]*\s+(?:(?:and|or|&)\s+\w+[\s-]+)?([^\W\d_]+)")
THINGS = (  # nouns after which a colour is a thing's, without the s of their plural
    "apron background bag ball balloon bean bear belt bench bin bird blouse board book boot bottle bow box boxes "
    "bread bricks broccoli butter button cab camera candle cap car card carpet cashmere cat chair chalk cheese "
    "cherries cherry chocolate clothe cloud coal coat coffee collar color colour cotton couch cover cream cup "
    "curtain dog door dot dress dresses dust egg elephant envelope eye feather fence flag flower fog font friday "
    "frost fur glass glasses glove gold gown grape hair hat hole hoodie horse house ice ink jacket jean key knight "
    "label lace leather lie light line list lotus magic mail marble market mask meat milk mirror mold mould mouse "
    "mud mushroom nail noise oak olive onion outfit page paint pant paper pawn pea pearl pen pencil pepper piano "
    "plague plastic pudding queen rabbit rhino ribbon rice robe rock rook rose rug sand sauce scarf screen sea "
    "sedan sheep sheet shirt shoe shorts skirt sky smoke snake snow soap sock sofa soup space spot square squirrel "
    "stain stallion stone stripe sugar suit swan sweater table tape tea teeth text thread tie tiger tile toast "
    "tooth toyota truck tulip umbrella vinegar wall water whale widow wine wire wolf wood wool yarn zone "
)
# A warning is logged if fewer of the responses and fewer of the prompts than these shares mention the person.
FEW_IN_RESPONSES = 0.05
FEW_IN_PROMPTS = 0.5
MAX_PROMPTS = 1000  # in which mentions are counted
AROUND = 300  # characters before and after a mention that are read: an answer may repeat a word thousands of times
SILENT_H = re.compile(r"heir|honest|hono|hour|hiv(?![a-z])", re.IGNORECASE)
NUMBER_WITH_VOWEL = re.compile(r"8|1[18](?:[.,]?\d{3})*(?!\d)")  # eight(y), eleven, eighteen
# Spelled out: without vowels, or beginning as no word does ("MBA", "NGO", not "SNAP").
SPELLED = re.compile(
    r"(?:(?![A-Z0-9]*[AEIOUY])[A-Z0-9]*[A-Z][A-Z0-9]*"
    r"|SUV|(?!S[CHKLMNPTWQ]|F[LR]|RH)[FHLMNRSX][B-DF-HJ-NP-TV-XZ][A-Z0-9]+)s?(?![a-z])"
)


def clean_response(response: str, descriptor: Term, neutral: str | None = None, *, exact: bool = False) -> str:
    """Return a response with neutral descriptors, as the style classifier reads it (Smith et al. 2022, A.6).

    Each mention of the prompt's descriptor becomes "left-handed", or its counterpart in the language of the text, so
    that the classifier rates the tone and not the group; safety markers are removed. A mention is a whole word or
    phrase, in any case, singular or plural, with or without its article, and with blanks, hyphens or nothing between
    its words; "who is" also matches "who are". An article before a mention becomes "a", because "an" would depend on
    the descriptor. If `descriptor` is a tuple of forms, in any language, each of the forms becomes the neutral
    descriptor. `neutral` is the neutral descriptor; None: by the language (`neutral_words.neutral_word`).

    "Black", "white", "brown" and "Polish" stay where they seem to name the colour of a thing, or a verb, and a word
    such as "US" stays where it may be "us". `exact` is the paper's rule: each mention of the descriptor itself, in any
    case, with blanks or hyphens between its words, becomes "left-handed"; plurals and articles stay.

    >>> clean_response("I love Hard of Hearing people! _POTENTIALLY_UNSAFE__", "hard-of-hearing")
    'I love left-handed people!'
    >>> clean_response("An elderly woman!", "elderly")
    'A left-handed woman!'
    >>> clean_response("Me gustan las mujeres sordas.", ("sorda", "sordas"), "de estatura media")
    'Me gustan las mujeres de estatura media.'
    >>> clean_response("Die gehörlosen Kinder sind nicht allein.", "gehörlos")
    'Die linkshändigen Kinder sind nicht allein.'
    >>> clean_response("An elderly man has Black hair; the elderlies", "elderly", exact=True)
    'An left-handed man has Black hair; the elderlies'
    """
    response = SAFETY_MARKER.sub("", response).strip() if "UNSAFE" in response else response
    if exact:
        return _censor(response, descriptor)
    return replace_mentions(response, descriptor, neutral)


def _censor(response: str, descriptor: Term) -> str:
    """Return a response with "left-handed" in place of the descriptor (Smith et al. 2022, A.6)."""
    forms = descriptor if isinstance(descriptor, tuple) else (descriptor,)
    if not any(forms) or NONE in forms:
        return response
    return _forms_pattern(forms).sub(NEUTRAL_DESCRIPTOR, response)


def mention_terms(prompts: pd.DataFrame) -> list[Term]:
    """Return what a mention of each prompt's descriptor looks like: the forms in the column FORMS, or the descriptor.

    The forms have one order in all rows (`languages.select_forms`); a form that a descriptor lacks is "".
    """
    if FORMS in prompts:
        return [tuple(forms.split(SEPARATOR)) for forms in prompts[FORMS]]
    return prompts[columns.DESCRIPTOR].tolist()


def neutral_terms(prompts: pd.DataFrame) -> list[str | None]:
    """Return each prompt's neutral descriptor, by the column NEUTRAL; None: by the language of the text."""
    return prompts[NEUTRAL].tolist() if NEUTRAL in prompts else [None] * len(prompts)


def clean_responses(responses: Iterable[str], prompts: pd.DataFrame, *, exact: bool = False) -> list[str]:
    """Return each response by `clean_response` with the descriptor of its prompt.

    If few responses and few prompts have a mention, a warning says so (`few_mentions`).
    """
    responses = list(responses)
    rows = zip(responses, mention_terms(prompts), neutral_terms(prompts), strict=True)
    cleaned = [clean_response(*row, exact=exact) for row in rows]
    few = few_mentions(responses, prompts)
    if few is not None:
        log.warning(
            "descriptors are found in %.1f %% of the responses and %.0f %% of the prompts; write them as the texts do",
            100 * few.of_responses,
            100 * few.of_prompts,
        )
    return cleaned


@dataclass(frozen=True)
class MentionShares:
    """The shares of responses, and of prompts, that have a mention of their descriptor, in [0, 1]."""

    of_responses: float
    of_prompts: float


def few_mentions(responses: Sequence[str], prompts: pd.DataFrame) -> MentionShares | None:
    """Return the shares of responses and of prompts with a mention of their descriptor if both are low, else None.

    Of many rows, MAX_PROMPTS are read.
    """
    if columns.TEXT not in prompts:
        return None
    personas = prompts[columns.PERSONA] if columns.PERSONA in prompts else [""] * len(prompts)
    rows = list(zip(responses, personas, prompts[columns.TEXT], mention_terms(prompts), strict=True))
    rows = [row for row in rows[:: -(-len(rows) // MAX_PROMPTS) or 1] if row[3] not in ("", NONE)]
    n_responses = sum(_has_mention(response, term) for response, _, _, term in rows)
    if not rows or n_responses >= FEW_IN_RESPONSES * len(rows):
        return None
    n_prompts = sum(_has_mention(f"{persona}\n{text}", term) for _, persona, text, term in rows)
    if n_prompts >= FEW_IN_PROMPTS * len(rows):
        return None
    return MentionShares(n_responses / len(rows), n_prompts / len(rows))


def _has_mention(text: str, term: Term) -> bool:
    return replace_mentions(text, term, "\x00") != text


def replace_mentions(text: str, descriptor: Term, replacement: Term | None) -> str:
    """Return the text with each mention of the descriptor (see `clean_response`) replaced and the article adjusted.

    If the replacement begins with an article ("a wheelchair user"), the article of the mention is removed. A form in a
    tuple is replaced by the form in the same place of a tuple, or by the only replacement. If the replacement is None,
    each mention becomes the neutral descriptor of its language.

    >>> replace_mentions("I met a deaf man.", "deaf", "autistic")
    'I met an autistic man.'
    """
    if descriptor in ("", NONE, replacement):
        return text
    if isinstance(descriptor, tuple):
        if replacement is None:
            name = next(filter(None, descriptor), "")
            replacement = neutral_word(language_of(text, name), name)
        return _replace_forms(text, descriptor, replacement)
    language = language_of(text, descriptor)
    if replacement is None and descriptor == neutral_word(language, ""):
        return text
    if not is_latin(descriptor):
        pattern = _script_mention(descriptor)
    elif language in ENDINGS:
        pattern = _inflected_mention(descriptor, language)
    else:
        pattern = _mention_pattern(descriptor)

    def replace(mention: re.Match[str]) -> str:
        if not _is_meant(descriptor, mention):
            return mention[0]
        word = neutral_word(language, _word_of(mention)) if replacement is None else replacement
        return _in_place_of(mention, word)

    return pattern.sub(replace, text)


def _word_of(mention: re.Match[str]) -> str:
    """Return a mention without its article."""
    article = (mention["article"] or "") + (mention["gap"] or "")
    return mention[0][len(article) :]


def _in_place_of(mention: re.Match[str], word: str) -> str:
    """Return a word with the article, prefix or particle of the mention that it replaces, in the form that fits it."""
    groups = mention.groupdict()
    if groups["article"] is not None and not re.match(r"an?\s", word, re.IGNORECASE):
        article = spoken_article(word)
        article = article.capitalize() if groups["article"][0] == "A" else article
        return article + groups["gap"] + word
    if groups.get("prefix") and word:  # of Arabic and Hebrew
        prefix = groups["prefix"]
        return prefix + (word.removeprefix("ال") if prefix.endswith("ل") else word)
    if groups.get("particle") and word:
        return word + agreeing_particle(word, groups["particle"])
    return word


@lru_cache(maxsize=8192)
def _script_mention(descriptor: str) -> re.Pattern[str]:
    return re.compile(NO_ARTICLE + script_pattern(unicodedata.normalize("NFC", descriptor)), re.IGNORECASE)


@lru_cache(maxsize=8192)
def _inflected_mention(descriptor: str, language: str) -> re.Pattern[str]:
    words = [word for word in re.split(r"[\s‐‑–-]+", unicodedata.normalize("NFC", descriptor)) if word.strip("'’")]
    if not words:
        return NO_MATCH
    forms = [inflected(word, language, _spelling_pattern(word)) for word in words]
    pattern = r"[\s‐‑–-]*+".join(forms)
    return re.compile(rf"{NO_ARTICLE}{OUTSIDE}{pattern}(?![^\W_])", re.IGNORECASE)


def _is_meant(descriptor: str, mention: re.Match[str]) -> bool:
    """Return whether a match means the descriptor, by its capitals and, of AMBIGUOUS ones, by the words around it.

    "US" is no "us", also in a sentence of capitals ("CALL US", but "THE US"), and "Black coffee" is no person. Somebody
    who is "20 years old" is not old.
    """
    found = _word_of(mention)
    before = mention.string[max(0, mention.start() - AROUND) : mention.start()]
    after = mention.string[mention.end() : mention.end() + AROUND]
    if _is_name_and_word(descriptor):
        return _is_name(found, before, after)
    if descriptor.isupper() and descriptor.lower() in ENGLISH_WORDS.split():
        is_clear = AFTER_THE.search(before) is not None or not _is_in_capitals(before, after)
        return found.removesuffix("s").isupper() and is_clear
    if descriptor.lower() == "old":
        return OF_AGE.search(before) is None
    if descriptor.lower() not in AMBIGUOUS:
        return True
    next_word = NEXT_WORD.match(after)
    if next_word is not None and next_word[1].lower() in _persons():
        return True
    if descriptor.lower() == "polish":
        return found[0].isupper() and not _is_in_capitals(before, after)
    if next_word is None:
        return not OF_THING.search(before)
    is_thing = next_word[1].lower() in _things() or (next_word[1][0].isupper() and next_word[1] != next_word[1].upper())
    return not is_thing and not OF_THING.search(before)


def _is_name_and_word(form: str) -> bool:
    """Return whether a descriptor or a form of one is a name that is an English word, too."""
    return form.istitle() and form.lower() in NAME_WORDS.split()


def _is_name(found: str, before: str, after: str) -> bool:
    """Return whether a word is a name, and not the word of NAME_WORDS, by its capital and by what is around it.

    >>> _is_name("Will", "Thanks, ", "!"), _is_name("will", "I ", " help."), _is_name("Will", "", " you come?")
    (True, False, False)
    """
    if not found.istitle() or NOT_AFTER_NAME.match(after):
        return False
    return SENTENCE_START.search(before) is None or NAME_ENDS.match(after) is not None


def _is_in_capitals(before: str, after: str) -> bool:
    """Return whether the sentence around a word has other letters, and all of them are capitals."""
    rest = SENTENCE_END.split(before)[-1] + SENTENCE_END.split(after, maxsplit=1)[0]
    return rest.isupper()


@lru_cache(maxsize=1)
def _things() -> frozenset[str]:
    return frozenset(form for word in THINGS.split() for form in (word, f"{word}s"))


@lru_cache(maxsize=1)
def _persons() -> frozenset[str]:
    """Return nouns that name persons, in the singular and the plural."""
    nouns = [word for noun in load_taxonomy().nouns for word in (noun.singular, noun.plural)]
    return frozenset(word.lower() for name in nouns for word in name.split()) | frozenset(PERSONS.split())


def _replace_forms(text: str, forms: tuple[str, ...], replacement: Term) -> str:
    """Return the text with each form replaced by the form in the same place of the replacement, or by its only form."""
    new_forms = replacement if isinstance(replacement, tuple) else (replacement,) * len(forms)
    first = next(filter(None, new_forms), "")  # for a form that the replacement lacks
    by_letters: dict[str, str] = {}
    for form, new in zip(forms, new_forms, strict=True):
        by_letters.setdefault(_letters(form), new or first)  # the first of equal forms counts
    names = {_letters(form) for form in forms if _is_name_and_word(form)}

    def replace(mention: re.Match[str]) -> str:
        letters = _letters(mention[0])
        before = text[max(0, mention.start() - AROUND) : mention.start()]
        if letters in names and not _is_name(mention[0], before, text[mention.end() : mention.end() + AROUND]):
            return mention[0]
        return by_letters[letters]

    return _forms_pattern(forms).sub(replace, text)


def _letters(text: str) -> str:
    """Return the letters and digits in lower case without accents, which all spellings of a form have in common."""
    return "".join(letter for letter in unicodedata.normalize("NFD", text.lower()) if letter.isalnum())


@lru_cache(maxsize=8192)
def _forms_pattern(forms: tuple[str, ...]) -> re.Pattern[str]:
    words = [re.split(r"[\s‐‑–-]+", unicodedata.normalize("NFC", form)) for form in forms if form]
    patterns = [r"[\s‐‑–-]*+".join(map(_spelling_pattern, parts)) for parts in words]
    return re.compile(rf"{OUTSIDE}(?:{'|'.join(patterns)})(?![^\W_])", re.IGNORECASE) if patterns else NO_MATCH


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
    """Return the pattern of an English descriptor's mentions, with the groups of ARTICLE_BEFORE."""
    words = unicodedata.normalize("NFC", descriptor).replace("’", "'").replace("who's", "who is")
    words = [word for word in re.split(r"[\s‐‑–-]+", words) if word.strip("'")]
    others = [index for index, word in enumerate(words) if word.lower() not in ARTICLES]
    if not others:
        return NO_MATCH
    pattern = ""
    previous = ""
    for index, word in enumerate(words):
        is_article = word.lower() in ARTICLES and index < others[-1]  # "plan A" ends with a name, not with an article
        # Of several articles in a row, one is kept: optional parts in a row can match in exponentially many ways.
        if is_article and previous not in ARTICLES:
            pattern += r"(?:an?\s+)?"
        elif not is_article:
            is_last = index == len(words) - 1
            pattern += _word_pattern(word, is_last, is_verb=previous == "who")
            pattern += "" if is_last else r"[\s‐‑–-]*+"
        previous = word.lower()
    return re.compile(rf"{ARTICLE_BEFORE}{OUTSIDE}{pattern}(?![^\W_])", re.IGNORECASE)


def _word_pattern(word: str, is_last: bool, is_verb: bool) -> str:
    """Return the pattern of a word's forms: the plural of the last word, and of a verb after "who"."""
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
