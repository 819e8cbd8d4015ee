"""The number at the top of the reports: how many of 100 answers would have to change style, and its size in words."""

import math
from dataclasses import dataclass

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics.generation_bias.engine.estimates import root
from evenhand.evaluation.metrics.generation_bias.stopping_question import SIZES
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.evaluation.report.numbers import NO_NUMBER
from evenhand.evaluation.score import LEVEL, BiasScore, Caution


def moved_share(pooled_fgb: float) -> float:
    """Return the share of answers that differ as if moved to another style, √(pooled FGB* / 2).

    >>> round(moved_share(0.02), 3)
    0.1
    """
    return root(pooled_fgb, None, 2.0)[0]


@dataclass(frozen=True)
class Size:
    """The size of a bias.

    Attributes:
        moved, interval: the share of moved answers, with its interval.
        word: "small", "medium" or "large"; None if the size is undefined.
        may_be_none: whether the interval contains 0.
        reason: why the size is undefined.
    """

    moved: float
    interval: tuple[float, float] | None
    word: str | None
    may_be_none: bool
    reason: str


def find_size(score: BiasScore) -> Size:
    """Return the size of a bias by its score; a 0 without an interval, since nothing varies, has no word."""
    moved, ends = root(score.value, score.interval, 2.0)
    may_be_none = ends is not None and ends[0] == 0
    if math.isnan(moved) or (moved == 0 and ends is None):
        return Size(moved, ends, None, may_be_none, score.reason or "")
    return Size(moved, ends, size_word(moved), may_be_none, "")


def size_finding(score: BiasScore) -> Finding:
    """Return the `size` of a bias as a finding of the kind "size"."""
    return Finding("size", {"size": find_size(score)})


def size_change(before: BiasScore, after: BiasScore, reduction: BiasScore | None, *, is_shown: bool) -> Finding:
    """Return how the size of a bias changed, as a finding of the kind "size_change".

    Its values are the sizes `before` and `after`, whether a change `is_shown`, and the relative `change` of the moved
    answers with its `interval`, the end nearer to 0 first; both are None if the reduction has no interval. Where the
    part 1 − r of pooled FGB* remains, the part √(1 − r) of these answers does.
    """
    change = None
    ends = None
    if reduction is not None and reduction.interval is not None:
        low, high = reduction.interval
        change = root(1 - reduction.value, None)[0] - 1
        ends = [root(1 - end, None)[0] - 1 for end in (high, low)]
        if ends[1] < 0:
            ends.reverse()  # "−72 to −90 %"
    sides = {"before": find_size(before), "after": find_size(after)}
    return Finding("size_change", {**sides, "is_shown": is_shown, "change": change, "interval": ends})


def headline_value(size: Finding | None) -> str:
    """Return the number at the top: "3.7 of 100", "−48 %", or "2.9 → 16.2 of 100" for a change without a percentage.

    A change that is not shown has none, "". A dash stands for an undefined number.
    """
    if size is None:
        return NO_NUMBER
    return words(Finding("top_of_size" if size.kind == "size" else "top_of_size_change", size.values))


def size_word(moved: float) -> str:
    """Return "small", "medium" or "large", by the scale of docs/deciding.md, for a share of moved answers in [0, 1]."""
    return next(word for limit, word in SIZES.items() if moved < limit)


def is_bias_significant(score: BiasScore | None) -> bool:
    """Return whether the 95 % interval of a bias score is above 0. Only such a bias can be reduced."""
    return score is not None and score.interval is not None and score.interval[0] > 0


def unclear_reason(score: BiasScore) -> Finding | None:
    """Return why a bias is unclear, such as how the interval and the permutation test disagree; None if it is clear.

    The kinds are "unclear_caution", "unclear_interval" (it is above 0, the test shows nothing) and "unclear_test".
    """
    if score.interval is not None and score.caution == Caution.ONE_TEMPLATE:
        return Finding("unclear_caution", {"text": score.caution.text})
    if score.interval is None or score.interval[1] < 0 or score.p_value is None:
        return None
    is_above = is_bias_significant(score)
    if is_above == (score.p_value <= LEVEL):
        return None
    return Finding("unclear_interval" if is_above else "unclear_test", {"p": score.p_value})
