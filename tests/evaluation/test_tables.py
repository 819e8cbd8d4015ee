"""Parquet tables, written and read in chunks of rows; a run computes each table once."""

from itertools import islice

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation import tables
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs import store as module
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.tables import join_batches, label_batches, read_float_columns, read_table, write_table
from tests.recorded_runs import change_record, write_run


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


def test_tables_without_rows_and_damaged_ones(rows, tmp_path):
    write_table(tmp_path / "t.parquet", rows[:0])
    assert list(read_table(tmp_path / "t.parquet")) == list(rows) and not len(read_table(tmp_path / "t.parquet"))
    assert read_float_columns(tmp_path / "t.parquet", leave_out=("id", "why"))[0].shape == (0, 2)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    for read in (read_table, lambda path: read_float_columns(path, ())):
        with pytest.raises(InputError, match="t.parquet"):
            read(tmp_path / "t.parquet")


def test_a_small_file_is_decoded_again_only_if_it_has_changed(rows, tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    decoded = []
    decode = tables._decode
    monkeypatch.setattr(tables, "_decode", lambda *arguments: decoded.append(path) or decode(*arguments))
    write_table(path, rows)
    changed = read_table(path)
    changed.loc[0, "s0"] = -1  # in the caller's table only
    pd.testing.assert_frame_equal(read_table(path), rows)
    assert len(decoded) == 1
    write_table(path, rows[:2])
    assert len(read_table(path)) == 2 and len(decoded) == 2
    monkeypatch.setattr(tables, "SMALL_FILE", 0)
    assert len(read_table(path)) == 2 and len(decoded) == 3


SQUARES = [0, 1, 4, 9, 16]


def squares(run, batches=((3, 0), (1,), (4, 2)), n_until_kill=None, n=5):
    """Return rows that are computed in these batches; a KeyboardInterrupt ends the work after `n_until_kill`."""
    seen = []

    def compute(items):
        mine = [items.loc[[row for row in batch if row in items.index]] for batch in batches]
        for part in islice((part for part in mine if len(part)), n_until_kill):
            seen.extend(part["number"])
            yield pd.DataFrame({"square": part["number"] ** 2})
        if n_until_kill is not None:
            raise KeyboardInterrupt

    items = pd.DataFrame({"number": range(n)})
    return run.rows("squares", items, compute)["square"].tolist(), seen


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_WRITES", 0.0)
    change_record(write_run(tmp_path, "measure"), fingerprint="a fingerprint")
    return Store(tmp_path, "a fingerprint", Tracker(), family="some")


@pytest.mark.parametrize(("n_finished", "rest"), [(2, [4, 2]), (0, [3, 0, 1, 4, 2])])
def test_a_killed_run_resumes_and_ends_the_same(run, n_finished, rest):
    with pytest.raises(KeyboardInterrupt):
        squares(run, n_until_kill=n_finished)
    assert len(list((run.folder / "parts" / "some" / "squares").glob("*.parquet"))) == n_finished
    assert squares(run) == (SQUARES, rest)
    assert squares(run) == (SQUARES, [])


def test_rows_of_damaged_files_are_computed_again(run):
    squares(run)
    file = run.folder / "parts" / "some" / "squares" / "00000001.parquet"
    content = bytearray(file.read_bytes())
    content[content.index((1).to_bytes(8, "little"), 4)] ^= 4  # a value: only the page checksum can show it
    file.write_bytes(content)
    assert squares(run) == (SQUARES, [1])
    file.write_bytes(b"PAR1")
    assert squares(run) == (SQUARES, [1])
    write_table(file, pd.DataFrame({"key": [7], "square": [49]}), run.fingerprint)  # a row that there is not
    assert squares(run) == (SQUARES, [1])


def test_rows_are_found_by_their_keys_among_other_items(run):
    """Of four people, the first call asks two, and the second one the others, in another order."""
    people = pd.DataFrame({"n": [4, 3, 2, 1]}, index=list("dcba"))
    asked = []

    def compute(items):
        asked.extend(items.index)
        yield pd.DataFrame({"square": items["n"] ** 2})

    assert run.rows("people", people.loc[["c", "a"]], compute)["square"].tolist() == [9, 1]
    assert run.rows("people", people, compute)["square"].tolist() == [16, 9, 4, 1]
    assert asked == ["c", "a", "d", "b"]
    with pytest.raises(ValueError, match="same key"):
        run.rows("people", people.loc[["c", "c"]], compute)


def test_two_processes_compute_a_part_each(run, monkeypatch):
    """One process after the other, with what rank 0 sent when both began."""
    sent = []

    def on_rank_zero(compute):
        if processes.rank() == 0:
            sent.append(compute())
        return sent[-1]

    monkeypatch.setattr(processes, "on_rank_zero", on_rank_zero)
    monkeypatch.setattr(processes, "barrier", lambda: None)
    monkeypatch.setenv("WORLD_SIZE", "2")  # as a launcher sets it
    for rank in "01":
        monkeypatch.setenv("LOCAL_RANK", rank)
        monkeypatch.setenv("RANK", rank)
        if rank == "0":
            with pytest.raises(InputError, match=r"\b5 rows"):  # the other process has not computed its part
                squares(run)
        else:
            assert squares(run) == (SQUARES, [3, 4])


def test_columns_of_arrays_of_different_types_and_of_no_rows(run):
    empty = run.rows("empty", pd.DataFrame({"n": []}), lambda items: [pd.DataFrame({"a": [], "b": []})])
    assert empty.columns.tolist() == ["a", "b"]
    assert empty.empty
    batches = [
        pd.DataFrame({"n": [1, 2], "text": ["a", None]}, index=[1, 0]),
        pd.DataFrame({"n": [0.5, 7], "text": ["c", "d"]}, index=[3, 2]),
    ]
    rows = run.rows("types", pd.DataFrame({"n": range(4)}), lambda items: batches)
    assert rows["n"].tolist() == [2, 1, 7, 0.5]
    assert rows["text"].tolist()[1:] == ["a", "d", "c"]
    assert pd.isna(rows["text"][0])


def test_batches_are_labelled_and_joined_by_the_index_of_their_rows():
    index = pd.Index([7, 3, 5])
    batches = [([2], [25.0]), ([0, 1], [49.0, 9.0])]
    labelled = list(label_batches(batches, ("square",), index))
    assert [batch.index.tolist() for batch in labelled] == [[5], [7, 3]]
    joined = join_batches(labelled)
    assert joined["square"].to_dict() == {3: 9.0, 5: 25.0, 7: 49.0}
    assert joined.index.tolist() == [3, 5, 7]
