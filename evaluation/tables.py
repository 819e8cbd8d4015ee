"""Reading and writing of the Parquet files of a run, with atomic writes and verified checksums."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import atomic_write, file_version

ROWS_PER_CHUNK = 1 << 13  # rows that are written at a time
SMALL_FILE = 1 << 18  # bytes; a report reads the same tables many times, and small ones are decoded once
RUN = b"evenhand.run"  # key of a file's metadata: the fingerprint of the run that wrote the table


def write_table(path: Path, rows: pd.DataFrame, run: str = "") -> None:
    """Write a table to a Parquet file, in chunks of rows, which need less memory than a copy of the table.

    `run` is the fingerprint of the run that the rows belong to (`table_run`).
    """
    schema = pa.Schema.from_pandas(rows, preserve_index=False)
    if run:
        schema = schema.with_metadata({**(schema.metadata or {}), RUN: run.encode()})
    with atomic_write(path) as temporary, pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer:
        for start in range(0, max(len(rows), 1), ROWS_PER_CHUNK):
            chunk = rows.iloc[start : start + ROWS_PER_CHUNK]
            writer.write_table(pa.Table.from_pandas(chunk, schema, preserve_index=False))


def read_table(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a table that `write_table` wrote, restricted to the columns in `columns` if they are given.

    Names in `columns` that the table does not have are ignored.

    Raises:
        InputError: the file is absent, not Parquet, or damaged.
    """
    with _readable(path):
        if path.stat().st_size <= SMALL_FILE:
            table = _decode_once(path, file_version(path))
            names = table.columns if columns is None else [name for name in table.columns if name in columns]
            return table[names].copy()
        names = None if columns is None else [name for name in pq.read_schema(path).names if name in columns]
        return _decode(path, names)


def _decode(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    return pd.read_parquet(path, columns=columns, page_checksum_verification=True)


@lru_cache(maxsize=64)
def _decode_once(path: Path, version: tuple[int, ...]) -> pd.DataFrame:
    """Return the table in a file, which is read again only if it was changed or replaced."""
    return _decode(path)


def table_run(path: Path) -> str:
    """Return the fingerprint of the run that wrote a table; "" if the file does not say so.

    Raises:
        InputError: the file is absent, not Parquet, or damaged; all pages are read.
    """
    with _readable(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        for _ in file.iter_batches(batch_size=ROWS_PER_CHUNK):
            pass
        return (file.schema_arrow.metadata or {}).get(RUN, b"").decode("ascii", "replace")


def read_float_columns(path: Path, leave_out: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return all columns of a Parquet file except `leave_out`, as float32 (n, c), and their names."""
    with _readable(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        names = [name for name in file.schema_arrow.names if name not in leave_out]
        numbers = np.empty((file.metadata.num_rows, len(names)), dtype=np.float32)
        start = 0
        for group in range(file.num_row_groups):  # group by group: one table of all would double the memory
            columns = file.read_row_group(group, columns=names).columns
            for index, column in enumerate(columns):
                numbers[start : start + len(column), index] = column.to_numpy()
            start += file.metadata.row_group(group).num_rows
    return numbers, tuple(names)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise InputError(
            path,
            f"cannot be read as Parquet ({error}); delete this file, and give the command of its folder again, "
            "which computes it again.",
        ) from None


def table_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table, whose columns have names, as mappings from the names to the values.

    >>> table_rows(pd.DataFrame({"style": ["s"], "share": [0.5]}))
    [{'style': 's', 'share': 0.5}]
    """
    return cast(list[dict[str, Any]], table.to_dict("records"))


def label_batches(
    batches: Iterable[tuple[Sequence[object] | np.ndarray, ...]], columns: Sequence[str], index: pd.Index
) -> Iterator[pd.DataFrame]:
    """Yield batches as tables; the index has the numbers of the rows.

    Args:
        batches: tuples of positions in the index and, for each column, the values.
        columns: the names of the columns.
        index: the index of the table whose rows are computed.
    """
    for rows, *values in batches:
        labels = index[np.asarray(rows, dtype=np.int64)]
        yield pd.DataFrame(dict(zip(columns, values, strict=True)), index=labels)


def join_batches(batches: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all batches as one table, in the order of their index."""
    return pd.concat(list(batches)).sort_index()


def only_prompts(table: pd.DataFrame, prompts: Collection[str] | None) -> pd.DataFrame:
    """Return the rows of the given prompts, sorted by prompt; the table itself for None, or if it has no prompts."""
    if prompts is None or columns.PROMPT_ID not in table:
        return table
    chosen = table.loc[table[columns.PROMPT_ID].isin(list(prompts))]
    return chosen.sort_values(by=columns.PROMPT_ID, kind="stable", ignore_index=True)
