"""The error that a user's input can raise, and the error of a tuned model that fails a check."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from evenhand.evaluation.untrusted_text import escape_hidden

MAX_VALUE_LENGTH = 120  # characters of a value in an error
MAX_ERROR_LENGTH = 1200  # characters of an error on a terminal


class InputError(ValueError):
    """Input that cannot be used; its message names the field, the value received and the fix.

    The command line prints only the message and exits with status 2. An error of rank 0 is raised on the other ranks,
    too, where `reported_by_rank_zero` is true, so that it is printed once.
    """

    reported_by_rank_zero = False


class TuningRejected(InputError):
    """The tuning finished, but a check rejected its model: it equals its base, or its language modelling got worse."""


def format_value(value: Any) -> str:
    """Return the representation of a value, cut after MAX_VALUE_LENGTH characters.

    >>> len(format_value("x" * 5000))
    121
    """
    text = repr(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


def format_error(error: Exception) -> str:
    """Return the message of an error on one line, without hidden characters, cut to MAX_ERROR_LENGTH characters.

    A longer message loses its middle.

    >>> format_error(ValueError("no such\\ncolumn"))
    'no such column'
    """
    line = escape_hidden(" ".join(str(error).splitlines()))  # messages of libraries may have several lines
    half = MAX_ERROR_LENGTH // 2
    return line if len(line) <= MAX_ERROR_LENGTH else f"{line[:half]} … {line[-half:]}"


def unknown_name(field: str, value: str, allowed: Iterable[str]) -> InputError:
    """Return the error for a name that is not in `allowed`: it suggests the closest allowed name, else lists all."""
    allowed = sorted(allowed)
    close = get_close_matches(value, allowed, n=1)
    if close:
        return InputError(f"{field}: {format_value(value)} is unknown; did you mean {close[0]!r}?")
    return InputError(f"{field}: {format_value(value)} is unknown. Known: {', '.join(allowed)}.")
