"""Permutation test of the null hypothesis that the style of responses does not depend on the descriptor."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evenhand.evaluation.statistics.cell_noise import summed_products
from evenhand.evaluation.statistics.cells import Cells

PERMUTED_DIRECTIONS = 32
TIE = 1e-5  # relative difference that rounding can make between equal statistics
NUMBERS_PER_PASS = 1 << 23  # float32 numbers of the permuted means in one pass: 32 MiB


def permutation_p_value(cells: Cells, permutations: int, rng: np.random.Generator) -> float:
    """Return the p-value of the null hypothesis that style does not depend on the descriptor.

    Each permutation shuffles the responses within each template. The statistic is the variance between the descriptors'
    means over templates, as in pooled FGB*, in the 32 directions in which the responses vary most; shuffling does not
    change these directions. Under the null hypothesis responses to one template are exchangeable. The test is therefore
    exact, P(p ≤ α) ≤ α, for any number of responses (Phipson and Smyth 2010, "Permutation p-values should never be
    zero").

    The p-value is two-sided, like a 95 % interval: twice the smaller tail, at most 1. Both p < 0.05 and an interval
    above 0 require a value that is exceeded by chance in at most 2.5 % of cases. The smallest possible p-value is
    2 / (permutations + 1).
    """
    directions = _leading_directions(cells, PERMUTED_DIRECTIONS)
    templates, streams = _templates(cells), rng.spawn(len(np.unique(cells.template)))
    shape = (len(np.unique(cells.descriptor)), directions.shape[1])
    per_pass = max(1, NUMBERS_PER_PASS // (shape[0] * shape[1]))
    observed, above, below = np.inf, 0, 0
    for start in range(0, permutations, per_pass):
        means = np.zeros((min(per_pass, permutations - start) + 1, *shape), dtype=np.float32)  # the first: not shuffled
        for template, stream in zip(templates, streams, strict=True):
            _add_means(means, template, _responses(cells, template.cells, directions), stream)
        spreads = means.var(axis=1, dtype=np.float64).sum(axis=1)
        observed = spreads[0] if start == 0 else observed
        above = above + (spreads[1:] >= observed * (1 - TIE)).sum()
        below = below + (spreads[1:] <= observed * (1 + TIE)).sum()
    return min(1.0, 2 * (1 + min(above, below)) / (1 + permutations))


@dataclass(frozen=True)
class _Template:
    """The m cells of one template.

    Attributes:
        cells: indices of the cells, (m,).
        descriptor: index of each cell's descriptor, (m,).
        weight: weight of each cell in the descriptor's mean, (m,).
    """

    cells: np.ndarray
    descriptor: np.ndarray
    weight: np.ndarray


def _templates(cells: Cells) -> list[_Template]:
    descriptor = np.unique(cells.descriptor, return_inverse=True)[1]
    weight = 1.0 / np.bincount(descriptor)[descriptor]
    of_template = (np.flatnonzero(cells.template == template) for template in np.unique(cells.template))
    return [_Template(chosen, descriptor[chosen], weight[chosen]) for chosen in of_template]


def _responses(cells: Cells, chosen: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the chosen cells' responses projected on the directions, (n, d) float32, and the counts of the cells."""
    return cells.responses(chosen).astype(np.float32, copy=False) @ directions, cells.count[chosen]


def _add_means(
    means: np.ndarray, template: _Template, responses: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> None:
    """Add the template's term to the means of the descriptors, in place.

    Index 0 of `means` is for the unshuffled responses, and each other index is for one permutation.
    """
    vectors, count = responses
    n = len(vectors)
    weight = np.repeat(template.weight / count, count).astype(np.float32)
    rows, ends = np.arange(n, dtype=np.int32), np.append(0, np.cumsum(count))
    mean = sparse.csr_array((weight, rows, ends), shape=(len(count), n))
    for permutation, descriptor_means in enumerate(means):
        if permutation:
            mean.indices[:] = rng.permutation(n)
        descriptor_means[template.descriptor] += mean @ vectors


def _leading_directions(cells: Cells, n: int) -> np.ndarray:
    """Return the n directions in which responses vary most, (c, n) float32; the identity matrix if c ≤ n."""
    c = cells.mean.shape[1]
    if c <= n:
        return np.eye(c, dtype=np.float32)
    between = (cells.mean - np.average(cells.mean, axis=0, weights=cells.count)) * np.sqrt(cells.count)[:, None]
    within = summed_products(cells, np.arange(len(cells.count)))
    return np.linalg.eigh(within + between.T @ between)[1][:, -n:].astype(np.float32)
