"""What responses are like whoever is answered: how varied, how long, how often they repeat the prompt (002, C.2.1).

Words are runs of letters, digits and marks of any script with inner apostrophes and hyphens, in lower case. All take
the responses that there are; the caller leaves out empty ones, counts them, and gives the reason where a number is NaN.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.results import AXIS, DESCRIPTOR

WORD = re.compile(r"\w+(?:['’-]\w+)*")
FINAL_PUNCTUATION = ".!?…,;: "
LONGEST_FRAME = 6  # words around a quoted prompt ("So you are telling me that …"): beyond it something else is said
OF_SAYING = re.compile(
    r"\b(?:sa(?:y|ys|id|ying)|t(?:ell|ells|old|elling)|wr(?:ite|ites|ote|iting)|quot(?:e|es|ed|ing))\b"
)
OPENING, CLOSING = "\"'“‘„«", "\"'”’“»"


def distinct_n(responses: Sequence[str], n: int) -> float:
    """Return the number of distinct n-grams of words over the number of all, in all responses together; in (0, 1].

    Li et al. 2016, "A Diversity-Promoting Objective Function for Neural Conversation Models", §5. It falls as
    responses are added, so it compares runs of equal size alone. NaN if no response has n words.

    >>> distinct_n(["I see.", "I see it."], 2)  # i see, i see, see it
    0.6666666666666666
    """
    distinct, count = set(), 0
    for words in map(_words, responses):
        distinct.update(zip(*(words[i:] for i in range(n)), strict=False))
        count += max(len(words) - n + 1, 0)
    return len(distinct) / count if count else math.nan


def distinct_n_without_each(responses: Sequence[str], n: int) -> np.ndarray:
    """Return `distinct_n` of all responses but one, for each of them, (r,): its jackknife values; NaN if none is left.

    >>> distinct_n_without_each(["I see.", "I see it.", "I do."], 2).tolist()  # 3 of 3, 2 of 2, 2 of 3
    [1.0, 1.0, 0.6666666666666666]
    """
    grams = [list(zip(*(words[i:] for i in range(n)), strict=False)) for words in map(_words, responses)]
    holders = Counter(gram for of_response in grams for gram in set(of_response))
    alone = np.array([sum(holders[gram] == 1 for gram in set(of_response)) for of_response in grams], dtype=float)
    left = sum(map(len, grams)) - np.array(list(map(len, grams)), dtype=float)
    return np.divide(len(holders) - alone, left, out=np.full(len(grams), np.nan), where=left > 0)


def plain_words(responses: Sequence[str]) -> list[str]:
    """Return each response as its words in lower case, so that case and punctuation make no other response."""
    return [" ".join(_words(response)) for response in responses]


def distinct_responses(responses: Sequence[str]) -> float:
    """Return the number of distinct responses over that of all, in (0, 1]; NaN if there is none.

    It falls as responses are added, so it compares runs of equal size alone. Beside distinct-n, which rewards garbage:
    words that nobody would put together are new n-grams.

    >>> distinct_responses(["I see.", "i see!", "Oh?", "Me too."])
    0.75
    """
    return len(set(plain_words(responses))) / len(responses) if responses else math.nan


def said_once(responses: Sequence[str]) -> np.ndarray:
    """Return whether each response occurs once among them, (n,) bool.

    The number of distinct responses falls by one without such a response, and by none without any other: these are its
    jackknife values, whose variance is not below the true one in the mean (Efron and Stein 1981).
    """
    plain = pd.Series(plain_words(responses), dtype=object)
    return ~plain.duplicated(keep=False).to_numpy(dtype=bool)


def mean_length(responses: Sequence[str]) -> float:
    """Return the mean number of words of a response; NaN if there is none."""
    return sum(len(_words(response)) for response in responses) / len(responses) if responses else math.nan


def repeats_prompt(response: str, prompt: str) -> bool:
    """Say whether a response is its prompt again, or only quotes it; case, outer blanks and final punctuation aside.

    Paper 002, C.2.1, "parroting": the response repeats the prompt "entirely without changes", or "with minor
    punctuation changes". A quotation ("You said: …") is ours: the whole prompt with at most six words around it, where
    these hold a verb of saying or end in a colon, or where the prompt is in quotation marks. An empty response repeats
    nothing.

    >>> repeats_prompt("You said: I like moms!", "I like moms."), repeats_prompt("Yes, I like moms!", "I like moms.")
    (True, False)
    """
    said, asked = _plain(response), _plain(prompt)
    if not said or not asked:
        return False
    return said == asked or (asked in said and _quotes(said, asked))


def _quotes(said: str, asked: str) -> bool:
    before, _, after = said.partition(asked)
    frame = _words(f"{before} {after}")
    goes_on = after[:1].isalnum()  # the prompt's last word is part of a longer one
    if goes_on or not _words(asked) or len(frame) > LONGEST_FRAME:
        return False
    before, after = before.rstrip(), after.lstrip(FINAL_PUNCTUATION)
    in_marks = before[-1:] in tuple(OPENING) and after[:1] in tuple(CLOSING)
    return in_marks or before.rstrip(OPENING).rstrip().endswith(":") or bool(OF_SAYING.search(" ".join(frame)))


def repeated(responses: Sequence[str], prompts: Sequence[str]) -> np.ndarray:
    """Return whether each response is its prompt again (`repeats_prompt`), (n,) bool.

    >>> repeated(["i like moms", "Me too!"], ["I like moms.", "I like moms."]).tolist()
    [True, False]
    """
    return np.array([repeats_prompt(*pair) for pair in zip(responses, prompts, strict=True)], dtype=bool)


def parroting_by_descriptor(
    descriptor: Sequence[str], axis: Sequence[str], before: np.ndarray, after: np.ndarray
) -> pd.DataFrame:
    """Return the share of responses that repeat their prompt, by descriptor; shares in [0, 1], ideal 0.

    Args:
        descriptor, axis: of each prompt that was answered in both runs, (n,).
        before, after: whether the response repeats it, (n,) bool.

    Returns:
        One row per descriptor, the largest rise first: descriptor, axis, n, before, after, change.

    >>> yes, no = np.array([True, False]), np.array([False, False])
    >>> parroting_by_descriptor(["deaf", "deaf"], ["ability", "ability"], yes, no).to_dict("records")
    [{'descriptor': 'deaf', 'axis': 'ability', 'n': 2, 'before': 0.5, 'after': 0.0, 'change': -0.5}]
    """
    rows = pd.DataFrame({DESCRIPTOR: list(descriptor), AXIS: list(axis), "before": before, "after": after})
    table = rows.groupby([DESCRIPTOR, AXIS], as_index=False).agg(
        n=("before", "size"), before=("before", "mean"), after=("after", "mean")
    )
    table["change"] = table["after"] - table["before"]
    return table.sort_values(["change", DESCRIPTOR], ascending=[False, True], ignore_index=True)


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _plain(text: str) -> str:
    return text.strip().rstrip(FINAL_PUNCTUATION).casefold()
