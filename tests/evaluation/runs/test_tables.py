"""Parquet tables, written and read in chunks of rows; a run computes each table once."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import tables
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.tables import (
    is_same_column,
    read_aligned,
    read_categorical,
    read_float_columns,
    read_table,
    write_table,
)
from evenhand.evaluation.runs.tracking import Tracker


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


def test_tables_without_rows_and_damaged_ones(rows, tmp_path):
    write_table(tmp_path / "t.parquet", rows[:0])
    assert list(read_table(tmp_path / "t.parquet")) == list(rows) and not len(read_table(tmp_path / "t.parquet"))
    assert read_float_columns(tmp_path / "t.parquet", leave_out=("id", "why"))[0].shape == (0, 2)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    for read in (read_table, lambda path: read_float_columns(path, ())):
        with pytest.raises(InputError, match="t.parquet"):
            read(tmp_path / "t.parquet")


def test_tables_are_computed_once_and_missing_until_they_are_written(tmp_path):
    run, calls = Run(tmp_path, "a fingerprint", Tracker()), []
    for _ in range(2):
        rows = run.table("some_rows", lambda: calls.append(1) or pd.DataFrame({"n": [1, 2]}))
        assert rows["n"].tolist() == [1, 2]
    assert calls == [1] and list(run.seconds) == ["some rows"]
    assert [path.name for path in tmp_path.iterdir()] == ["some_rows.parquet"]
    run = Run(tmp_path, "a fingerprint", Tracker())
    assert not run.has("rows")
    run.write("rows", iter([pd.DataFrame({"n": [1]}), pd.DataFrame({"n": [2]})]))
    assert run.has("rows") and run.read("rows")["n"].tolist() == [1, 2]


def test_each_family_has_a_folder_of_parts(tmp_path):
    for family, factor in (("one", 1), ("other", 2)):
        parts = Run(tmp_path, "a fingerprint", Tracker(), family=family).parts("squares", ["square"], 2)
        for shard in parts.unfinished_shards():
            parts.save(shard, [([1, 0], [factor, 0])], "squares", "numbers")
        assert parts.read()["square"].tolist() == [0, factor]
    folders = {path.parent.relative_to(tmp_path) for path in tmp_path.rglob("*.parquet")}
    assert folders == {Path("parts/one/squares"), Path("parts/other/squares")}
