"""Reading and writing of the Parquet files of a run, with atomic writes and verified checksums."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rows import RowFile, new_rows
from evenhand.evaluation.runs.files import atomic_write, disk_full_message, is_disk_full

ROWS_PER_CHUNK = 1 << 13  # rows that are written or read at a time


def write_table(path: Path, rows: pd.DataFrame | Iterable[pd.DataFrame]) -> None:
    """Write a table to a Parquet file, given as a whole or as an iterable of consecutive parts.

    The parts are written one after the other and need not fit into memory together. All parts must have the columns and
    types of the first part.
    """
    parts = _parts(rows) if isinstance(rows, pd.DataFrame) else iter(rows)
    first = next(parts)
    schema = pa.Schema.from_pandas(rows if isinstance(rows, pd.DataFrame) else first, preserve_index=False)
    with atomic_write(path) as temporary, pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer:
        for part in chain([first], parts):
            writer.write_table(pa.Table.from_pandas(part, schema, preserve_index=False))


def _parts(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for start in range(0, max(len(rows), 1), ROWS_PER_CHUNK):
        yield rows.iloc[start : start + ROWS_PER_CHUNK]


def read_table(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a table that `write_table` wrote, restricted to the columns in `columns` if they are given.

    Names in `columns` that the table does not have are ignored.

    Raises:
        InputError: the file is absent, not Parquet, or damaged.
    """
    with _readable(path):
        names = None if columns is None else [name for name in pq.read_schema(path).names if name in columns]
        return pd.read_parquet(path, columns=names, page_checksum_verification=True)


def read_categorical(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Return the given columns of a Parquet file, with texts as categories.

    Each distinct text is in memory only once. Names in `columns` that the file does not have are ignored.

    Raises:
        InputError: the file is absent, not Parquet, or damaged.
    """
    with _readable(path):
        schema = pq.read_schema(path)
        names = [name for name in schema.names if name in columns]
        texts = [name for name in names if schema.field(name).type in (pa.string(), pa.large_string())]
        with pq.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file:
            table = file.read(columns=names).unify_dictionaries().to_pandas(ignore_metadata=True)
    for name in texts:
        table[name] = table[name].cat.set_categories(sorted(table[name].cat.categories))
    return table


def is_same_column(one: Path, other: Path, column: str) -> bool:
    """Return whether a column is equal in two tables, reading some rows at a time.

    Raises:
        InputError: a file is absent, not Parquet, or damaged.
    """
    with _readable(one):
        n = pq.read_metadata(one).num_rows
    with _readable(other):
        if pq.read_metadata(other).num_rows != n:
            return False
    parts = read_aligned((one, [column]), (other, [column]))
    return all(part.shape[1] == 2 and bool((part.iloc[:, 0] == part.iloc[:, 1]).all()) for part in parts)


def read_aligned(*tables: tuple[Path, Sequence[str]]) -> Iterator[pd.DataFrame]:
    """Yield columns of several tables side by side, some rows at a time, up to the end of the shortest table.

    Args:
        tables: the path and the columns of each table.

    Raises:
        InputError: a file is absent, not Parquet, or damaged.
    """
    batches = [_batches(path, columns) for path, columns in tables]
    heads = [next(table, pd.DataFrame()) for table in batches]
    while n := min(map(len, heads)):
        yield pd.concat([head.iloc[:n].reset_index(drop=True) for head in heads], axis=1)
        heads = [
            head.iloc[n:] if len(head) > n else next(table, pd.DataFrame())
            for head, table in zip(heads, batches, strict=True)
        ]


def _batches(path: Path, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    with _readable(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for batch in _record_batches(file, columns):
            yield batch.to_pandas()


def _record_batches(file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the non-empty record batches of a file, one row group after the other.

    If Arrow iterates over several row groups, it reads ahead without a limit on memory.
    """
    for group in range(file.num_row_groups):
        yield from filter(len, file.iter_batches(ROWS_PER_CHUNK, row_groups=[group], columns=list(columns)))


def read_float_columns(path: Path, leave_out: Sequence[str]) -> tuple[np.ndarray | RowFile, tuple[str, ...]]:
    """Return all columns of a Parquet file except `leave_out`, as float32 (n, c), and their names.

    Large arrays are stored in a temporary file in the table's folder (`new_rows`).

    Raises:
        InputError: the file is absent, not Parquet, or damaged.
    """
    with _readable(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        names = [name for name in file.schema_arrow.names if name not in leave_out]
        numbers, start = new_rows(file.metadata.num_rows, len(names), folder=path.parent), 0
        for batch in _record_batches(file, names):
            rows = np.empty((len(batch), len(names)), dtype=np.float32)
            for index, column in enumerate(batch.columns):
                rows[:, index] = column.to_numpy(zero_copy_only=False)
            numbers[start : start + len(batch)] = rows
            start += len(batch)
    return numbers, tuple(names)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        if is_disk_full(error):
            raise InputError(disk_full_message(path)) from None
        raise InputError(
            f"{path} cannot be read as Parquet ({error}); delete its folder and run the stage again."
        ) from None
