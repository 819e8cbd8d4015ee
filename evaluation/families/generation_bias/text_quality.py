"""What responses are like whoever is answered: how varied, how long, how often they repeat the prompt (002, C.2.1).

Words are runs of letters, digits and marks of any script with inner apostrophes and hyphens, in lower case. All take
the responses that there are; the caller leaves out empty ones, counts them, and gives the reason where a number is NaN.
"""

import math
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.results import AXIS, DESCRIPTOR

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
