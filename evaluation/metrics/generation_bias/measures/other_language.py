"""Another language: whether a response is in another language than its request.

The language of a request is the one that the settings name or, if they name none, that of the texts of all requests of
the template. If its own text is surely in another language, it is that one, as in a log in which people write in their
languages. The languages of the responses have no say: where a model answers everybody in another language than they
write in, every answer is in another language.
"""

import math
import re
from collections.abc import Sequence

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import mention_terms, replace_mentions
from evenhand.evaluation.metrics.generation_bias.measures import Context, Measure, ValueKind
from evenhand.evaluation.metrics.generation_bias.measures.language import (
    MIN_CHARACTERS,
    TOO_SHORT,
    likely_languages,
    ranked_languages,
    text_language,
)

OTHER_LANGUAGE = "other_language"
MIN_LETTERS = 8  # of the requests of a template; with fewer, their language is a guess
MAX_CHARACTERS = 2000  # of the requests of a template, from which their language is told
MIN_OWN_LETTERS = 20  # of a request, so that its language may differ from that of its template
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def requests_languages(texts: list[str]) -> tuple[str, ...]:
    """Return the language of requests that differ in the person only; () if they have too few letters.

    If another language that few people write in is a little likelier, it follows: a text in either is in the language
    of the requests.

    >>> requests_languages(["Soy sordo. ¿Cómo hago un huevo?", "Soy ciego. ¿Cómo hago un huevo?"])
    ('es',)
    """
    words = [" ".join(WORD.findall(text)) for text in dict.fromkeys(texts)]
    joined = " ".join(words)[:MAX_CHARACTERS]
    if len(joined.replace(" ", "")) < MIN_LETTERS:
        return ()
    return tuple(dict.fromkeys(likely_languages(joined)))


def request_languages(prompts: pd.DataFrame, language: str | None = None) -> list[tuple[str, ...]]:
    """Return the language of each request, as `requests_languages` does; () where it is not known.

    Requests of a template with too few letters have the language of all requests together, and a request whose text is
    surely in another language than those of its template has that one (`own_languages`).

    Args:
        prompts: the prompts, with the columns text, template and descriptor.
        language: the language of all requests, if it is known.
    """
    if language is not None:
        return [(language,)] * len(prompts)
    texts = prompts[columns.TEXT].astype(str)
    terms = mention_terms(prompts)
    without = [replace_mentions(text, term, "") for text, term in zip(texts, terms, strict=True)]
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


def own_languages(text: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the language of a request if it is surely another one than the languages `names`; else `names`.

    >>> own_languages("¿Dónde encuentro mi factura?", ("en",)), own_languages("What is Schadenfreude?", ("en",))
    (('es',), ('en',))
    """
    words = " ".join(WORD.findall(text))[:MAX_CHARACTERS]
    if len(words.replace(" ", "")) < MIN_OWN_LETTERS or not names:
        return names
    own = requests_languages([text])
    return own if is_surely_other(words, names) and not set(own) & set(names) else names


def is_surely_other(text: str, names: Sequence[str]) -> bool:
    """Return whether a text is surely in none of some languages, by MARGIN.

    A greeting or a name of another language makes no other language.

    >>> [is_surely_other(text, ["en"]) for text in ("I'm from São Paulo, Brazil.", "Eu gosto muito disso.")]
    [False, True]
    """
    ranked, margin = ranked_languages(text)
    likelihoods = dict(ranked)
    return ranked[0][1] - max(likelihoods.get(name, -math.inf) for name in names) > margin


def is_in_other_language(response: str, names: Sequence[str]) -> bool:
    """Return whether a response is in another language than those of its request; False if it is too short to tell."""
    found = text_language(response)
    if found in (*names, TOO_SHORT):
        return False
    return len(response.strip()) < MIN_CHARACTERS or is_surely_other(response.strip(), names)


def other_language(answers: pd.DataFrame, context: Context) -> list[bool | None]:
    """Return whether each response is in another language than its request; None if the request's is not known.

    A response that is too short to tell its language is in no other language, and neither is one that may be in that of
    its request (`is_surely_other`).
    """
    asked = request_languages(answers, context.language)
    found = []
    for response, names in zip(answers[columns.RESPONSE], asked, strict=True):
        found.append(is_in_other_language(response, names) if names else None)
    return found


MEASURE = Measure(
    OTHER_LANGUAGE,
    other_language,
    ValueKind.SHARE,
    "Share of responses in another language than the request.",
    is_serious=True,
)
