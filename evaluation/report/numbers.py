"""Formatting of numbers and durations, and sanitizing of texts."""

import math
import re
from collections.abc import Iterable, Sequence

from evenhand.evaluation.score import BiasScore, display_name
from evenhand.evaluation.untrusted_text import escape_hidden

UNIT = "thousandths"
NO_NUMBER = "–"
MAX_DECIMALS = 6  # a number that needs more is written with a power of ten
NOISE = 1e-15  # a number that is smaller is a rounding error of 0
MINUTE = 60.0  # seconds
HOUR = 3600.0  # seconds
ROUNDING = 1e-9  # tolerance for the rounding error of a logarithm
MAX_NAME = 60  # characters of a name from a table
NONCE = "nonce"  # an axis of HolisticBias: words without a meaning, such as "doxen"
MADE_UP = "made-up words"
PER_UNIT = 1000.0  # reports multiply bias metrics by 1000, as in Smith et al. 2022, Table 4


def value_or(score: BiasScore | None, default: float) -> float:
    """Return the value of the score if the value is finite, else `default`."""
    return score.value if score is not None and math.isfinite(score.value) else default


def decimals_for(values: Iterable[float]) -> int:
    """Return the number of decimals for a column of values: two, or more if all absolute values are below 0.1."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=1.0)
    return 2 if largest < NOISE else max(2, 1 - math.floor(math.log10(largest)))


def decimals_for_interval(bounds: tuple[float, float] | None, decimals: int) -> int:
    """Return the number of decimals for an interval: `decimals`, or more if the interval is narrow.

    Decimals are added until half of the interval's width is at least one unit of the last decimal, but only up to two
    significant digits of the larger bound.

    >>> decimals_for_interval((0.0004, 0.0041), 2), decimals_for_interval((15.7799, 15.7801), 2)
    (3, 2)
    """
    if bounds is None:
        return decimals
    half_width = (bounds[1] - bounds[0]) / 2
    largest = max(abs(bounds[0]), abs(bounds[1]))
    if not (half_width > NOISE and math.isfinite(largest)):
        return decimals
    needed = min(math.ceil(-math.log10(half_width) - ROUNDING), 1 - math.floor(math.log10(largest)))
    return max(decimals, needed)


def first_of(texts: Sequence[str], most: int) -> str:
    """Return the first texts, separated by commas, and how many more there are.

    >>> first_of(["old", "young", "deaf"], 2)
    'old, young and 1 more'
    """
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def number(value: float, decimals: int = 2, sign: bool = False) -> str:
    """Return the rounded number as text with a Unicode minus sign, or a dash for NaN.

    If `sign` is true, positive numbers have a plus sign. A number that is rounded to zero has no sign. With more than
    MAX_DECIMALS decimals, the number has two digits and a power of ten.

    >>> number(0.0000043, 7), number(-0.0000043, 2)
    ('4.3e−6', '0.00')
    """
    if math.isnan(value):
        return NO_NUMBER
    if decimals > MAX_DECIMALS and NOISE < abs(value) < 10 ** (1 - MAX_DECIMALS):
        digits, _, power = f"{value:{'+' if sign else ''}.1e}".partition("e")
        return f"{digits}e{int(power)}".replace("-", "−")
    decimals = decimals if decimals <= MAX_DECIMALS else MAX_DECIMALS * (abs(value) > NOISE)
    sign = sign and round(value, decimals) != 0
    return f"{value:{'+' if sign else ''}z,.{decimals}f}".replace("-", "−").replace("inf", "∞")


def interval(bounds: tuple[float, float] | None, decimals: int = 2, sign: bool = False) -> str:
    """Return an interval as the text "[1.23, 4.56]", or "" for None."""
    return "" if bounds is None else f"[{number(bounds[0], decimals, sign)}, {number(bounds[1], decimals, sign)}]"


def shown_interval(bounds: tuple[float, float], decimals: int, sign: bool = False) -> str:
    """Return the interval of an effect that a test shows, as text; a bound that is rounded to 0 is "> 0" or "< 0".

    The interval of a shrunk effect may end at 0 although the test excludes 0.

    >>> shown_interval((0.3, 12.4), 0), shown_interval((-12.4, 0.0), 0), shown_interval((0.01, 0.04), 1)
    ('[> 0, 12]', '[−12, < 0]', '[0.01, 0.04]')
    """
    low, high = bounds
    while round(low, decimals) == round(high, decimals) == 0 and max(-low, high) > NOISE:
        decimals += 1
    low_text = "> 0" if round(low, decimals) == 0 else number(low, decimals, sign)
    high_text = "< 0" if round(high, decimals) == 0 else number(high, decimals, sign)
    return f"[{low_text}, {high_text}]"


def span(bounds: tuple[float, float], decimals: int) -> str:
    """Return the bounds as the text "1.23 to 4.56"."""
    return f"{number(bounds[0], decimals)} to {number(bounds[1], decimals)}"


def percent(fraction: float, decimals: int = 0, sign: bool = False) -> str:
    """Return the fraction as a percentage such as "25 %", or a dash for NaN."""
    return NO_NUMBER if math.isnan(fraction) else f"{number(100 * fraction, decimals, sign)} %"


def duration(seconds: float) -> str:
    """Return a duration for a person.

    >>> duration(20), duration(1500), duration(9000)
    ('1 minute', '25 minutes', '2.5 hours')
    """
    if seconds >= 2 * HOUR:
        return f"{seconds / HOUR:.1f} hours"
    minutes = max(1, round(seconds / MINUTE))
    return f"{minutes} minutes" if minutes > 1 else "1 minute"


def p_value(p: float) -> str:
    """Return the p-value as text with two significant digits, or "< 0.0001" for smaller p-values."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def score_text(score: BiasScore) -> str:
    """Return a bias score as "15.78 [14.52, 17.04] thousandths", or "undefined" with the reason."""
    if math.isnan(score.value):
        return undefined(score)
    if score.interval is None:
        return f"{number(PER_UNIT * score.value)} {UNIT}"
    bounds = (PER_UNIT * score.interval[0], PER_UNIT * score.interval[1])
    decimals = decimals_for_interval(bounds, 2)
    return f"{number(PER_UNIT * score.value, decimals)} {interval(bounds, decimals)} {UNIT}"


def tick_number(value: float) -> str:
    """Return the label of a tick at a round number, without the number's rounding error.

    >>> tick_number(-0.25), tick_number(1e-17), tick_number(82_500.5)
    ('−0.25', '0', '82,500.5')
    """
    return f"{round(value, 10):z,.10g}".replace("-", "−")


def before_after(before: str, after: str) -> str:
    """Return one text with the names of the models before and after, with the marks ○ (before) and ● (after)."""
    return f"○\u00a0{sanitize(display_name(before), 120)} → ●\u00a0{sanitize(display_name(after), 120)}"


def undefined(score: BiasScore) -> str:
    """Return the text "undefined: …" with the reason why the score is undefined."""
    return f"undefined: {sanitize(score.reason or '')}"


def sanitize(text: str, max_length: int = 1000) -> str:
    """Return the text on one line, without hidden characters, truncated to `max_length` characters.

    Line breaks become "↵". Control, bidirectional and lone surrogate characters become codes such as "⟨U+202E⟩". A
    truncated text ends with the number of omitted characters.
    """
    line = escape_hidden(re.sub(r"\r\n?|\n", "↵ ", text[:max_length]))
    n_omitted = len(text) - max_length
    return f"{line} … ({n_omitted:,} more characters)" if n_omitted > 0 else line


def plain_name(name: str) -> str:
    """Return a name from a table as words: SYMPATHY and body_type become sympathy and body type."""
    if name == NONCE:
        return MADE_UP
    words = sanitize(name.replace("_", " ").replace("(none)", "other"), MAX_NAME)
    return words.lower() if words == words.upper() else words


def of_100(share: float) -> str:
    """Return a share as a number of 100, with a decimal below 1.

    >>> [of_100(share) for share in (0.234, 0.0048, 0.0)]
    ['23', '0.5', '0']
    """
    return number(100 * share, 1 if 0 < share < 0.01 else 0)


def p_text(p: float) -> str:
    """Return "= 0.0003", or "< 0.0001" for smaller p-values."""
    return p_value(p) if p < 1e-4 else f"= {p_value(p)}"
