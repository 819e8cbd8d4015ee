"""Errors for unusable input and for tuned models that fail a check, and the formatting of error messages."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec

from evenhand.evaluation.untrusted_text import escape_hidden

MAX_VALUE_LENGTH = 120  # characters of a value in an error
MAX_WORD_LENGTH = 400  # characters of a word in an error, such as a path
MAX_ERROR_LENGTH = 1200  # characters of an error on a terminal


class InputError(ValueError):
    """The error for input that cannot be used.

    The command line prints "field: problem" on one line and exits with status 2. An error of rank 0 is raised on all
    ranks with `reported_by_rank_zero` set to true, so that only rank 0 prints the error.

    Attributes:
        field: the setting, the file or the stage that the error is about.
        problem: the value that was received, what is wrong with it, and how to correct it.

    >>> str(InputError("prompts.descriptors", "1 is too few; give 2 or more."))
    'prompts.descriptors: 1 is too few; give 2 or more.'
    """

    reported_by_rank_zero = False

    def __init__(self, field: object, problem: str) -> None:
        """Make the error; a path can be given as the field."""
        self.field = str(field)
        self.problem = problem
        super().__init__(self.field, problem)  # the arguments by which an error is pickled

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class TuningRejected(InputError):
    """The error for a tuning that is impossible or fails a check. Other tunings of an experiment continue.

    The threshold labels all or no responses, no row can be trained on, or the tuned model equals its base or has become
    worse in language modelling.
    """


@contextmanager
def rejects_tuning() -> Iterator[None]:
    """Convert an InputError that the block raises to TuningRejected."""
    try:
        yield
    except InputError as error:
        raise TuningRejected(error.field, error.problem) from None


def require_extra(extra: str, *modules: str, field: str) -> None:
    """Raise InputError if a module of an optional extra is not installed, with the command that installs the extra.

    `field` is the setting, or the command, that needs the extra.
    """
    for module in modules:
        if find_spec(module) is None:
            raise InputError(field, f"the package {module} is not installed; run pip install 'evenhand[{extra}]'.")


def format_value(value: object) -> str:
    """Return the `repr` of a value, truncated to MAX_VALUE_LENGTH characters and an ellipsis.

    >>> len(format_value("x" * 5000))
    121
    """
    text = repr(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


def format_error(error: Exception) -> str:
    """Return the message of an error on one line, without hidden characters.

    A word longer than MAX_WORD_LENGTH characters is truncated. If the message is then longer than MAX_ERROR_LENGTH
    characters, the middle is omitted.

    >>> format_error(ValueError("no such\\ncolumn"))
    'no such column'
    """
    line = escape_hidden(" ".join(str(error).splitlines()))  # messages of libraries may have several lines
    line = re.sub(rf"(\S{{{MAX_WORD_LENGTH}}})\S+", r"\1…", line)
    half = MAX_ERROR_LENGTH // 2
    return line if len(line) <= MAX_ERROR_LENGTH else f"{line[:half]} … {line[-half:]}"


def unknown_name(field: str, value: str, allowed: Iterable[str]) -> InputError:
    """Return the InputError for a name that is not in `allowed`.

    The message suggests the closest allowed name, or lists all allowed names if no name is close. `field` is the
    setting whose value is the name.
    """
    allowed = sorted(allowed)
    close = get_close_matches(value, allowed, n=1)
    if close:
        return InputError(field, f"{format_value(value)} is unknown; did you mean {close[0]!r}?")
    return InputError(field, f"{format_value(value)} is unknown. Known: {', '.join(allowed)}.")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's class if it has no message."""
    return str(error).strip().split("\n")[0] or type(error).__name__
