"""Cells without any response are cells still: what is said of them is that nothing can be."""

import numpy as np

from evenhand.evaluation.statistics import cells
from evenhand.evaluation.statistics.cells import arrange_cells, keep_cells, variance_of_means


def test_what_keeps_no_cell_has_no_rows_and_no_variance():
    """An axis all of whose responses are empty."""
    cells = arrange_cells(np.ones((4, 3)), np.array([0, 0, 0, 0]), np.array([0, 0, 1, 1]))
    nothing = keep_cells(cells, np.zeros(2, dtype=bool))
    assert (len(nothing.start), len(nothing.count), nothing.n, nothing.n_left_out) == (0, 0, 0, 4)
    assert np.isnan(variance_of_means(nothing)).all() and variance_of_means(nothing).shape == (3,)


def test_the_cells_that_are_kept_begin_where_their_rows_do():
    vectors = np.arange(6.0)[:, None]  # cells of one template: rows 0–1, 2–3, 4–5 with means 0.5, 2.5, 4.5
    cells = arrange_cells(vectors, np.zeros(6, dtype=int), np.array([0, 0, 1, 1, 2, 2]))
    kept = keep_cells(cells, np.array([True, False, True]))
    assert kept.start.tolist() == [0, 2] and kept.vectors.ravel().tolist() == [0, 1, 4, 5]
    assert variance_of_means(kept).tolist() == [4.0]  # of 0.5 and 4.5, ddof 0


def test_sums_stand_behind_the_columns_whatever_is_sorted_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    vectors, template, descriptor = rng.random((50, 4)), rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    vectors[7] = np.nan
    plain = arrange_cells(vectors, template, descriptor)
    monkeypatch.setattr(cells, "ROWS_AT_ONCE", 7)
    summed = arrange_cells(vectors, template, descriptor, sums=[(0, 2), (1,)])
    np.testing.assert_array_equal(summed.vectors[:, :4], plain.vectors)
    np.testing.assert_array_equal(summed.vectors[:, 4], plain.vectors[:, 0] + plain.vectors[:, 2])
    np.testing.assert_array_equal(summed.vectors[:, 5], plain.vectors[:, 1])
    assert summed.n_left_out == plain.n_left_out >= 1
