"""The Parquet files that cross stages: written whole, read back or one clear error."""

from pathlib import Path

import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import written_whole


def write_table(path: Path, rows: pd.DataFrame) -> None:
    """Write rows as Parquet."""
    with written_whole(path) as temporary:
        rows.to_parquet(temporary, index=False, write_page_checksum=True)


def read_table(path: Path) -> pd.DataFrame:
    """Read what `write_table` wrote.

    Raises:
        InputError: it is absent, not Parquet, or damaged.
    """
    try:
        return pd.read_parquet(path, page_checksum_verification=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet ({error}); delete its folder and run the stage again."
        ) from None
