"""The Parquet files that cross stages: written whole, read back or one clear error."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import written_whole

ROWS_AT_ONCE = 1 << 15  # that are converted at once


def write_table(path: Path, rows: pd.DataFrame) -> None:
    """Write rows as Parquet, some at a time: the whole of a large table is not in memory twice."""
    schema = pa.Schema.from_pandas(rows, preserve_index=False)
    with written_whole(path) as temporary, pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer:
        for start in range(0, max(len(rows), 1), ROWS_AT_ONCE):
            some = rows.iloc[start : start + ROWS_AT_ONCE]
            writer.write_table(pa.Table.from_pandas(some, schema, preserve_index=False))


def read_table(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read what `write_table` wrote, or of it those of the columns that are there.

    Raises:
        InputError: it is absent, not Parquet, or damaged.
    """
    with _readable(path):
        there = None if columns is None else [name for name in pq.read_schema(path).names if name in columns]
        return pd.read_parquet(path, columns=there, page_checksum_verification=True)


def read_numbers(path: Path, leave_out: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the columns of a table that are not left out as float32 numbers (n, c), read some rows at a time.

    Raises: as `read_table`.
    """
    with _readable(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        names = [name for name in file.schema_arrow.names if name not in leave_out]
        found, start = np.empty((file.metadata.num_rows, len(names)), dtype=np.float32), 0
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=names):
            for place, column in enumerate(batch.columns):
                found[start : start + len(batch), place] = column.to_numpy(zero_copy_only=False)
            start += len(batch)
    return found, tuple(names)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet ({error}); delete its folder and run the stage again."
        ) from None
