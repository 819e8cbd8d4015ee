"""Work in batches goes on where it was killed, and ends the same."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import parts as module
from evenhand.evaluation.runs.parts import compute_resumable, gather_numbers

ROWS = [[3, 0], [1], [4, 2]]


def batches(share):
    for rows in share.of(ROWS):
        yield rows, [row**2 for row in rows]


def killed_after(n):
    def some(share):
        for number, batch in enumerate(batches(share)):
            if number == n:
                raise KeyboardInterrupt
            yield batch

    return some


def noting(asked):
    """Return `batches` that writes down which rows are left."""
    return lambda share: asked.append(np.flatnonzero(share.left(range(5))).tolist()) or batches(share)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_killed_run_goes_on_and_ends_the_same(tmp_path, monkeypatch, n):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_PARTS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        compute_resumable(tmp_path, ["square"], 5, killed_after(n), "squares", "numbers")
    assert len(list(tmp_path.glob("*.parquet"))) == n
    asked = []
    rows = compute_resumable(tmp_path, ["square"], 5, noting(asked), "squares", "numbers")
    assert asked == [sorted(row for rows in ROWS[n:] for row in rows)]  # what was finished is not computed again
    assert rows["square"].tolist() == [0, 1, 4, 9, 16]


def test_what_was_made_before_an_error_is_kept(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        compute_resumable(tmp_path, ["square"], 5, killed_after(2), "squares", "numbers")
    asked = []
    compute_resumable(tmp_path, ["square"], 5, noting(asked), "squares", "numbers")
    assert asked == [[2, 4]]


def test_quick_batches_share_a_part_and_a_finished_run_computes_nothing(tmp_path):
    for _ in range(2):
        assert compute_resumable(tmp_path, ["square"], 5, batches, "squares", "numbers")["square"].tolist() == [
            0,
            1,
            4,
            9,
            16,
        ]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["00000001.parquet", "00000003.parquet"]


def test_parts_of_other_rows_are_refused(tmp_path):
    compute_resumable(tmp_path, ["square"], 5, batches, "squares", "numbers")
    with pytest.raises(InputError, match="does not hold each of 6 rows once; delete the run's folder"):
        compute_resumable(tmp_path, ["square"], 6, batches, "squares", "numbers")


def test_a_damaged_part_is_made_again_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_PARTS", 0.0)
    whole = compute_resumable(tmp_path, ["square"], 5, batches, "squares", "numbers")
    second = tmp_path / "00000001.parquet"
    held = bytearray(second.read_bytes())
    place = held.index((1).to_bytes(8, "little"), 4)  # a value: Parquet alone would read another one
    held[place] ^= 4
    second.write_bytes(held)
    asked = []
    again = compute_resumable(tmp_path, ["square"], 5, noting(asked), "squares", "numbers")
    assert asked == [[1]]
    pd.testing.assert_frame_equal(again, whole)


def test_rows_that_stand_twice_count_once(tmp_path):
    compute_resumable(tmp_path, ["square"], 5, batches, "squares", "numbers")
    copied = sorted(tmp_path.iterdir())[0]
    (tmp_path / "00000004.parquet").write_bytes(copied.read_bytes())
    assert compute_resumable(tmp_path, ["square"], 5, batches, "squares", "numbers")["square"].tolist() == [
        0,
        1,
        4,
        9,
        16,
    ]


def test_nothing_to_do_is_no_rows(tmp_path):
    rows = compute_resumable(tmp_path, ["a", "b"], 0, lambda share: iter(()), "nothing", "rows")
    assert rows.columns.tolist() == ["a", "b"] and len(rows) == 0


def test_several_columns_may_hold_arrays(tmp_path):
    def pairs(share):
        yield np.array([1, 0]), np.array([0.5, 0.25]), np.array([True, False])

    rows = compute_resumable(tmp_path, ["p", "hit"], 2, pairs, "pairs", "rows")
    assert rows.values.tolist() == [[0.25, False], [0.5, True]]


@pytest.mark.parametrize("in_memory", [0, 100], ids=["file", "array"])
def test_columns_of_numbers_are_rows_in_memory_or_in_a_file(tmp_path, monkeypatch, in_memory):
    monkeypatch.setattr("evenhand.evaluation.rows.IN_MEMORY", in_memory)

    def batches(share):
        yield [2, 1], [False, False], np.float32([5, 3]), np.float32([6, 4])
        yield [0], [True], np.float32([1]), np.float32([2])

    cut, numbers = gather_numbers(tmp_path, ["cut", "p0", "p1"], 3, batches, "rows", "rows")
    assert cut.tolist() == [True, False, False] and isinstance(numbers, np.ndarray) == bool(in_memory)
    assert numbers[:].tolist() == [[1, 2], [3, 4], [5, 6]] and numbers[np.array([2, 0])].tolist() == [[5, 6], [1, 2]]


def test_numbers_of_several_kinds_and_texts_are_joined_as_one_table_would_have_them(tmp_path):
    def batches(first):
        yield [1, 0], [1, 2], ["a", None]
        yield [3, 2], [0.5, 7], ["c", "d"]

    rows = compute_resumable(tmp_path, ["n", "text"], 4, batches, "rows", "rows")
    assert rows["n"].tolist() == [2, 1, 7, 0.5] and rows["text"].tolist()[2:] == ["d", "c"]
    assert pd.isna(rows["text"][0]) and rows["text"][1] == "a"


def test_rows_of_others_are_refused(tmp_path):
    compute_resumable(tmp_path, ["square"], 5, batches, "squares", "numbers")
    for n in (4, 6):
        with pytest.raises(InputError, match=f"does not hold each of {n} rows once"):
            compute_resumable(tmp_path, ["square"], n, lambda first: iter(()), "squares", "numbers")
