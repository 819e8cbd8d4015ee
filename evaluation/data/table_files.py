"""Tables in files: Parquet, CSV or TSV with a header, and JSON Lines with one object per line."""

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from evenhand.evaluation.errors import InputError

MAX_ROWS = 4_000_000  # maximum of one measurement; 6.4 million prompts take 11.5 GB of memory
SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl")


def read_columns(
    path: Path, content: str, *, text: Collection[str] | None = None, header: Sequence[str] = (), delimiter: str = ","
) -> dict[str, list]:
    """Return the columns of a file, name → values; {} for an empty file.

    Args:
        content: a noun for the content, for error messages.
        text: the columns of a CSV file that are text, while the types of others are inferred; None: all are text.
        header: the names of the columns of a CSV or TSV file without a header.
        delimiter: the delimiter of a CSV file. Quotation marks have no meaning in a file with the suffix .tsv.

    Raises:
        InputError: the file cannot be read or has another suffix, a row and the header differ in length, or a column
            occurs twice.
    """
    try:
        if path.suffix not in SUFFIXES:
            raise ValueError(f"{path.suffix!r} is none of {', '.join(SUFFIXES)}")
        check_regular(path)
        if path.suffix == ".jsonl":
            return columns_of(read_json_lines(path))
        if path.suffix == ".parquet":
            check_row_limit(path)
        if path.suffix == ".parquet" or text is not None:
            table = pyarrow.parquet.read_table(path) if path.suffix == ".parquet" else _read_typed_csv(path, text)
            _check_header(table.column_names)
            return table.to_pydict()
        tsv = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if path.suffix == ".tsv" else {"delimiter": delimiter}
        lines = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
        rows = [row for row in csv.reader(lines, strict=True, **tsv) if row]
        names, *rows = [list(header), *rows] if header else rows or [[]]
        _check_header(names)
        if any(len(row) != len(names) for row in rows):
            raise ValueError("some rows have more or fewer fields than the header")
        return {name: [row[index] for row in rows] for index, name in enumerate(names)}
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InputError(f"{path} cannot be read as {content} ({reason}); give a table in UTF-8.") from None


def check_regular(path: Path) -> None:
    """Raise ValueError for a path that exists and is no file: a pipe or a device may never end."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")


def check_row_limit(path: Path) -> None:
    """Raise ValueError if a Parquet file has too many rows, by its metadata: a few bytes can hold millions of rows."""
    with pyarrow.parquet.ParquetFile(path) as file:
        n = file.metadata.num_rows
    if n > MAX_ROWS:
        raise ValueError(f"it has {n:,} rows, more than {MAX_ROWS:,}")


def _check_header(names: Iterable[Any]) -> None:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"the header has the column {repeated[0]!r} twice")


def _read_typed_csv(path: Path, text: Iterable[str]) -> pa.Table:
    size = min(max(path.stat().st_size, 2**20), 2**30)  # a row must fit into a block
    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(block_size=size),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string())),
    )


def read_json_lines(path: Path, replace_surrogates: bool = False) -> list[dict[str, Any]]:
    """Return the objects in a JSON Lines file in UTF-8; blank lines are skipped.

    Args:
        path: the file.
        replace_surrogates: whether an escaped half of a surrogate pair becomes "\ufffd" instead of an error.

    Raises:
        OSError, ValueError: the file cannot be read or is not UTF-8, or a line is not an object with valid texts.
    """
    check_regular(path)
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


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list]:
    """Return the columns of rows, name → values, with None where a row lacks a name.

    >>> columns_of([{"a": 1}, {"b": 2}])
    {'a': [1, None], 'b': [None, 2]}
    """
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(key for row in rows for key in row)}
