"""Work in batches resumes after a kill, and ends with the same rows."""

from itertools import islice

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import parts as module
from evenhand.evaluation.runs.parts import Parts
from evenhand.evaluation.runs.work_shards import WorkShard

BATCHES = [[3, 0], [1], [4, 2]]
SQUARES = [0, 1, 4, 9, 16]


@pytest.fixture
def parts(tmp_path):
    return Parts(tmp_path, ["square"], 5)


def square_batches(shard, n_until_kill=None):
    """Yield the batches of a shard; raise KeyboardInterrupt after `n_until_kill` of them."""
    batches = ((rows, [row**2 for row in rows]) for rows in shard.unfinished_batches(BATCHES))
    yield from islice(batches, n_until_kill)
    if n_until_kill is not None:
        raise KeyboardInterrupt


def compute(parts, batches=square_batches):
    """Compute the unfinished rows; return the numbers of the rows that each shard still had to compute."""
    unfinished = []
    for shard in parts.unfinished_shards():
        unfinished.append(np.flatnonzero(shard.is_unfinished(range(parts.n))).tolist())
        parts.save(shard, batches(shard), "squares", "numbers")
    return unfinished


@pytest.mark.parametrize(("seconds", "n_parts"), [(0.0, 2), (5.0, 2), (0.0, 1), (0.0, 0)])
def test_a_killed_run_resumes_and_ends_the_same(parts, monkeypatch, seconds, n_parts):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_PARTS", seconds)
    with pytest.raises(KeyboardInterrupt):
        compute(parts, lambda shard: square_batches(shard, n_parts))
    assert len(list(parts.folder.glob("*.parquet"))) == n_parts
    assert compute(parts) == [sorted(row for rows in BATCHES[n_parts:] for row in rows)]
    assert parts.read()["square"].tolist() == SQUARES


def test_finished_runs_and_repeated_rows(parts):
    assert compute(parts) == [[0, 1, 2, 3, 4]] and compute(parts) == []
    assert parts.read()["square"].tolist() == SQUARES
    assert sorted(file.name for file in parts.folder.iterdir()) == ["00000001.parquet", "00000003.parquet"]
    compute(parts)
    first = min(parts.folder.iterdir())
    (parts.folder / "00000004.parquet").write_bytes(first.read_bytes())
    assert compute(parts) == [] and parts.read()["square"].tolist() == SQUARES


def test_rows_that_fall_between_the_batches_of_two_processes_are_computed_in_a_second_shard(parts):
    batches = iter([[([3, 0], [9, 0]), ([1], [1])], [([4, 2], [16, 4])]])
    assert compute(parts, lambda shard: next(batches)) == [[0, 1, 2, 3, 4], [2, 4]]
    assert parts.read()["square"].tolist() == SQUARES


def test_a_damaged_part_alone_is_computed_again(parts, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_PARTS", 0.0)
    compute(parts)
    before = parts.read()
    second = parts.folder / "00000001.parquet"
    content = bytearray(second.read_bytes())
    content[content.index((1).to_bytes(8, "little"), 4)] ^= 4  # a value: only the page checksum can show it
    second.write_bytes(content)
    assert compute(parts) == [[1]]
    pd.testing.assert_frame_equal(parts.read(), before)


@pytest.mark.parametrize("n", [4, 6])
def test_parts_of_another_number_of_rows_are_refused(parts, n):
    compute(parts)
    other = Parts(parts.folder, ["square"], n)
    compute(other, lambda shard: iter(()))
    with pytest.raises(InputError, match=f"each of {n} rows once"):
        other.read()


def save_all(folder, columns, n, batches):
    parts = Parts(folder, columns, n)
    parts.save(WorkShard(), batches, "rows", "rows")
    return parts


def test_columns_of_arrays_and_of_no_rows(tmp_path):
    rows = save_all(tmp_path, ["a", "b"], 0, []).read()
    assert rows.columns.tolist() == ["a", "b"] and len(rows) == 0
    batch = (np.array([1, 0]), np.array([0.5, 0.25]), np.array([True, False]))
    assert save_all(tmp_path, ["p", "hit"], 2, [batch]).read().values.tolist() == [[0.25, False], [0.5, True]]


@pytest.mark.parametrize("in_memory", [0, 100], ids=["file", "array"])
def test_columns_of_numbers_are_rows_in_memory_or_in_a_file(tmp_path, monkeypatch, in_memory):
    monkeypatch.setattr("evenhand.evaluation.rows.MAX_BYTES_IN_MEMORY", in_memory)
    batches = [
        ([2, 1], [False, False], np.float32([5, 3]), np.float32([6, 4])),
        ([0], [True], np.float32([1]), np.float32([2])),
    ]
    cut, numbers = save_all(tmp_path, ["cut", "p0", "p1"], 3, batches).read_numbers()
    assert cut.tolist() == [True, False, False] and isinstance(numbers, np.ndarray) == bool(in_memory)
    assert numbers[:].tolist() == [[1, 2], [3, 4], [5, 6]] and numbers[np.array([2, 0])].tolist() == [[5, 6], [1, 2]]


def test_parts_with_columns_of_different_types_are_joined_as_one_table_would_be(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_PARTS", 0.0)
    batches = [([1, 0], [1, 2], ["a", None]), ([3, 2], [0.5, 7], ["c", "d"])]
    rows = save_all(tmp_path, ["n", "text"], 4, batches).read()
    assert rows["n"].tolist() == [2, 1, 7, 0.5] and rows["text"].tolist()[2:] == ["d", "c"]
    assert pd.isna(rows["text"][0]) and rows["text"][1] == "a"
