"""The rows of a log from a day on, or before a day, such as the day on which the model was changed."""

import logging
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.data.readers.cells import is_blank
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, format_value

log = logging.getLogger("evenhand")

DATE = "date"
# Names of the column of dates in logs of products and of other tools (langfuse, OpenAI), in lower case.
NAMES = (DATE, "day", "datetime", "timestamp", "time", "created_at", "createdat", "created", "starttime", "start_time")
MIN_SECONDS = 1e8  # since 1970: a smaller number, such as 20260831 or 2026, is no number of seconds
# From which number of seconds on a number is of a smaller unit: as seconds, it would be after the year 5000.
UNITS = {1e17: "ns", 1e14: "us", 1e11: "ms", MIN_SECONDS: "s"}
FORMS = "write 2026-08-31, 2026-08-31T12:00:00Z, or seconds since 1970"


def date_column(table: dict[str, list]) -> str | None:
    """Return the name of the column of dates in a table; None if it has none."""
    by_name = {name.lower(): name for name in reversed(table)}  # of two equal names, the first
    return next((by_name[name] for name in NAMES if name in by_name), None)


def in_period(
    table: dict[str, list],
    path: Path,
    since: date | None,
    before: date | None,
    header: Sequence[str] = (),
    named: Mapping[str, str] | None = None,
) -> dict[str, list]:
    """Return the rows of a table from the day `since` on, and before the day `before`, in UTC; None: no limit.

    Rows without a date are left out, and the log says how many they are. `header` has the columns of the file, and
    `named` the names there of columns that have other names, for messages.

    Raises:
        InputError: a day is given, and the table has no column of dates, a cell is no date, or no row is left.
    """
    name = date_column(table)
    shown = name if name is None else (named or {}).get(name, name)
    if since is None and before is None:
        if name is not None:
            since_day = spelled("responses.since_day", "DAY")
            before_day = spelled("responses.before_day", "DAY")
            log.info("responses: all dates of %r; choose by %s and %s", shown, since_day, before_day)
        return table
    field = "responses.since_day" if since is not None else "responses.before_day"
    if name is None:
        raise InputError(
            field,
            f"{path} has no column {DATE!r}, only {', '.join(header or table)}; name it by "
            f"{spelled('responses.columns', f'{{{DATE}: …}}')}.",
        )
    times = _times(table[name], str(shown), path)
    inside = times.notna()
    if since is not None:
        inside &= times >= pd.Timestamp(since, tz="UTC")
    if before is not None:
        inside &= times < pd.Timestamp(before, tz="UTC")
    rows = np.flatnonzero(inside)
    if not len(rows):
        first = times.min().date() if times.notna().any() else "no day"
        last = times.max().date() if times.notna().any() else "no day"
        raise InputError(field, f"no row of {path} is in this period; its dates are from {first} to {last}.")
    n_without = int(times.isna().sum())
    without = f"; {n_without:,} have no date" if n_without else ""
    log.info("responses: %s of %s rows are in the period, by %r%s", f"{len(rows):,}", f"{len(times):,}", shown, without)
    return {column: [values[row] for row in rows] for column, values in table.items()}


def _times(values: list, name: str, path: Path) -> pd.Series:
    """Return the times of cells, in UTC; NaT for blank cells. Days and times without a zone are of UTC."""
    times = [pd.NaT if is_blank(value) else _time(value) for value in values]
    wrong = next((value for value, time in zip(values, times, strict=True) if time is None), None)
    if wrong is not None:
        raise InputError("responses", f"{path}: {format_value(wrong)} in the column {name!r} is no date; {FORMS}.")
    return pd.Series(times, dtype="datetime64[ns, UTC]")


def _time(value: object) -> pd.Timestamp | None:
    """Return the time of a cell; None if it has none, or may be read in two ways, such as 08/09/2026.

    >>> [str(_time(value)) for value in ("2026-08-31", 1788134400, "1788134400000", "2026-08-31T01:00:00+02:00")]
    ['2026-08-31 00:00:00+00:00', '2026-08-31 00:00:00+00:00', '2026-08-31 00:00:00+00:00', '2026-08-30 23:00:00+00:00']
    >>> _time("08/09/2026"), _time("yesterday"), _time(True)
    (None, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        seconds = float(value) if isinstance(value, int | float | str) else np.nan
    except ValueError:
        seconds = np.nan
    try:
        if np.isfinite(seconds):
            unit = next((unit for least, unit in UNITS.items() if seconds > least), None)
            return None if unit is None else pd.Timestamp(seconds, unit=unit, tz="UTC")
        time = pd.to_datetime(value, format="ISO8601") if isinstance(value, str) else pd.Timestamp(str(value))
    except (ValueError, TypeError, OverflowError):
        return None
    return time.tz_localize("UTC") if time.tzinfo is None else time.tz_convert("UTC")
