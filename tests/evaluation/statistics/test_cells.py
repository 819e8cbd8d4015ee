"""Results do not depend on the size of blocks; cells may be empty."""

import numpy as np
import pytest

from evenhand.evaluation.statistics import cells as cells_module
from evenhand.evaluation.statistics.cells import (
    add_group_sums,
    arrange_cells,
    select_cells,
    sum_by,
    to_codes,
    variance_of_means,
)
from evenhand.evaluation.statistics.descriptor_spread import column_spreads, descriptor_spread
from evenhand.evaluation.statistics.person_pairs import pooled_spread


def test_selections_and_sums_of_cells():
    """An axis all of whose responses are empty."""
    cells = arrange_cells(np.ones((4, 3)), np.array([0, 0, 0, 0]), np.array([0, 0, 1, 1]))
    empty = select_cells(cells, np.zeros(2, dtype=bool))
    assert (len(empty.start), len(empty.count), empty.n, empty.n_left_out) == (0, 0, 0, 4)
    assert np.isnan(variance_of_means(empty, empty.mean))
    assert not list(empty.blocks())
    vectors = np.arange(6.0)[:, None]  # cells of one template: rows 0–1, 2–3, 4–5 with means 0.5, 2.5, 4.5
    cells = arrange_cells(vectors, np.zeros(6, dtype=int), np.array([0, 0, 1, 1, 2, 2]))
    selected = select_cells(cells, np.array([True, False, True]))
    (block,) = selected.blocks()
    assert block.rows.ravel().tolist() == [0, 1, 4, 5] and block.deviations.ravel().tolist() == [-0.5, 0.5] * 2
    assert block.cells.tolist() == [0, 1] and block.sum_by_cell(block.rows).ravel().tolist() == [1, 9]
    assert variance_of_means(selected, selected.mean) == 4.0  # of 0.5 and 4.5, ddof 0
    names = ["b", "a", "c", "a"]
    for values in (names, np.array(names), np.array(names, dtype=object)):
        assert to_codes(values).tolist() == [1, 0, 2, 0]
    rng = np.random.default_rng(0)
    vectors, template, descriptor = rng.random((50, 4)), rng.integers(0, 3, 50), rng.integers(0, 4, 50)
    cells = arrange_cells(vectors, template, descriptor)
    (summed,), (whole,) = add_group_sums(cells, [np.array([0, 2]), np.array([1])]).blocks(), cells.blocks()
    first, second, third = whole.rows[:, :3].T
    expected = [first, third, first + third, second, second]
    np.testing.assert_array_equal(summed.rows.T, expected)


def uneven_responses(rng):
    """Cells of 2 to 40 responses, one of 300, an undefined row, and a cell of one."""
    size = rng.integers(2, 40, 12)
    size[3], size[5] = 300, 1
    cell = rng.permutation(np.repeat(np.arange(12), size))
    vectors = rng.dirichlet(np.full(5, 0.5), len(cell)).astype(np.float32)
    vectors[7] = np.nan
    return vectors, cell % 3, cell // 3


def cell_statistics(vectors, template, descriptor):
    """Return all statistics of cells as one list of numbers."""
    cells = arrange_cells(vectors, template, descriptor)
    sums, numbers = add_group_sums(cells, [np.array([0, 2]), np.array([1])]), [*cells.mean.ravel(), cells.n_left_out]
    complete = select_cells(cells, ~np.isin(cells.descriptor, cells.descriptor[cells.count < 2]))
    for arranged in (cells, sums):
        selected = select_cells(arranged, arranged.count > 1)
        weights = np.linspace(-1, 2, selected.mean.shape[1])
        spread = descriptor_spread(selected, weights)
        numbers += [spread.plain.value, spread.plain.variance, spread.corrected.value, spread.corrected.variance]
        numbers += [spread.corrected.noise, spread.corrected.freedom]
        pooled = pooled_spread(arranged, weights)
        numbers += [pooled.value, pooled.variance, pooled.noise, pooled.freedom]
    for spread in column_spreads(complete):
        numbers += [spread.plain.variance, spread.corrected.variance, *spread.corrected.interval]
    finite = np.isfinite(vectors[:]).all(axis=1)
    sums = sum_by((3 * descriptor + template)[finite], vectors[finite])
    return [*numbers, *sums.ravel()]


@pytest.mark.parametrize("numbers_per_block", [1, 35, 10**6], ids=["a row", "seven rows", "all"])
def test_statistics_do_not_depend_on_block_size(monkeypatch, numbers_per_block):
    responses = uneven_responses(np.random.default_rng(0))
    expected = cell_statistics(*responses)
    monkeypatch.setattr(cells_module, "NUMBERS_PER_BLOCK", numbers_per_block)
    np.testing.assert_allclose(cell_statistics(*responses), expected, rtol=1e-5, atol=1e-9)
