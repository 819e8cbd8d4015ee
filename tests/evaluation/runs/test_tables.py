"""Parquet tables, written and read in chunks of rows."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import tables
from evenhand.evaluation.runs.tables import (
    is_same_column,
    read_aligned,
    read_categorical,
    read_float_columns,
    read_table,
    write_table,
)


@pytest.fixture
def rows(monkeypatch):
    """Seven rows, written and read in chunks of three."""
    monkeypatch.setattr(tables, "ROWS_PER_CHUNK", 3)
    numbers = {f"s{i}": np.arange(7, dtype=np.float32) + i for i in range(2)}
    rows = pd.DataFrame({"id": list("abcdefg"), "why": [None] * 6 + ["long"], **numbers})
    rows.loc[4, ["s0", "s1"]] = np.nan
    return rows


def test_a_written_table_is_read_unchanged(rows, tmp_path):
    write_table(tmp_path / "t.parquet", rows)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), rows)
    assert list(read_table(tmp_path / "t.parquet", ["s1", "absent"])) == ["s1"]
    numbers, names = read_float_columns(tmp_path / "t.parquet", leave_out=("id", "why"))
    assert names == ("s0", "s1") and numbers.dtype == np.float32 and numbers.flags.c_contiguous
    np.testing.assert_array_equal(numbers, rows[["s0", "s1"]].to_numpy())


def test_tables_of_different_chunks_are_read_aligned(rows, tmp_path, monkeypatch):
    write_table(tmp_path / "t.parquet", rows)
    monkeypatch.setattr(tables, "ROWS_PER_CHUNK", 2)
    write_table(tmp_path / "u.parquet", (rows[["id"]].iloc[start : start + 4] for start in (0, 4)))
    pair = (tmp_path / "t.parquet", ["s0"]), (tmp_path / "u.parquet", ["id"])
    pd.testing.assert_frame_equal(pd.concat(read_aligned(*pair), ignore_index=True), rows[["s0", "id"]])
    assert is_same_column(tmp_path / "t.parquet", tmp_path / "u.parquet", "id")
    write_table(tmp_path / "u.parquet", rows[["id"]].iloc[::-1])
    assert not is_same_column(tmp_path / "t.parquet", tmp_path / "u.parquet", "id")
    write_table(tmp_path / "u.parquet", rows[["id"]].iloc[:6])
    assert not is_same_column(tmp_path / "t.parquet", tmp_path / "u.parquet", "id")


def test_repeated_strings_are_categories(tmp_path):
    write_table(tmp_path / "t.parquet", pd.DataFrame({"axis": ["b", "a", "b"], "unseen": [True, False, True], "x": 1}))
    table = read_categorical(tmp_path / "t.parquet", ("axis", "unseen", "absent"))
    assert table["axis"].cat.categories.tolist() == ["a", "b"] and table["axis"].cat.codes.tolist() == [1, 0, 1]
    assert list(table) == ["axis", "unseen"] and table["unseen"].tolist() == [True, False, True]


def test_a_table_can_have_no_rows(rows, tmp_path):
    write_table(tmp_path / "t.parquet", rows[:0])
    assert list(read_table(tmp_path / "t.parquet")) == list(rows) and not len(read_table(tmp_path / "t.parquet"))
    assert read_float_columns(tmp_path / "t.parquet", leave_out=("id", "why"))[0].shape == (0, 2)


def test_a_damaged_table_raises(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    for read in (read_table, lambda path: read_float_columns(path, ())):
        with pytest.raises(InputError, match="t.parquet"):
            read(tmp_path / "t.parquet")
