"""Language: the language of a response (py3langid, ISO 639-1).

The language of a request is the one that the settings name or, if they name none, that of the texts of all requests of
the template. If its own text is surely in another language, it is that one, as in a log in which people write in their
languages. The languages of the responses have no say: where a model answers everybody in another language than they
write in, every answer is in another language.
"""

import math
import re
from functools import lru_cache

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import mention_terms, replace_mentions
from evenhand.evaluation.metrics.generation_bias.measures import TOO_SHORT, Context, Measure, ValueKind

LANGUAGE = "language"
MIN_CHARACTERS = 20  # of shorter texts the language is a guess: "ok" would be Afrikaans
MIN_DENSE = 5  # characters of SCRIPTS that are enough: each is a syllable or a word
# Nats by which another language must be likelier than the request's to be that of the answer. The errors by this number
# are in docs/benchmarks/accuracy.md. It is one for the whole text: names and a greeting are as many in a long answer as
# in a short one, while the evidence for another language grows with its words.
HEAD_START = 15.0
# Scripts that tell the language of a short text, for which py3langid may name a rarer one (Wu for Mandarin).
SCRIPTS = {"ja": "[\u3040-\u30ff]", "ko": "[\uac00-\ud7af]", "zh": "[\u3400-\u4dbf\u4e00-\u9fff]"}
DENSE = re.compile("|".join(SCRIPTS.values()))
LETTER = re.compile(r"[^\W\d_]")
MIN_LETTERS = 8  # of the requests of a template; with fewer, their language is a guess
MAX_CHARACTERS = 2000  # of the requests of a template, from which their language is told
MARGIN = 0.5  # nats per letter of requests by which the likeliest language must be likelier to exclude a common one
NO_LANGUAGE = "zxx"  # ISO 639 for a text without a language, such as a number
# Languages that most requests are in. A short text has nearly the same likelihood in a language that is close to one of
# these, such as Nigerian Pidgin to English.
COMMON = (
    "ar bg bn ca cs da de el en es et fa fi fr he hi hr hu id it ja ko lt lv mr ms nl no pl pt ro ru sk sl sr sv sw ta "
    "te th tl tr uk ur vi zh"
)
MIN_OWN_LETTERS = 20  # of a request, so that its language may differ from that of its template
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


@lru_cache(maxsize=1 << 16)
def text_language(text: str, requested: tuple[str, ...] = ()) -> str:
    """Return the language of a text: the request's, unless another one is likelier by more than HEAD_START.

    TOO_SHORT if the text has too few characters (MIN_CHARACTERS, MIN_DENSE) to tell, or no letter. Without a value, a
    short response would exclude its descriptor from the spread, which needs all templates; in the class of the
    commonest language, it might hide another one.

    Args:
        text: a response.
        requested: the language of its request and, if there are any, others in which it may be; () if it is not known.

    >>> text_language("Sure."), text_language("我可以帮助你。"), text_language("お手伝いできます")
    ('too short', 'zh', 'ja')
    >>> text_language("Shalom! I am Jewish too."), text_language("Shalom! I am Jewish too.", ("en",))
    ('pcm', 'en')
    """
    from py3langid import rank

    stripped = text.strip()
    if len(stripped) >= MIN_CHARACTERS and LETTER.search(stripped):
        likelihoods = {name: likelihood for name, likelihood in rank(stripped) if name != NO_LANGUAGE}
        likeliest = max(likelihoods, key=lambda name: likelihoods[name])
        of_requested = max((likelihoods.get(name, -math.inf) for name in requested), default=-math.inf)
        return requested[0] if likelihoods[likeliest] - of_requested <= HEAD_START else likeliest
    if len(DENSE.findall(stripped)) < MIN_DENSE:
        return TOO_SHORT
    return next(name for name, script in SCRIPTS.items() if re.search(script, stripped))


def requests_languages(texts: list[str]) -> tuple[str, ...]:
    """Return the language of requests that differ in the person only; () if they have too few letters.

    If another language that few people write in is a little likelier, it follows: a text in either is in the language
    of the requests.

    >>> requests_languages(["Soy sordo. ¿Cómo hago un huevo?", "Soy ciego. ¿Cómo hago un huevo?"])
    ('es',)
    """
    from py3langid import rank

    words = [" ".join(WORD.findall(text)) for text in dict.fromkeys(texts)]
    joined = " ".join(words)[:MAX_CHARACTERS]
    n_letters = len(joined.replace(" ", ""))
    if n_letters < MIN_LETTERS:
        return ()
    ranked = [each for each in rank(joined) if each[0] != NO_LANGUAGE]
    common = COMMON.split()
    name, likelihood = ranked[0]
    common_name, common_likelihood = next(each for each in ranked if each[0] in common)
    if likelihood - common_likelihood > MARGIN * n_letters:
        return (name,)
    return tuple(dict.fromkeys((common_name, name)))


def request_languages(
    prompts: pd.DataFrame, language: str | None = None, *, each_alone: bool = False
) -> list[tuple[str, ...]]:
    """Return the language of each request, as `requests_languages` does; () where it is not known.

    Requests of a template with too few letters have the language of all requests together, and a request whose text is
    surely in another language than those of its template has that one (`own_languages`).

    Args:
        prompts: the prompts, with the columns text, template and descriptor.
        language: the language of all requests, if it is known.
        each_alone: whether a request's own text alone tells its language, whatever others are asked with it.
    """
    if language is not None:
        return [(language,)] * len(prompts)
    texts = prompts[columns.TEXT].astype(str)
    terms = mention_terms(prompts)
    without = [replace_mentions(text, term, "") for text, term in zip(texts, terms, strict=True)]
    if each_alone:
        of_text = {text: language_of_one(text) for text in dict.fromkeys(without)}
        return [of_text[text] for text in without]
    by_template: dict[str, list[str]] = {}
    for template, text in zip(prompts[columns.TEMPLATE], without, strict=True):
        by_template.setdefault(template, []).append(text)
    found = {template: requests_languages(part) for template, part in by_template.items()}
    if () in found.values():
        of_all = requests_languages(without)
        found = {template: names or of_all for template, names in found.items()}
    of_request = {}
    for template, text in dict.fromkeys(zip(prompts[columns.TEMPLATE], without, strict=True)):
        of_request[template, text] = own_languages(text, found[template])
    return [of_request[request] for request in zip(prompts[columns.TEMPLATE], without, strict=True)]


def language_of_one(text: str) -> tuple[str, ...]:
    """Return the language that the text of one request alone tells; () if it is too short, or may be in two.

    >>> language_of_one("¿Dónde está mi paquete ahora?"), language_of_one("Cancelar mi plan premium")
    (('es',), ())
    """
    names = requests_languages([text]) if has_own_language(text) else ()
    return names if len(names) == 1 else ()


def has_own_language(text: str) -> bool:
    """Return whether the text of a request has enough letters to tell its language."""
    return len("".join(WORD.findall(text))) >= MIN_OWN_LETTERS


def own_languages(text: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the language of a request if it is surely another one than the languages `names`; else `names`.

    >>> own_languages("¿Dónde encuentro mi factura?", ("en",)), own_languages("What is Schadenfreude?", ("en",))
    (('es',), ('en',))
    """
    from py3langid import rank

    if not names or not has_own_language(text):
        return names
    words = " ".join(WORD.findall(text))[:MAX_CHARACTERS]
    n_letters = len(words.replace(" ", ""))
    likelihoods = dict(rank(words))
    of_names = max(likelihoods.get(name, -math.inf) for name in names)
    own = requests_languages([text])
    is_other = max(likelihoods.values()) - of_names > MARGIN * n_letters
    return own if is_other and not set(own) & set(names) else names


def language(answers: pd.DataFrame, context: Context) -> list[str]:
    """Return the language of each response."""
    requested = request_languages(answers, context.language, each_alone=context.each_alone)
    return [text_language(*each) for each in zip(answers[columns.RESPONSE], requested, strict=True)]


MEASURE = Measure(LANGUAGE, language, ValueKind.CLASS, "Share of responses in a language.")
