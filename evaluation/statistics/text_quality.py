"""Text quality of responses: variety, length, and repetition of the prompt (Smith et al. 2022, C.2.1).

Words are runs of letters, digits and marks of any script with inner apostrophes, hyphens and joiners, in lower case.
Callers must leave out empty responses.
"""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

# Python's \w has no marks, such as the vowel signs of Hindi. A pattern with marks takes six times as long.
MARKS = "".join(chr(code) for code in range(0x300, 0x1E950) if unicodedata.category(chr(code)).startswith("M"))
WORD = re.compile(rf"\w+(?:(?:['’\u200c\u200d-]\w|[{MARKS}])\w*)*")
ASCII_WORD = re.compile(r"\w+(?:['-]\w+)*")
FINAL_PUNCTUATION = ".!?…,;: "
MAX_FRAME_WORDS = 6  # words around a quoted prompt ("So you are telling me that …"); a longer frame has its own content
SPEECH_VERBS = re.compile(
    r"\b(?:sa(?:y|ys|id|ying)|t(?:ell|ells|old|elling)|wr(?:ite|ites|ote|iting)|quot(?:e|es|ed|ing))\b"
)
OPENING = "\"'“‘„«"
CLOSING = "\"'”’“»"


def distinct_n(responses: Sequence[str], n: int) -> float:
    """Return the number of distinct n-grams of words / number of n-grams, over all responses together; in (0, 1].

    Source: Li et al. 2016, "A Diversity-Promoting Objective Function for Neural Conversation Models", §5. The ratio
    falls as responses are added, so compare only runs of equal size. NaN if no response has n words.

    >>> distinct_n(["I see.", "I see it."], 2)  # i see, i see, see it
    0.6666666666666666
    """
    distinct = set()
    count = 0
    for words in map(_words, responses):
        distinct.update(zip(*(words[i:] for i in range(n)), strict=False))
        count += max(len(words) - n + 1, 0)
    return len(distinct) / count if count else math.nan


def distinct_n_without_each(responses: Sequence[str], n: int) -> np.ndarray:
    """Return the jackknife values of `distinct_n`: its value without each response, (r,); NaN if no n-gram remains.

    >>> distinct_n_without_each(["I see.", "I see it.", "I do."], 2).tolist()  # 3 of 3, 2 of 2, 2 of 3
    [1.0, 1.0, 0.6666666666666666]
    """
    grams = [list(zip(*(words[i:] for i in range(n)), strict=False)) for words in map(_words, responses)]
    n_responses = Counter(gram for response_grams in grams for gram in set(response_grams))
    unique = [sum(n_responses[gram] == 1 for gram in set(response_grams)) for response_grams in grams]
    remaining = sum(map(len, grams)) - np.array(list(map(len, grams)), dtype=float)
    distinct = len(n_responses) - np.array(unique, dtype=float)
    return np.divide(distinct, remaining, out=np.full(len(grams), np.nan), where=remaining > 0)


def distinct_responses(responses: Sequence[str]) -> float:
    """Return the number of distinct responses / number of responses, in (0, 1]; NaN without responses.

    The ratio falls as responses are added, so compare only runs of equal size. Unlike distinct-n, the ratio does not
    reward random words, which form new n-grams.

    >>> distinct_responses(["I see.", "i see!", "Oh?", "Me too."])
    0.75
    """
    return len(set(_plain_words(responses))) / len(responses) if responses else math.nan


def occurs_once(responses: Sequence[str]) -> np.ndarray:
    """Return whether each response occurs once, (n,) bool.

    Leaving out a response that occurs once lowers the number of distinct responses by one; leaving out another response
    does not change the number. The result therefore determines the jackknife values of the number. The jackknife's
    mean variance is at least the true variance (Efron and Stein 1981).
    """
    count = Counter(_plain_words(responses))
    return np.array([count[plain] == 1 for plain in _plain_words(responses)], dtype=bool)


def log_perplexities(log_likelihood: pd.Series, tokens: pd.Series) -> np.ndarray:
    """Return n numbers, in nats per token, whose mean is the logarithm of the perplexity, −Σ log p / Σ tokens.

    Their standard error is that of this ratio by the delta method. Texts without a likelihood have NaN.

    >>> log_perplexities(pd.Series([-1.0, -6.0]), pd.Series([1, 3])).tolist()  # 7/4 + (x − 7/4 · tokens) / 2
    [1.375, 2.125]
    """
    surprise = -log_likelihood.to_numpy(dtype=np.float64)
    counts = np.where(np.isfinite(surprise), tokens.to_numpy(dtype=np.float64), np.nan)
    if not np.isfinite(surprise).any():
        return surprise
    rate = np.nansum(surprise) / np.nansum(counts)
    return rate + (surprise - rate * counts) / np.nanmean(counts)


def word_counts(responses: Sequence[str]) -> np.ndarray:
    """Return the number of words of each response, int (n,)."""
    return np.array([len(_words(response)) for response in responses], dtype=np.int64)


def repeats_prompt(response: str, prompt: str) -> bool:
    """Return whether a response repeats or only quotes its prompt, ignoring case, outer blanks and final punctuation.

    In Smith et al. 2022, C.2.1, "parroting" is a response that repeats the prompt "entirely without changes", or "with
    minor punctuation changes". Quotations ("You said: …") are an addition of this project: the response contains the
    whole prompt and at most six other words, and has a verb of speech among these words, a colon before the prompt, or
    quotation marks around the prompt. An empty response does not repeat its prompt.

    >>> repeats_prompt("You said: I like moms!", "I like moms."), repeats_prompt("Yes, I like moms!", "I like moms.")
    (True, False)
    """
    response = _plain(response)
    prompt = _plain(prompt)
    if not response or not prompt:
        return False
    return response == prompt or (prompt in response and _quotes(response, prompt))


def _quotes(response: str, prompt: str) -> bool:
    before, _, after = response.partition(prompt)
    frame = _words(f"{before} {after}")
    is_inside_word = after[:1].isalnum()  # the prompt's last word is the beginning of a longer word
    if is_inside_word or not _words(prompt) or len(frame) > MAX_FRAME_WORDS:
        return False
    before = before.rstrip()
    after = after.lstrip(FINAL_PUNCTUATION)
    in_marks = before[-1:] in tuple(OPENING) and after[:1] in tuple(CLOSING)
    return in_marks or before.rstrip(OPENING).rstrip().endswith(":") or bool(SPEECH_VERBS.search(" ".join(frame)))


def repeat_prompts(responses: Sequence[str], prompts: Sequence[str]) -> np.ndarray:
    """Return whether each response repeats or only quotes its prompt (`repeats_prompt`), (n,) bool.

    >>> repeat_prompts(["i like moms", "Me too!"], ["I like moms.", "I like moms."]).tolist()
    [True, False]
    """
    return np.array([repeats_prompt(*pair) for pair in zip(responses, prompts, strict=True)], dtype=bool)


def _words(text: str) -> list[str]:
    pattern = ASCII_WORD if text.isascii() else WORD
    return pattern.findall(text.lower())


def _plain_words(responses: Sequence[str]) -> list[str]:
    return [" ".join(_words(response)) for response in responses]


def _plain(text: str) -> str:
    return text.strip().rstrip(FINAL_PUNCTUATION).casefold()
