"""What responses are like whoever is answered: how varied, how long, how often they repeat the prompt.

Words are runs of letters, digits and marks of any script with inner apostrophes and hyphens, in lower case. All take
the responses that there are; the caller leaves out empty ones, counts them, and gives the reason where a number is NaN.
"""

import math
import re
from collections.abc import Sequence

WORD = re.compile(r"\w+(?:['’-]\w+)*")
FINAL_PUNCTUATION = ".!?…,;: "


def distinct_n(responses: Sequence[str], n: int) -> float:
    """Return the number of distinct n-grams of words over the number of all, in all responses together; in (0, 1].

    Li et al. 2016, "A Diversity-Promoting Objective Function for Neural Conversation Models", §5. It falls as
    responses are added, so it compares runs of equal size alone. NaN if no response has n words.

    >>> distinct_n(["I see.", "I see it."], 2)  # i see, i see, see it
    0.6666666666666666
    """
    grams = [gram for words in map(_words, responses) for gram in zip(*(words[i:] for i in range(n)), strict=False)]
    return len(set(grams)) / len(grams) if grams else math.nan


def mean_length(responses: Sequence[str]) -> float:
    """Return the mean number of words of a response; NaN if there is none."""
    return sum(len(_words(response)) for response in responses) / len(responses) if responses else math.nan


def repeats_prompt(response: str, prompt: str) -> bool:
    """Say whether a response is its prompt again, but for case, outer blanks and final punctuation.

    Paper 002, C.2.1, "parroting": the response repeats the prompt "entirely without changes", or "with minor
    punctuation changes". An empty response repeats nothing.
    """
    said = _plain(response)
    return bool(said) and said == _plain(prompt)


def parroting(responses: Sequence[str], prompts: Sequence[str]) -> float:
    """Return the share of responses that repeat their prompt (see `repeats_prompt`), ideal 0; NaN if there is none.

    >>> parroting(["i like moms", "Me too!"], ["I like moms.", "I like moms."])
    0.5
    """
    pairs = list(zip(responses, prompts, strict=True))
    return sum(repeats_prompt(*pair) for pair in pairs) / len(pairs) if pairs else math.nan


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _plain(text: str) -> str:
    return text.strip().rstrip(FINAL_PUNCTUATION).casefold()
