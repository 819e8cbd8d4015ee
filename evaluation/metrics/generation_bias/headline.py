"""The number at the top of the reports: how many of 100 answers would have to change style, and its size in words."""

import math
from dataclasses import dataclass

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics.generation_bias.engine.estimates import root
from evenhand.evaluation.metrics.generation_bias.stopping_question import SIZES
from evenhand.evaluation.metrics.generation_bias.words import words
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
        least, most: the words of the interval's ends, "none", "small", "medium" or "large"; of the size itself if it
            has no interval, and "" if the size is undefined.
        reason: why the size is undefined.
    """

    moved: float
    interval: tuple[float, float] | None
    least: str
    most: str
    reason: str


def find_size(score: BiasScore) -> Size:
    """Return the size of a bias by its score; a 0 without an interval, since nothing varies, has no words."""
    moved, ends = root(score.value, score.interval, 2.0)
    if math.isnan(moved) or (moved == 0 and ends is None):
        return Size(moved, ends, "", "", score.reason or "")
    low, high = ends or (moved, moved)
    return Size(moved, ends, size_word(low), size_word(high), "")


def size_finding(
    score: BiasScore, *, is_shown: bool, in_language: bool = False, language: str | None = None
) -> Finding:
    """Return the `size` of a bias as a finding of the kind "size".

    Args:
        score: pooled FGB*.
        is_shown: whether the bias is shown.
        in_language: whether it is of the answers in the language of the requests only.
        language: the name of this language; None if it is not known, or if there are several.
    """
    answers = {"in_language": in_language, "language": language}
    return Finding("size", {"size": find_size(score), "is_shown": is_shown, **answers})


def size_change(
    before: BiasScore,
    after: BiasScore,
    reduction: BiasScore | None,
    *,
    is_shown: bool,
    in_language: bool = False,
    language: str | None = None,
) -> Finding:
    """Return how the size of a bias changed, as a finding of the kind "size_change"; arguments as of `size_finding`.

    Its values are also the sizes `before` and `after`, and the relative `change` of the moved answers with its
    `interval`, the end nearer to 0 first; both are None if the reduction has no interval. Where the part 1 − r of
    pooled FGB* remains, the part √(1 − r) of these answers does.
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
    answers = {"in_language": in_language, "language": language}
    return Finding("size_change", {**sides, "is_shown": is_shown, "change": change, "interval": ends, **answers})


def headline_value(size: Finding) -> str:
    """Return the number at the top: "3.7 of 100", "−48 %", or "2.9 → 16.2 of 100" for a change without a percentage.

    What is not shown has none, "".
    """
    return words(Finding("top_of_size" if size.kind == "size" else "top_of_size_change", size.values))


def size_word(moved: float) -> str:
    """Return "none", "small", "medium" or "large", by the scale of docs/deciding.md, for a share of moved answers."""
    if moved == 0:
        return "none"
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
