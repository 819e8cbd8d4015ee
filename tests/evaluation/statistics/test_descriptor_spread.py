"""The estimates against hand-worked cells, exact enumeration of all outcomes, and a planted truth."""

from itertools import product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.evaluation.statistics.cell_noise import components, pair_sums
from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.descriptor_spread import column_spreads, descriptor_spread


def cells_of(responses_by_cell):
    """{(template, descriptor): list of vectors} → Cells."""
    rows = [(v, t, d) for (t, d), vectors in responses_by_cell.items() for v in vectors]
    vectors, template, descriptor = (np.array(column) for column in zip(*rows, strict=True))
    return arrange_cells(vectors.astype(np.float32), template, descriptor)


def test_templates_by_hand():
    # Means (1, 0) and (½, ½). With ddof = 0 each style's variance is (¼)² = 1/16; with ddof = 1, 1/8.
    # Within cells s² is 0, and ½ for each style: noise = mean over descriptors of (½ + ½) / 2 = ¼.
    spread = descriptor_spread(cells_of({(0, 0): [(1, 0), (1, 0)], (0, 1): [(1, 0), (0, 1)]}))
    assert spread.plain.value == pytest.approx(2 / 16)
    assert spread.corrected.value == pytest.approx(2 / 8 - 1 / 4)
    assert spread.corrected.interval is None  # responses vary in one cell alone: no other says by how much
    cells = cells_of({(0, 0): [(1, 0)] * 2, (0, 1): [(0, 1)] * 2, (1, 0): [(0, 1)] * 2, (1, 1): [(1, 0)] * 2})
    assert descriptor_spread(cells).plain.value == pytest.approx(2 / 4)
    assert descriptor_spread(cells).corrected.value == pytest.approx(2 / 2)


@pytest.mark.parametrize(
    "probabilities",
    [[[0.2, 0.5, 0.9]], [[0.3, 0.3, 0.3]], [[0.5, 0.1], [0.4, 0.9]], [[0.5, 0.0, 0.7], [0.4, 1.0]]],
    ids=["one template", "no bias", "two templates", "a template without one of the descriptors"],
)
def test_value_and_variance_are_unbiased_over_all_outcomes(probabilities):
    """Responses are of style 0 or 1 and there are four to a cell, so all outcomes can be weighed exactly."""
    p = {(t, d): q for t, of_template in enumerate(probabilities) for d, q in enumerate(of_template)}
    truth = np.mean([2 * np.var(of_template, ddof=1) for of_template in probabilities])
    total, mean, square, variance = 0.0, *np.zeros((3, 2))  # of the corrected and of the plain estimate
    for ones in product(range(5), repeat=len(p)):
        weight = np.prod([comb(4, k) * q**k * (1 - q) ** (4 - k) for k, q in zip(ones, p.values(), strict=True)])
        if weight == 0:
            continue
        cells = {cell: [(1, 0)] * k + [(0, 1)] * (4 - k) for cell, k in zip(p, ones, strict=True)}
        spread = descriptor_spread(cells_of(cells))
        values = np.array([spread.corrected.value, spread.plain.value])
        total += weight
        mean += weight * values
        square += weight * values**2
        variance += weight * np.array([spread.corrected.variance, spread.plain.variance])
    assert total == pytest.approx(1)
    assert mean[0] == pytest.approx(truth, abs=1e-9)
    assert variance == pytest.approx(square - mean**2, rel=1e-6)


@pytest.mark.parametrize("n", [4, 6])
def test_hoeffding_components_average_over_distinct_indices(n):
    kernel = np.random.default_rng(n).normal(size=(n, n))
    kernel += kernel.T
    pairs, triples, quadruples = [], [], []
    for i, j, k, m in product(range(n), repeat=4):
        if len({i, j}) == 2 and k == m == 0:
            pairs.append(kernel[i, j] ** 2)
        if len({i, j, k}) == 3 and m == 0:
            triples.append(kernel[i, j] * kernel[j, k])
        if len({i, j, k, m}) == 4:
            quadruples.append(kernel[i, j] * kernel[k, m])
    zeta_1, zeta_2 = components_of(kernel)
    assert zeta_1 == pytest.approx(np.mean(triples) - np.mean(quadruples))
    assert zeta_2 == pytest.approx(np.mean(pairs) - 2 * np.mean(triples) + np.mean(quadruples))


def components_of(kernel):
    """ζ₁ and ζ₂ from the (n, n) values of a kernel, whose diagonal is ignored."""
    off = kernel * (1 - np.eye(len(kernel)))
    row = off.sum(axis=1)
    return components(len(kernel), (off**2).sum(), (row**2).sum(), row.sum())


@pytest.mark.parametrize("n", [4, 9])
def test_sums_over_responses_say_what_all_pairs_say(n):
    """Fewer responses than columns, and more; weights of both signs; any constant."""
    rng = np.random.default_rng(n)
    x, w, delta = rng.normal(size=(n, 6)), rng.normal(size=6), rng.normal(size=6)
    cells = arrange_cells(x, np.zeros(n, dtype=int), np.zeros(n, dtype=int))
    pairs = pair_sums(cells, w, delta[None])
    r = x - x.mean(axis=0)
    products, linear = (r * w) @ r.T, (r * w) @ delta
    own = np.diag(products)
    kernel = 7 + products + linear[:, None] + linear
    plain = 7 + products * (n - 1) / n + linear[:, None] + linear + (own[:, None] + own) / (2 * n)
    for values, found in ((kernel, pairs.variance()), (plain, pairs.variance(plain=True))):
        zeta_1, zeta_2 = components_of(values)
        assert found[0] == pytest.approx(4 * zeta_1 / n + 2 * zeta_2 / (n * (n - 1)))


def random_responses(seed, templates=3, descriptors=6, answers_per_cell=5, styles=4):
    rng = np.random.default_rng(seed)
    size = rng.integers(answers_per_cell - 1, answers_per_cell + 2, (descriptors, templates))
    cell = np.repeat(np.arange(size.size), size.ravel())
    vectors = rng.dirichlet(np.full(styles, 0.5), len(cell))
    return vectors, cell % templates, cell // templates


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_neither_order_nor_names_matter(seed):
    vectors, template, descriptor = random_responses(seed)
    rng = np.random.default_rng(seed)
    order, renamed = rng.permutation(len(vectors)), rng.permutation(descriptor.max() + 1)
    one = descriptor_spread(arrange_cells(vectors, template, descriptor))
    other = descriptor_spread(arrange_cells(vectors[order], template[order], renamed[descriptor][order]))
    for form in ("plain", "corrected"):
        assert getattr(one, form).value == pytest.approx(getattr(other, form).value)
        assert getattr(one, form).variance == pytest.approx(getattr(other, form).variance, rel=1e-4)


@pytest.mark.parametrize("answers_per_cell", [(2, 2, 2), (2, 3, 3), (2, 2, 5)])
def test_the_noise_of_small_cells_is_unbiased_over_all_outcomes_where_there_is_no_bias(answers_per_cell):
    total, square, noise = 0.0, 0.0, 0.0
    for ones in product(*(range(n + 1) for n in answers_per_cell)):
        weight = np.prod([comb(n, k) * 0.3**k * 0.7 ** (n - k) for k, n in zip(ones, answers_per_cell, strict=True)])
        cells = {
            (0, d): [(1, 0)] * k + [(0, 1)] * (n - k)
            for d, (k, n) in enumerate(zip(ones, answers_per_cell, strict=True))
        }
        estimate = descriptor_spread(cells_of(cells)).corrected
        total += weight
        square += weight * estimate.value**2
        noise += weight * estimate.noise
        assert estimate.noise >= 0
    assert total == pytest.approx(1)
    assert noise == pytest.approx(square, rel=1e-5)


def planted(rng, size, descriptors=60, templates=5, answers_per_cell=4, styles=6):
    """Sample one-hot responses whose style depends on the descriptor by `size`; return them and the true spread.

    Cells have `answers_per_cell` responses, or, of a tuple, a number of these at random.
    """
    base = rng.dirichlet(np.full(styles, 2.0), templates)
    tilt = rng.dirichlet(np.full(styles, 0.5), descriptors)
    p = (1 - size) * base[None] + size * tilt[:, None]
    truth = p.var(axis=0, ddof=1).sum(axis=1).mean()

    def sample():
        count = rng.choice(np.atleast_1d(answers_per_cell), descriptors * templates)
        cell = np.repeat(np.arange(descriptors * templates), count)
        descriptor, template = cell // templates, cell % templates
        style = (p[descriptor, template].cumsum(axis=1) > rng.random(len(cell))[:, None]).argmax(axis=1)
        return arrange_cells(np.eye(styles)[style], template, descriptor)

    return sample, truth


def coverage(sample, truth, trials):
    """Return the share of intervals that hold the truth."""
    holds = 0
    for _ in range(trials):
        low, high = descriptor_spread(sample()).corrected.interval
        holds += low <= truth <= high
    return holds / trials


@pytest.mark.parametrize("size", [0.0, 0.3])
@pytest.mark.parametrize("answers_per_cell", [2, (2, 3, 4, 5, 6)], ids=["two", "two to six"])
def test_intervals_cover_the_truth_where_cells_are_small(answers_per_cell, size):
    """With the mean variance of the larger cells these were 37 to 88 %; where all cells are small there were none."""
    holds = coverage(
        *planted(np.random.default_rng(9), size, descriptors=20, templates=3, answers_per_cell=answers_per_cell), 60
    )
    assert holds > 0.86  # 95 % less 3 standard errors of 60 trials


def test_many_columns_at_once_equal_one_at_a_time_where_cells_are_small():
    cells = arrange_cells(*random_responses(8, answers_per_cell=3))
    assert (cells.count < 4).any() and (cells.count >= 4).any()
    for column, together in enumerate(column_spreads(cells)):
        alone = descriptor_spread(cells, np.eye(4)[column])
        for form in ("plain", "corrected"):
            one, other = getattr(together, form), getattr(alone, form)
            for part in ("variance", "noise", "freedom", "interval"):
                assert getattr(one, part) == pytest.approx(getattr(other, part), rel=1e-4)
