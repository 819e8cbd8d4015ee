"""The one writer of CSV files: spreadsheets run no text in them as a formula."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence

from evenhand.evaluation.untrusted_text import is_formula, spreadsheet_cell


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]], *, is_exact: bool = False) -> str:
    """Return rows as CSV with a header; a value that is None, NaN or absent is empty.

    Args:
        columns: the names of the columns, in their order.
        rows: the values of each row, by the names of the columns.
        is_exact: whether a program reads the file, so that no text may change. By default, each name and each text is
            changed as `spreadsheet_cell` says.

    Raises:
        ValueError: with `is_exact`, a spreadsheet would run a text as a formula.
    """
    lines = [columns, *([_empty_if_undefined(row.get(name)) for name in columns] for row in rows)]
    if not is_exact:
        return unguarded_csv([spreadsheet_cell(value) for value in line] for line in lines)
    for line in lines:
        for value in line:
            if isinstance(value, str) and is_formula(value):
                raise ValueError(f"{value!r} begins like a formula, which a spreadsheet would run")
    return unguarded_csv(lines)


def unguarded_csv(lines: Iterable[Iterable[object]]) -> str:
    """Return lines of values as CSV (RFC 4180), for a reader in this process; files are written by `csv_text`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")  # else a field with \r is not quoted
    writer.writerows(lines)
    return text.getvalue()


def _empty_if_undefined(value: object) -> object:
    is_undefined = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if is_undefined else value
