"""The one error a user's input can raise, and that of a tuning that a guard refuses."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

LONGEST_SHOWN = 120  # characters of a value that an error shows
LONGEST_LINE = 1200  # of a whole error on a terminal, whatever it quotes


class InputError(ValueError):
    """Input that cannot be used; its message names the field, the value received and the fix.

    The command line prints the message alone and exits with status 2; nothing has been lost by then. One that the main
    process of several raised and says is raised in the others, too, as `reported_by_rank_zero`.
    """

    reported_by_rank_zero = False


class TuningRejected(InputError):
    """A tuning went through and its model is not handed out: it is its base's like, or was spoiled."""


def shown(value: Any) -> str:
    """Return a value as errors show it: its beginning, where it is long.

    >>> len(shown("x" * 5000))
    121
    """
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def one_line(error: Exception) -> str:
    """Return an error as a terminal shows it: on one line, its middle left out where it is long.

    >>> one_line(ValueError("no such\\ncolumn"))
    'no such column'
    """
    line = " ".join(str(error).splitlines())  # what a library says may have several
    half = LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]} … {line[-half:]}"


def unknown_name(field: str, value: str, allowed: Iterable[str]) -> InputError:
    """Return the error for a name that is not one of `allowed`: with the one likely meant, else with all of them."""
    allowed = sorted(allowed)
    close = get_close_matches(value, allowed, n=1)
    if close:
        return InputError(f"{field}: {shown(value)} is unknown; did you mean {close[0]!r}?")
    return InputError(f"{field}: {shown(value)} is unknown. Known: {', '.join(allowed)}.")
