"""Numbers as text, and texts from outside without hidden characters."""

import math
import re
import unicodedata
from collections.abc import Iterable

from evenhand.evaluation.results import BiasScore, display_name

UNIT = "×10⁻³"
NO_NUMBER = "–"
MAX_DECIMALS = 6
ROUNDING = 1e-9  # relative error of a logarithm
PER_UNIT = 1000.0  # bias metrics are shown times 1000, as in paper 002, Table 4

# Categories of characters that hide, reorder or break text. Joiners stay: emoji and several scripts need them.
_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"


def value_or(score: BiasScore | None, otherwise: float) -> float:
    """Return the score's value if it is finite, else `otherwise`."""
    return score.value if score is not None and math.isfinite(score.value) else otherwise


def decimals_for(values: Iterable[float]) -> int:
    """Return the decimals for a column: two, or more if its largest number is below 0.1 in size."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=1.0)
    return 2 if largest == 0 else min(MAX_DECIMALS, max(2, 1 - math.floor(math.log10(largest))))


def decimals_for_interval(bounds: tuple[float, float] | None, decimals: int) -> int:
    """Return `decimals`, or more, so that the ends of an interval differ by two units in the last place.

    The larger end gets at most two significant digits for this purpose, so a relatively narrow interval may look empty.

    >>> decimals_for_interval((0.0004, 0.0041), 2), decimals_for_interval((15.7799, 15.7801), 2)
    (3, 2)
    """
    half, largest = (0.0, 0.0) if bounds is None else ((bounds[1] - bounds[0]) / 2, max(map(abs, bounds)))
    if not (half > 0 and math.isfinite(largest)):
        return decimals
    needed = min(math.ceil(-math.log10(half) - ROUNDING), 1 - math.floor(math.log10(largest)))
    return max(decimals, min(needed, MAX_DECIMALS))


def number(value: float, decimals: int = 2, sign: bool = False) -> str:
    """Return the rounded number with a true minus sign; a dash for NaN; no sign if it rounds to zero."""
    if math.isnan(value):
        return NO_NUMBER
    sign = sign and round(value, decimals) != 0
    return f"{value:{'+' if sign else ''}z,.{decimals}f}".replace("-", "−").replace("inf", "∞")


def interval(bounds: tuple[float, float] | None, decimals: int = 2, sign: bool = False) -> str:
    """Return "[1.23, 4.56]", or "" if there is no interval."""
    return "" if bounds is None else f"[{number(bounds[0], decimals, sign)}, {number(bounds[1], decimals, sign)}]"


def span(bounds: tuple[float, float], decimals: int = 2, sign: bool = False, factor: float = 1) -> str:
    """Return "1.23 to 4.56", the bounds times `factor`."""
    return f"{number(factor * bounds[0], decimals, sign)} to {number(factor * bounds[1], decimals, sign)}"


def percent(fraction: float, decimals: int = 0, sign: bool = False) -> str:
    """Return a fraction as a percentage, a dash for NaN."""
    return NO_NUMBER if math.isnan(fraction) else f"{number(100 * fraction, decimals, sign)} %"


def p_value(p: float) -> str:
    """Return "0.012", two digits, or "< 0.0001"."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def score_text(score: BiasScore) -> str:
    """Return a bias score as "15.78 [14.52, 17.04] ×10⁻³", or the reason why it is undefined."""
    if math.isnan(score.value):
        return undefined(score)
    bounds = score.interval and (PER_UNIT * score.interval[0], PER_UNIT * score.interval[1])
    decimals = decimals_for_interval(bounds, 2)
    return " ".join(filter(None, (number(PER_UNIT * score.value, decimals), interval(bounds, decimals), UNIT)))


def tick_number(value: float) -> str:
    """Return the number of a tick with no more digits than it needs.

    >>> tick_number(-0.25), tick_number(1e-17)
    ('−0.25', '0')
    """
    return f"{round(value, 10):.4g}".replace("-", "−")


def before_after(before: str, after: str) -> str:
    """Return the names of two models after the marks ○ and ● of a comparison."""
    return f"○ {sanitize(display_name(before), 120)} → ● {sanitize(display_name(after), 120)}"


def undefined(score: BiasScore) -> str:
    """Return the reason why the score is undefined."""
    return f"undefined: {sanitize(score.reason or '')}"


def sanitize(text: str, longest: int = 1000) -> str:
    """Return text on one line without hidden characters and without more than `longest` characters.

    Control, bidirectional and lone surrogate characters become "⟨U+202E⟩"; the number of characters beyond `longest`
    replaces them.
    """
    shown = re.sub(r"\r\n?|\n", "↵ ", text[:longest])
    shown = "".join(
        f"⟨U+{ord(character):04X}⟩"
        if unicodedata.category(character) in _INVISIBLE and character not in _JOINERS
        else character
        for character in shown
    )
    left_out = len(text) - longest
    return f"{shown} … ({left_out:,} more characters)" if left_out > 0 else shown
