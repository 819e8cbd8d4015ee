"""The rows of a log in a period, and dates that cannot be read."""

from datetime import date, datetime
from pathlib import Path

import pytest

from evenhand.evaluation.data.readers.periods import _time, date_column, in_period
from evenhand.evaluation.errors import InputError

LOG = Path("log.csv")
TEXTS = {"response": ["a", "b", "c", "d"]}


@pytest.mark.parametrize(
    "dates",
    [
        ["2026-08-30", "2026-08-31T00:00:00Z", None, "2026-08-31T23:59:59-03:00"],
        [date(2026, 8, 30), datetime(2026, 8, 31), None, datetime(2026, 9, 1, 3)],
        [1788048000, 1788134400, None, 1788231599],
        ["1788048000000", "1788134400000", "n/a", "1788231599000"],
    ],
    ids=["text", "objects", "seconds", "milliseconds"],
)
def test_a_day_divides_a_log_into_rows_before_and_after_and_rows_without_a_date_are_in_neither(dates):
    day = date(2026, 8, 31)
    table = TEXTS | {"created_at": dates}
    assert in_period(table, LOG, None, day)["response"] == ["a"]
    assert in_period(table, LOG, day, None)["response"] == ["b", "d"]
    assert in_period(table, LOG, day, date(2026, 9, 1))["response"] == ["b"]  # the last one is on the next day in UTC
    assert in_period(table, LOG, None, None) is table


@pytest.mark.parametrize("cell", ["08/09/2026", "yesterday", 2026, 20260831, True])
def test_a_cell_that_is_no_date_is_refused_with_the_forms_that_are_read(cell):
    table = TEXTS | {"date": ["2026-08-30", cell, "2026-08-30", "2026-08-30"]}
    with pytest.raises(InputError, match="^responses: log.csv: .*in the column 'date' is no date; write 2026-08-31"):
        in_period(table, LOG, date(2026, 8, 1), None)


def test_a_file_without_dates_or_without_a_row_in_the_period_is_refused():
    with pytest.raises(
        InputError, match="^responses.before_day: .*no column 'date', only response.*--responses.columns"
    ):
        in_period(TEXTS, LOG, None, date(2026, 8, 1))
    table = TEXTS | {"Date": ["2026-08-02", "2026-08-03", None, "2026-08-04"]}
    with pytest.raises(InputError, match="^responses.since_day: .*from 2026-08-02 to 2026-08-04"):
        in_period(table, LOG, date(2026, 9, 1), None)


def test_a_column_named_date_wins():
    assert date_column({"created": [], "Date": []}) == "Date"
    assert date_column({"text": []}) is None


def test_numbers_of_any_unit_are_the_same_day():
    """Seconds, milliseconds, microseconds and nanoseconds since 1970 of 2026-08-31."""
    days = {str(_time(1788134400 * 10**power).date()) for power in (0, 3, 6, 9)}
    assert days == {"2026-08-31"}
