"""Tables in files: Parquet, delimited text with a header, and JSON, as an array or one object a line.

The encoding and the delimiter of a text file are found from its content. A file that two readings fit is an error.
"""

import csv
import io
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from evenhand.evaluation.csv_files import unguarded_csv
from evenhand.evaluation.errors import InputError, format_value

log = logging.getLogger("evenhand")

MAX_ROWS = 4_000_000  # maximum of one measurement; 6.4 million prompts take 11.5 GB of memory
DELIMITED = (".csv", ".tsv", ".txt")
JSON_LINES = (".jsonl", ".ndjson")
JSON_SUFFIXES = (*JSON_LINES, ".json")
SUFFIXES = (".parquet", *DELIMITED, *JSON_SUFFIXES)
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
BLANK = ' "' + "".join(DELIMITERS)  # the characters of a blank row
BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",  # before UTF-16, whose mark is the start of this one
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
NO_TEXT = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\x1f\x8b", b"PAR1")  # first bytes of archives, Excel and Parquet
MAX_NULL_SHARE = 0.25  # of the bytes of a text in UTF-8, in which a null character may be a part of an answer
WESTERN = "cp1252"  # Windows and Excel in Western Europe and America
OTHER_ENCODINGS = (
    "cp1250",
    "cp1251",
    "cp1253",
    "cp1254",
    "mac_roman",
    "cp850",
    "gb18030",
    "shift_jis",
    "big5",
    "euc_kr",
)
# What the bytes of other encodings look like in cp1252: three letters beyond ASCII in a row (Cyrillic, Greek, Chinese),
# a sign or a capital in a word (Polish, Mac Roman), or a letter that stands for a Turkish letter.
NOT_WESTERN = re.compile(
    r"[^\W\d_a-zA-Z]{3}|[^\W\d_]([^\w\s\x00-\x7f’‘´`·–—…\xad]|[¹³¼½¾])[^\W\d_]|[a-z][À-ÞŠŽŒŸ][a-z]|[þðÞÐ]"
)
SEPARATOR_LINE = re.compile(r'"?sep=([,;|\t])"?\r?\n', re.IGNORECASE)  # the first line of files for Excel
ESCAPED_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)\\"')
ROWS = ("data", "rows", "responses", "results", "records", "samples", "items", "traces", "logs")  # names of a table
MAX_DEPTH = 3  # of a table in a JSON file
csv.field_size_limit(2**31 - 1)  # the default is 128 KiB


def read_columns(
    path: Path, content: str, *, known: Collection[str] = (), typed: bool = False, header: Sequence[str] = ()
) -> dict[str, list]:
    """Return the columns of a file, name → values; {} for an empty file.

    Args:
        content: a noun for the content, for error messages.
        known: names that columns may have. A column whose name differs by capitals or outer white space gets this name.
        typed: whether the types of the columns of a delimited file, other than the `known` ones, are inferred; else
            all are text.
        header: the names of the columns of a delimited file without a header.

    Raises:
        InputError: the file cannot be read or has another suffix, two delimiters or encodings fit the file, a row and
            the header differ in length, or a column occurs twice.
    """
    try:
        if path.suffix.lower() not in SUFFIXES:
            raise ValueError(f"{path.suffix!r} is none of {', '.join(SUFFIXES)}")
        check_regular(path)
        if is_json(path):
            columns = columns_of(read_json_rows(path))
        elif path.suffix.lower() == ".parquet":
            check_row_limit(path)
            table = pyarrow.parquet.read_table(path)
            _check_header(table.column_names)
            columns = arrow_columns(table)
        else:
            columns = _read_delimited(path, header)
        columns = {name: nan_as_none(values) for name, values in columns.items()}
        columns = _spell_as_known(columns, known)
        return _infer_types(columns, known) if typed and path.suffix.lower() in DELIMITED else columns
    except FileNotFoundError:
        problem = f"there is no such file; a relative path begins at the working folder, {Path.cwd()}."
        raise InputError(path, problem) from None
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise InputError(path, f"cannot be read as {content} ({reason}); give a table, best in UTF-8.") from None


def arrow_columns(table: pa.Table) -> dict[str, list]:
    """Return the columns of a table of Arrow, name → values: decimals are floats, and pandas' periods are texts."""
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if isinstance(column.type, pa.ExtensionType):
            found[name] = [None if value is None or value != value else str(value) for value in column.to_pandas()]
        elif pa.types.is_decimal(column.type):
            found[name] = [None if value is None else float(value) for value in column.to_pylist()]
        else:
            found[name] = column.to_pylist()
    return found


def nan_as_none(values: list) -> list:
    """Return the values with None in place of NaN, which programs write where there is no value."""
    return [None if isinstance(value, float) and math.isnan(value) else value for value in values]


def is_json(path: Path) -> bool:
    """Return whether a file is JSON or JSON Lines by its suffix."""
    return path.suffix.lower() in JSON_SUFFIXES


def decode_text(path: Path) -> str:
    """Return the text of a file by its byte-order mark, else in UTF-8, UTF-16 or cp1252; log an encoding but UTF-8.

    Raises:
        OSError, ValueError: the file cannot be read, or is in another encoding, whose candidates the error names.
    """
    check_regular(path)
    content = path.read_bytes()
    encoding = _encoding_of(content)
    if not encoding.startswith("utf-8"):
        log.info("%s: read as %s", path, encoding)
    return content.decode(encoding)


def _encoding_of(content: bytes) -> str:
    """Return the encoding of a text; ValueError if its bytes do not tell."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return encoding
    if content.startswith(NO_TEXT):
        raise ValueError("it is no text, but an archive, or a file of Excel or Parquet; save it as CSV in UTF-8")
    head = content[:1000]
    n_null = head.count(b"\x00")  # every second byte of mostly ASCII text in UTF-16, which is also valid UTF-8
    try:
        content.decode("utf-8")
        if n_null <= MAX_NULL_SHARE * len(head):
            return "utf-8"
    except UnicodeDecodeError as error:
        wrong = error.start
    if n_null:
        return "utf-16-be" if content.startswith(b"\x00") else "utf-16-le"
    with suppress(UnicodeDecodeError):
        if not NOT_WESTERN.search(content.decode(WESTERN)):
            return WESTERN
    line = content[content.rfind(b"\n", 0, wrong) + 1 :].partition(b"\n")[0][:80].strip()
    raise ValueError(f"it is not UTF-8, and its encoding is ambiguous: {', '.join(_decodings(line))}; save it as UTF-8")


def _decodings(line: bytes) -> Iterator[str]:
    """Yield the encodings that can decode a line, each with the text that it gives."""
    for name in (WESTERN, *OTHER_ENCODINGS):
        try:
            yield f"{name} reads {format_value(line.decode(name))}"
        except UnicodeDecodeError:
            continue


def _read_delimited(path: Path, header: Sequence[str]) -> dict[str, list]:
    """Return the columns of a delimited file, all of text, and log a delimiter that its suffix does not name."""
    text = decode_text(path)
    is_tsv = path.suffix.lower() == ".tsv"
    claimed = "\t" if is_tsv else None
    separator_line = SEPARATOR_LINE.match(text)
    if separator_line is not None:
        claimed = separator_line[1]
        text = text[separator_line.end() :]
    rows, delimiter = split_rows(text, len(header), claimed=claimed)
    if header:
        names = list(header)
    elif rows:
        names = rows.pop(0)
    else:
        return {}
    if delimiter != ("\t" if is_tsv else ",") and len(names) > 1:
        log.info("%s: read with the delimiter %s", path, DELIMITERS[delimiter])
    # The first column of a table that pandas wrote has no name.
    names = [name or ("" if index == 0 else f"column {index + 1}") for index, name in enumerate(names)]
    _check_header(names)
    n = len(rows)
    rows = [row for row in rows if row != names]
    if len(rows) < n:
        log.warning("%s: %d rows repeat the header, as where files were joined, and are left out", path, n - len(rows))
    columns = {}
    for index, name in enumerate(names):
        values = [row[index] for row in rows]
        if name in ("", f"column {index + 1}") and rows and not any(value.strip() for value in values):
            continue  # a blank column of a spreadsheet
        columns[name] = values
    return columns


def split_rows(text: str, width: int = 0, claimed: str | None = None) -> tuple[list[list[str]], str]:
    """Return the rows of delimited text, the header first, and the delimiter.

    Blank rows are left out. `width` is the number of columns of a file without a header, 0 with a header. `claimed` is
    the delimiter that the file's suffix names, which wins if several fit.

    >>> split_rows("text;response\\nHi, there;Oh, no\\n;\\n")
    ([['text', 'response'], ['Hi, there', 'Oh, no']], ';')

    Raises:
        ValueError: rows differ in length, or two delimiters fit.
    """
    first = next((line for line in text.splitlines() if line.strip(BLANK)), "")
    if not first:
        return [], ","
    readings = {}
    faults = {}
    for delimiter in DELIMITERS:
        if delimiter not in first:
            continue
        try:
            rows = _parse(text, delimiter, width)
        except (csv.Error, ValueError) as error:
            faults[delimiter] = error
        else:
            if len(rows[0]) > 1:  # otherwise the delimiter is part of a quoted name
                readings[delimiter] = rows
    if claimed is not None and claimed in readings:
        return readings[claimed], claimed
    if len(readings) > 1:
        candidates = " or ".join(f"{DELIMITERS[name]} ({len(rows[0])} columns)" for name, rows in readings.items())
        raise ValueError(f"its delimiter is ambiguous: {candidates}; use another delimiter, or quote the fields")
    if readings:
        delimiter, rows = readings.popitem()
        return rows, delimiter
    if faults:
        listed = "; ".join(f"{DELIMITERS[delimiter]}: {error}" for delimiter, error in faults.items())
        raise ValueError(f"no delimiter fits all rows: {listed}")
    return _parse(text, ",", width), ","  # one column


def _parse(text: str, delimiter: str, width: int) -> list[list[str]]:
    """Return the rows of text with this delimiter; quotation marks are doubled or have a backslash before them.

    In text with tabs, quotation marks may also have no meaning: they have none if each line alone is a whole row, since
    a line end within quotation marks splits a row.
    """
    try:
        rows = _parse_quoted(text, delimiter, width)
        return _without_quotes(text, width, rows) if delimiter == "\t" and '"' in text else rows
    except (csv.Error, ValueError):
        if ESCAPED_QUOTE.search(text):
            return _parse_quoted(ESCAPED_QUOTE.sub(r'\1""', text), delimiter, width)
        if delimiter == "\t":
            return _parse_quoted(text, delimiter, width, has_quotes=False)
        raise


def _without_quotes(text: str, width: int, quoted: list[list[str]]) -> list[list[str]]:
    """Return the rows of tab-separated text, read without quoting if quoting would join whole rows; else `quoted`."""
    try:
        rows = _parse_quoted(text, "\t", width, has_quotes=False)
    except (csv.Error, ValueError):
        return quoted
    return rows if len(rows) > len(quoted) else quoted


def _parse_quoted(text: str, delimiter: str, width: int, has_quotes: bool = True) -> list[list[str]]:
    """Return the rows that are not blank, each with `width` cells, or as many as the first; ValueError for others."""
    lines = io.StringIO(text, newline="")
    quoting = csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE
    found = csv.reader(lines, strict=True, delimiter=delimiter, quoting=quoting)
    rows = [row for row in found if any(cell.strip() for cell in row)]
    width = width or len(rows[0])
    for number, row in enumerate(rows, start=1):
        if len(row) > width and not any(cell.strip() for cell in row[width:]):
            del row[width:]
        if len(row) != width:
            raise ValueError(f"row {number} has {len(row)} fields, and the first row or the header {width}")
    return rows


def _spell_as_known(columns: dict[str, list], known: Collection[str]) -> dict[str, list]:
    """Return the columns with the names of `known` where names differ by capitals or outer white space only."""
    folded = {name.casefold(): name for name in sorted(known)}
    names: dict[str, str] = {}  # the known or stripped name of a column, and its name in the file
    for name in columns:
        meant = folded.get(name.strip().casefold(), name.strip())
        if name in known or meant in columns:  # it has, or another column has, exactly this name
            meant = name
        if meant in names:
            raise ValueError(f"the columns {names[meant]!r} and {name!r} may both be {meant!r}; rename one")
        names[meant] = name
    return {meant: columns[name] for meant, name in names.items()}


def _infer_types(columns: Mapping[str, list], text: Iterable[str]) -> dict[str, list]:
    """Return the columns with numbers, dates and truth values in place of text, except the columns `text`."""
    if not columns:
        return {}
    content = unguarded_csv([columns, *zip(*columns.values(), strict=True)]).encode("utf-8")
    read = pyarrow.csv.read_csv(
        io.BytesIO(content),
        read_options=pyarrow.csv.ReadOptions(block_size=min(max(len(content), 2**20), 2**30)),  # a row fits in a block
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(text, pa.string())),
    )
    return read.to_pydict()


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


def _check_header(names: Iterable[str]) -> None:
    """Raise ValueError if a name occurs twice."""
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"it has the column {repeated[0]!r} twice")


def read_json_rows(path: Path) -> list[dict[str, object]]:
    """Return the objects in a JSON or JSON Lines file: of lines, an array, or the one table in an object.

    A table in an object is an array of objects, an object of columns, or what pandas writes in any `orient`. An escaped
    half of a surrogate pair, which UTF-8 cannot encode, becomes "\ufffd".

    Raises:
        OSError, ValueError: the file cannot be read, is not JSON, or has no table or several.
    """
    text = decode_text(path)
    rows = _json_rows(path, text)
    return [_without_surrogates(row) for row in rows] if "\\u" in text else rows


def _without_surrogates(row: dict[str, object]) -> dict[str, object]:
    text = json.dumps(row, ensure_ascii=False)
    valid = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return row if valid == text else json.loads(valid)


def _json_rows(path: Path, text: str) -> list[dict[str, object]]:
    """Return the objects in a text of JSON, which may have one a line whatever the suffix of the file says."""
    try:
        if text.lstrip().startswith("["):
            return _rows_of_array(_loads(text))
        if path.suffix.lower() not in JSON_LINES:
            try:
                return _table_in(_loads(text))
            except json.JSONDecodeError as error:
                if error.msg != "Extra data":  # several objects, one a line
                    raise
        return list(_objects_in_lines(text))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _loads(text: str) -> Any:
    """Return the value of JSON; ValueError if an object has a name twice, of which one value would be lost."""
    return json.loads(text, object_pairs_hook=_with_different_names)


def _with_different_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        _check_header(name for name, _ in pairs)
    return found


def _objects_in_lines(text: str) -> Iterator[dict[str, object]]:
    """Yield the object in each line that is not blank; ValueError, with the number of the line, if it has none."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = _loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number}: {error.msg.removesuffix(' at')} at character {error.pos + 1}") from None
        except RecursionError:
            raise ValueError(f"line {number} is nested too deeply") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is not a JSON object")
        yield row


def _rows_of_array(values: list) -> list[dict[str, object]]:
    """Return the elements of a JSON array; ValueError if one is not an object."""
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict):
            raise ValueError(f"element {number} of its array is not a JSON object")
    return values


def _table_in(value: object) -> list[dict[str, object]]:
    """Return the rows of the one table in a JSON object."""
    if not isinstance(value, dict):
        raise ValueError("it is neither an array of objects nor an object")
    tables = {name: rows for name, rows in _tables(value, "", MAX_DEPTH) if rows}
    named = {name: rows for name, rows in tables.items() if name.rpartition(".")[2] in ROWS}
    for candidates in (tables, named):
        if len(candidates) == 1:
            return next(iter(candidates.values()))
    if not tables:
        raise ValueError("it contains no array of objects")
    raise ValueError(f"it contains several arrays of objects: {', '.join(tables)}; keep one of them")


def _tables(value: Mapping[str, object], name: str, depth: int) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yield the tables in an object, (dotted name, rows)."""
    rows = _rows_of_object(value)
    if rows is not None:
        yield name, rows
        return
    for key, part in value.items():
        inner = f"{name}.{key}" if name else key
        if isinstance(part, list) and part and all(isinstance(row, dict) for row in part):
            yield inner, part
        elif isinstance(part, dict) and depth > 1:
            yield from _tables(part, inner, depth - 1)


def _rows_of_object(value: Mapping[str, object]) -> list[dict[str, object]] | None:
    """Return the rows of an object that is a table: columns of equal length, or one of pandas' formats; else None."""
    names = value.get("columns")
    data = value.get("data")
    if isinstance(names, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        if any(len(row) != len(names) for row in data):
            raise ValueError("a row of its data has not as many values as there are columns")
        return [dict(zip(map(str, names), row, strict=True)) for row in data]  # orient="split"
    lists = [part for part in value.values() if isinstance(part, list)]
    are_tables = all(isinstance(row, dict) for part in lists for row in part)
    if len(lists) == len(value) > 1 and not are_tables and len({len(part) for part in lists}) == 1:
        return [dict(zip(value, row, strict=True)) for row in zip(*lists, strict=True)]  # orient="list"
    parts = [part for part in value.values() if isinstance(part, dict) and part]
    if len(parts) == len(value) > 0:
        if all(key.isdigit() for key in value):  # orient="index"
            return parts
        if len({tuple(part) for part in parts}) == 1 and all(key.isdigit() for key in parts[0]):  # orient="columns"
            return [{name: part[key] for name, part in zip(value, parts, strict=True)} for key in parts[0]]
    return None


def columns_of(rows: Sequence[Mapping[str, object]]) -> dict[str, list]:
    """Return the columns of rows, name → values, with None where a row lacks a name.

    >>> columns_of([{"a": 1}, {"b": 2}])
    {'a': [1, None], 'b': [None, 2]}
    """
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(key for row in rows for key in row)}
