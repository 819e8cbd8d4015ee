"""Results do not depend on the size of blocks; cells may be empty."""

import numpy as np
import pytest

from evenhand.evaluation.statistics import cells as cells_module
from evenhand.evaluation.statistics.cells import (
    add_group_sums,
    arrange_cells,
    complete_descriptors,
    select_cells,
    sum_by,
    to_codes,
    variance_of_means,
)
from evenhand.evaluation.statistics.jackknife import DESCRIPTORS, spreads_without
from evenhand.evaluation.statistics.permutation import permutation_p_value
from evenhand.evaluation.statistics.spread import column_spreads, descriptor_spread


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
        for pooled in (False, True):
            selected = select_cells(arranged, np.bincount(arranged.descriptor)[arranged.descriptor] == 3)
            spread = descriptor_spread(selected, np.linspace(-1, 2, selected.mean.shape[1]), pooled=pooled)
            numbers += [spread.plain.value, spread.plain.variance, spread.corrected.value, spread.corrected.variance]
            numbers += [spread.corrected.noise, spread.corrected.freedom]
            numbers += spreads_without(selected, np.ones(selected.mean.shape[1]), DESCRIPTORS, pooled=pooled).tolist()
    for spread in column_spreads(complete):
        numbers += [spread.plain.variance, spread.corrected.variance, *spread.corrected.interval]
    finite = np.isfinite(vectors[:]).all(axis=1)
    sums = sum_by((3 * descriptor + template)[finite], vectors[finite])
    return [*numbers, *sums.ravel(), permutation_p_value(cells, 19, np.random.default_rng(0))]


@pytest.mark.parametrize("numbers_per_block", [1, 35, 10**6], ids=["a row", "seven rows", "all"])
def test_statistics_do_not_depend_on_block_size(monkeypatch, numbers_per_block):
    responses = uneven_responses(np.random.default_rng(0))
    expected = cell_statistics(*responses)
    monkeypatch.setattr(cells_module, "NUMBERS_PER_BLOCK", numbers_per_block)
    np.testing.assert_allclose(cell_statistics(*responses), expected, rtol=1e-5, atol=1e-9)


def test_a_template_of_one_descriptor_does_not_make_the_others_incomplete():
    template, descriptor = np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 0, 0, 1, 1, 0, 0])
    complete = complete_descriptors(arrange_cells(np.random.default_rng(0).random((10, 3)), template, descriptor))
    assert (complete.n, complete.n_left_out) == (8, 2) and set(complete.template) == {0, 1}
    alone = complete_descriptors(arrange_cells(np.ones((4, 3)), np.array([0, 0, 1, 1]), np.zeros(4, dtype=int)))
    assert len(alone.count) == 2  # nobody to compare


def test_the_permutation_test_depends_neither_on_rounding_nor_on_the_order_of_rows():
    """Of the 70 splits of 8 responses, 2 are as far apart as the observed one: p is 4/70 in every order of the rows."""
    values = np.array([0.91, 0.83, 0.77, 0.85, 0.12, 0.21, 0.17, 0.05])
    vectors, descriptor, p_values = np.column_stack([values, 1 - values]), np.repeat([0, 1], 4), []
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(8)
        cells = arrange_cells(vectors[order].astype(np.float32), np.zeros(8, dtype=int), descriptor[order])
        p_values.append(permutation_p_value(cells, 199, np.random.default_rng(0)))
    assert p_values == pytest.approx([p_values[0]] * 12, abs=1e-12) and p_values[0] == pytest.approx(4 / 70, abs=0.005)
