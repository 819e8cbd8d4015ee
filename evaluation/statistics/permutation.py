"""Whether the style of a response depends on the descriptor at all: a permutation test."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evenhand.evaluation.statistics.cells import Cells
from evenhand.evaluation.statistics.hoeffding import summed_products

PERMUTED_DIRECTIONS = 32
NUMBERS_PER_PASS = 1 << 23  # float32 numbers of the means of permutations that are made in one pass: 32 MiB


def permutation_p_value(cells: Cells, permutations: int, rng: np.random.Generator) -> float:
    """Test "the style of a response does not depend on the descriptor": shuffle responses within each template.

    The statistic is the spread of the descriptors' means over templates, that of pooled FGB*, in the 32 directions in
    which responses vary most (which shuffling does not change). Under the hypothesis responses to one template are
    exchangeable, so the test is exact: P(p ≤ α) ≤ α, whatever the number of responses (Phipson and Smyth 2010,
    "Permutation p-values should never be zero").

    The p-value is two-sided, twice the smaller tail and at most 1, as a 95 % interval is: p below 0.05 and an interval
    wholly above 0 ask for the same, a value that chance exceeds in 2.5 %. Resolution: 2 / (permutations + 1).
    """
    directions = _leading_directions(cells, PERMUTED_DIRECTIONS)
    templates, streams = _templates(cells), rng.spawn(len(np.unique(cells.template)))
    shape = (len(np.unique(cells.descriptor)), directions.shape[1])
    at_once = max(1, NUMBERS_PER_PASS // (shape[0] * shape[1]))
    observed, above, below = np.inf, 0, 0
    for start in range(0, permutations, at_once):
        means = np.zeros((min(at_once, permutations - start) + 1, *shape), dtype=np.float32)  # the first: as they are
        for template, stream in zip(templates, streams, strict=True):
            _add_means(means, template, _responses(cells, template.cells, directions), stream)
        spreads = means.var(axis=1, dtype=np.float64).sum(axis=1)
        observed = spreads[0] if start == 0 else observed
        above, below = above + (spreads[1:] >= observed).sum(), below + (spreads[1:] <= observed).sum()
    return min(1.0, 2 * (1 + min(above, below)) / (1 + permutations))


@dataclass(frozen=True)
class _Template:
    """The cells of one template, the place of the descriptor of each among all, and its weight in that one's mean."""

    cells: np.ndarray
    descriptor: np.ndarray
    weight: np.ndarray


def _templates(cells: Cells) -> list[_Template]:
    descriptor = np.unique(cells.descriptor, return_inverse=True)[1]
    weight = 1.0 / np.bincount(descriptor)[descriptor]
    of_template = (np.flatnonzero(cells.template == template) for template in np.unique(cells.template))
    return [_Template(chosen, descriptor[chosen], weight[chosen]) for chosen in of_template]


def _responses(cells: Cells, chosen: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the responses in the chosen cells, along the directions, float32, and the number in each cell."""
    blocks = (block.rows.astype(np.float32, copy=False) @ directions for block in cells.blocks(chosen))
    return np.concatenate(list(blocks)), cells.count[chosen]


def _add_means(
    means: np.ndarray, template: _Template, responses: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> None:
    """Add the template's part of the descriptors' means: as the responses are, and as each permutation has them."""
    vectors, count = responses
    n = len(vectors)
    weight = np.repeat(template.weight / count, count).astype(np.float32)
    rows, ends = np.arange(n, dtype=np.int32), np.append(0, np.cumsum(count))
    mean = sparse.csr_array((weight, rows, ends), shape=(len(count), n))
    for number, found in enumerate(means):
        if number:
            mean.indices[:] = rng.permutation(n)
        found[template.descriptor] += mean @ vectors


def _leading_directions(cells: Cells, n: int) -> np.ndarray:
    """Return the n directions of largest variance, float32 (c, n), or those of the columns if there are no more."""
    c = len(cells.columns)
    if c <= n:
        return np.eye(c, dtype=np.float32)
    between = (cells.mean - np.average(cells.mean, axis=0, weights=cells.count)) * np.sqrt(cells.count)[:, None]
    within = summed_products(cells.blocks())
    return np.linalg.eigh(within + between.T @ between)[1][:, -n:].astype(np.float32)
