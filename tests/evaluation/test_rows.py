"""Rows in a file have the indexing of an array, and their file has no name."""

import errno

import numpy as np
import pytest

from evenhand.evaluation import rows
from evenhand.evaluation.rows import JoinedColumns, RowFile, blocks, column_sums, copy_rows, finite_rows, new_rows


@pytest.fixture
def both(tmp_path):
    """The same rows as an array and as a file that was written in two pieces, the second out of order."""
    array = np.random.default_rng(0).random((11, 3)).astype(np.float32)
    array[4, 1] = np.nan
    file = RowFile(11, 3, np.float32, tmp_path)
    file[:5] = array[:5]
    order = np.array([9, 10, 5, 7, 6, 8])
    file[order] = array[order]
    return array, file


@pytest.mark.parametrize(
    "index",
    [slice(None), slice(2, 7), slice(5, 5), np.array([3, 4, 5, 0, 9, 9]), np.arange(11) % 2 == 0, np.zeros(0, int)],
    ids=["all", "some", "none", "positions", "mask", "no positions"],
)
def test_a_file_has_the_indexing_of_an_array(both, index):
    array, file = both
    np.testing.assert_array_equal(file[index], array[index])
    assert file[index].dtype == np.float32 and file.shape == array.shape and len(file) == 11


def test_functions_of_rows_do_not_depend_on_the_storage(both, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "NUMBERS_PER_BLOCK", 6)
    for function in (
        finite_rows,
        lambda rows: column_sums(rows, [0, 2]),
        lambda rows: copy_rows(rows, np.array([8, 1]))[:],
    ):
        np.testing.assert_array_equal(*map(function, both))
    joined = JoinedColumns(both)
    assert joined.shape == (11, 6) and [len(block) for _, block in blocks(joined)] == [1] * 11
    np.testing.assert_array_equal(joined[2:4], np.concatenate([both[0][2:4]] * 2, axis=1))
    np.testing.assert_array_equal(np.asarray(both[1]), both[0])
    assert not list(tmp_path.iterdir())  # the file has no name


def test_large_rows_are_in_a_file_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MAX_BYTES_IN_MEMORY", 24)
    assert isinstance(new_rows(2, 3), np.ndarray)
    file = new_rows(3, 3, folder=tmp_path)
    assert isinstance(file, RowFile) and file.folder == tmp_path
    assert new_rows(3, 3, folder=tmp_path / "absent").folder is None


def test_a_full_disk_is_an_error(tmp_path, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rows.os, "pwritev", full)
    with pytest.raises(OSError, match="No space left"):
        RowFile(2, 2, np.float32, tmp_path)[:] = np.ones((2, 2))
