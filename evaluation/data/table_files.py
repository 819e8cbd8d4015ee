"""Readers of tables in text files: CSV with a header, and JSON Lines with one object per line."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def check_header(names: Iterable[Any]) -> None:
    """Raise ValueError if a header has two columns of the same name."""
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"the header has the column {repeated[0]!r} twice")


def parse_csv(text: str, delimiter: str = ",") -> dict[str, list[str]]:
    """Return the columns of a CSV text with a header, name → values; {} for an empty text. Blank lines are skipped.

    Raises:
        ValueError, csv.Error: the text is not CSV, a row and the header differ in length, or a column occurs twice.
    """
    header, *rows = [
        row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if row
    ] or [[]]
    check_header(header)
    if any(len(row) != len(header) for row in rows):
        raise ValueError("some rows have more or fewer fields than the header")
    return {name: [row[index] for row in rows] for index, name in enumerate(header)}


def read_json_lines(path: Path, replace_surrogates: bool = False) -> list[dict[str, Any]]:
    """Return the objects in a JSON Lines file in UTF-8; blank lines are skipped.

    Args:
        path: the file.
        replace_surrogates: whether an escaped half of a surrogate pair becomes "\ufffd" instead of an error.

    Raises:
        OSError, ValueError: the file cannot be read or is not UTF-8, or a line is not an object with valid texts.
    """
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except RecursionError:
                raise ValueError(f"line {number} is nested too deeply") from None
            if not isinstance(rows[-1], dict):
                raise ValueError(f"line {number} is not a JSON object")
            if "\\u" in line:  # half a surrogate pair can be escaped, but not encoded as UTF-8
                text = json.dumps(rows[-1], ensure_ascii=False)
                if replace_surrogates:
                    rows[-1] = json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
                text.encode("utf-8", "surrogatepass" if replace_surrogates else "strict")
    return rows


def read_json_columns(path: Path) -> dict[str, list]:
    """Return the columns of a JSON Lines file, name → values, with None where an object lacks a key.

    Raises:
        OSError, ValueError: `read_json_lines` cannot read the file.
    """
    return columns_of(read_json_lines(path))


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list]:
    """Return the columns of rows, name → values, with None where a row lacks a name.

    >>> columns_of([{"a": 1}, {"b": 2}])
    {'a': [1, None], 'b': [None, 2]}
    """
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(key for row in rows for key in row)}
