"""Predictions of the first token of responses: of all tokens, or of those that a server lists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Predictions:
    """Log-probabilities of the same tokens as the first one of the response to each of n prompts.

    Attributes:
        log_p: log-probabilities, (n, tokens).
        text_of: returns the text of the token in a column.
        own_words: the columns of the tokens of the words by which the prompts differ.
        is_complete: whether these are all tokens; if not, other tokens have the rest of the probability.
    """

    log_p: np.ndarray
    text_of: Callable[[int], str]
    own_words: Sequence[int]
    is_complete: bool = True


def common_predictions(listed: Sequence[Sequence[tuple[str, float]]], texts: Sequence[str]) -> Predictions:
    """Return the predictions of the tokens that are listed for all prompts.

    A token is known by its text only, so a text is left out if a list has it twice, or if it has a part of a
    character, which many tokens share.

    Args:
        listed: the likeliest tokens of each prompt with their log-probabilities, (n,).
        texts: the prompts, (n,).

    >>> found = common_predictions([[("A", -0.1), ("B", -3.0)], [("C", -0.5), ("A", -1.0)]], ["I am x", "I am a"])
    >>> found.log_p.tolist(), found.text_of(0), found.own_words
    ([[-0.1], [-1.0]], 'A', [0])
    """
    from evenhand.evaluation.models.own_words import differing_words

    common = {text for text, _ in listed[0] if "\ufffd" not in text}
    for tokens in listed:
        names = [text for text, _ in tokens]
        common &= {text for text in names if names.count(text) == 1}
    kept = sorted(common)
    log_p = [[dict(tokens)[text] for text in kept] for tokens in listed]
    words = differing_words(texts)
    return Predictions(
        log_p=np.array(log_p, dtype=np.float64).reshape(len(listed), len(kept)),
        text_of=kept.__getitem__,
        own_words=[column for column, text in enumerate(kept) if text.strip().lower() in words],
        is_complete=False,
    )
