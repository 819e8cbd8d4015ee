"""The number at the top of the reports: how many of 100 answers would have to change style, and its size in words."""

import math
from collections.abc import Mapping
from typing import Any

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics.generation_bias.engine.spread import root
from evenhand.evaluation.metrics.generation_bias.stopping_question import SIZES
from evenhand.evaluation.report.numbers import NO_NUMBER, number, percent
from evenhand.evaluation.score import BiasScore


def moved_share(pooled_fgb: float) -> float:
    """Return the share of answers that differ as if moved to another style, √(pooled FGB* / 2).

    >>> round(moved_share(0.02), 3)
    0.1
    """
    return root(pooled_fgb, None, 2.0)[0]


def size_finding(score: BiasScore) -> Finding:
    """Return the size of a bias as a finding of the kind "size": the share of moved answers, interval and word."""
    return Finding("size", _size(score))


def size_change(before: BiasScore, after: BiasScore, reduction: BiasScore | None) -> Finding:
    """Return how the size of a bias changed, as a finding of the kind "size_change".

    Its value `change` is the relative change of the moved answers with its interval, the end nearer to 0 first; None if
    the reduction has no interval. Where the part 1 − r of pooled FGB* remains, the part √(1 − r) of these answers does.
    """
    change = None
    if reduction is not None and reduction.interval is not None:
        low, high = reduction.interval
        ends = [root(1 - end, None)[0] - 1 for end in (high, low)]
        if ends[1] < 0:
            ends.reverse()  # "−72 to −90 %"
        change = {"value": root(1 - reduction.value, None)[0] - 1, "interval": ends}
    return Finding("size_change", {"before": _size(before), "after": _size(after), "change": change})


def headline_value(size: Finding | None) -> str:
    """Return the number at the top: "3.7 of 100", "−48 %", or "2.9 → 16.2 of 100" for a change without a percentage.

    A dash stands for an undefined number.
    """
    if size is None:
        return NO_NUMBER
    values = size.values
    if size.kind == "size":
        return NO_NUMBER if values["word"] is None else f"{_of_100(values)} of 100"
    if None in (values["before"]["word"], values["after"]["word"]):
        return NO_NUMBER
    if values["change"] is not None:
        return percent(values["change"]["value"], 0, True)
    return f"{_of_100(values['before'])} → {_of_100(values['after'])} of 100"


def _of_100(size: Mapping[str, Any]) -> str:
    return number(100 * size["moved"], 1)


def _size(score: BiasScore) -> dict[str, Any]:
    """Return the share of moved answers with its interval, its word, and whether it may be none."""
    moved, ends = root(score.value, score.interval, 2.0)
    word = None if math.isnan(moved) else size_word(moved)
    reason = score.reason if math.isnan(moved) else ""
    may_be_none = ends is not None and ends[0] == 0
    return {"moved": moved, "interval": ends, "word": word, "may_be_none": may_be_none, "reason": reason}


def size_word(moved: float) -> str:
    """Return "small", "medium" or "large", by the scale of docs/deciding.md, for a share of moved answers in [0, 1]."""
    return next(word for limit, word in SIZES.items() if moved < limit)
