"""The number at the top of the reports: how many of 100 answers would have to change style, and the line below it."""

import math

from evenhand.evaluation.metrics.generation_bias.engine.spread import root
from evenhand.evaluation.metrics.generation_bias.stopping_question import SIZES
from evenhand.evaluation.metrics.generation_bias.verdict import moved_text
from evenhand.evaluation.report.numbers import NO_NUMBER, number, percent, span, undefined
from evenhand.evaluation.score import BiasScore

SCALE = "below 2 of 100 is small, to 5 medium, above 5 large, on this project's scale"


def headline_value(score: BiasScore) -> str:
    """Return "3.7 of 100", the share of responses that would have to change style (`scale_scores`), or a dash."""
    return NO_NUMBER if math.isnan(score.value) else f"{moved_text(score.value)} of 100"


def headline_caption(score: BiasScore, when: str = "") -> str:
    """Return what the number at the top is, with its size in words and its interval."""
    if math.isnan(score.value):
        return f"The size of the difference in style{when} is {undefined(score)}."
    _, ends = root(score.value, score.interval, 2.0)
    bounds = f" (95 % interval {span(ends, 1, False, 100)})" if ends else ""
    return (
        f"{_size_of(score)}: style differs between people as if so many answers had been moved to another "
        f"style{when}{bounds}; {SCALE}."
    )


def comparison_headline(before: BiasScore, after: BiasScore, reduction: BiasScore | None) -> tuple[str, str]:
    """Return the number at the top of a comparison and the line below it: the reduction, if it has an interval."""
    if reduction is None or reduction.interval is None:
        return headline_value(after), headline_caption(after, " in the second run")
    # Where the part 1 − r of pooled FGB* remains, the part √(1 − r) of the moved answers does.
    low, high = reduction.interval
    remaining, _ = root(1 - reduction.value, None)
    changes = [-100 * (1 - root(1 - end, None)[0]) for end in (high, low)]
    if changes[1] < 0:
        changes.reverse()  # the end nearer to 0 is first: "−72 to −90 %"
    caption = (
        f"of what differed in style with the person, 95 % interval {number(changes[0], 0)} to {number(changes[1], 0)} "
        f"%. The size before: {_size_of(before)}; after: {_size_of(after)} ({SCALE})."
    )
    return percent(-(1 - remaining), 0, True), caption


def _size_of(score: BiasScore) -> str:
    """Return the size of a bias in words; a bias whose interval contains 0 may be none."""
    moved, ends = root(score.value, score.interval, 2.0)
    may_be_none = ends is not None and ends[0] == 0
    return f"{size_word(moved)}, perhaps none" if may_be_none else size_word(moved)


def size_word(moved: float) -> str:
    """Return "small", "medium" or "large", by the scale of docs/deciding.md, for a share of moved answers in [0, 1]."""
    return next(word for limit, word in SIZES.items() if moved < limit)
