"""Rows in a file are read and written as those of an array are, and leave nothing behind."""

import errno

import numpy as np
import pytest

from evenhand.evaluation import rows
from evenhand.evaluation.rows import JoinedColumns, RowFile, blocks, column_sums, copy_rows, finite_rows, new_rows


@pytest.fixture
def both(tmp_path):
    """The same rows as an array and in a file, which is written in two pieces, the second out of order."""
    array = np.random.default_rng(0).random((11, 3)).astype(np.float32)
    array[4, 1] = np.nan
    file = RowFile(11, 3, np.float32, tmp_path)
    file[:5] = array[:5]
    order = np.array([9, 10, 5, 7, 6, 8])
    file[order] = array[order]
    return array, file


@pytest.mark.parametrize(
    "asked",
    [slice(None), slice(2, 7), slice(5, 5), np.array([3, 4, 5, 0, 9, 9]), np.arange(11) % 2 == 0, np.zeros(0, int)],
    ids=["all", "some", "none", "positions", "mask", "no positions"],
)
def test_a_file_gives_what_an_array_gives(both, asked):
    array, file = both
    np.testing.assert_array_equal(file[asked], array[asked])
    assert file[asked].dtype == np.float32 and file.shape == array.shape and len(file) == 11


def test_all_that_is_made_of_rows_is_the_same_of_both(both, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "NUMBERS_PER_BLOCK", 6)
    for of_rows in (finite_rows, lambda it: column_sums(it, [0, 2]), lambda it: copy_rows(it, np.array([8, 1]))[:]):
        np.testing.assert_array_equal(*map(of_rows, both))
    joined = JoinedColumns(both)
    assert joined.shape == (11, 6) and [place.stop - place.start for place, _ in blocks(joined)] == [1] * 11
    np.testing.assert_array_equal(joined[2:4], np.concatenate([both[0][2:4]] * 2, axis=1))
    np.testing.assert_array_equal(np.asarray(both[1]), both[0])
    assert not list(tmp_path.iterdir())  # the file has no name


def test_what_is_larger_than_memory_should_hold_lies_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MAX_BYTES_IN_MEMORY", 24)
    assert isinstance(new_rows(2, 3), np.ndarray)
    file = new_rows(3, 3, folder=tmp_path)
    assert isinstance(file, RowFile) and file.folder == tmp_path
    assert new_rows(3, 3, folder=tmp_path / "absent").folder is None


def test_a_full_disk_is_told_as_such(tmp_path, monkeypatch):
    def full(*told):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rows.os, "pwritev", full)
    with pytest.raises(OSError, match="No space left"):
        RowFile(2, 2, np.float32, tmp_path)[:] = np.ones((2, 2))
