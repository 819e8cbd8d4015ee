"""Whether the style of a response depends on the descriptor at all: a permutation test."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from evenhand.evaluation.statistics.cells import Cells

PERMUTED_DIRECTIONS = 32
ROWS_AT_ONCE = 8192  # of 32 float32 numbers: 1 MiB, which stays in the caches while it is summed in random order


def permutation_p_value(cells: Cells, permutations: int, rng: np.random.Generator) -> float:
    """Test "the style of a response does not depend on the descriptor": shuffle responses within each template.

    The statistic is the spread of the descriptors' means over templates, that of pooled FGB*, in the 32 directions in
    which responses vary most (which shuffling does not change). Under the hypothesis responses to one template are
    exchangeable, so the test is exact: P(p ≤ α) ≤ α, whatever the number of responses (Phipson and Smyth 2010,
    "Permutation p-values should never be zero").

    The p-value is two-sided, twice the smaller tail and at most 1, as a 95 % interval is: p below 0.05 and an interval
    wholly above 0 ask for the same, a value that chance exceeds in 2.5 %. Resolution: 2 / (permutations + 1).
    """
    vectors = _leading_directions(cells.vectors.astype(np.float32, copy=False), PERMUTED_DIRECTIONS)
    blocks = _blocks(cells, vectors)
    present = np.bincount(cells.descriptor) > 0

    def spread() -> float:
        means = sum(block.means @ block.vectors for block in blocks)
        return float(means[present].var(axis=0, dtype=np.float64).sum())

    observed, above, below = spread(), 0, 0
    for _ in range(permutations):
        for block in blocks:
            for places, rows in block.templates:
                rng.shuffle(rows)
                block.means.indices[places] = rows
        found = spread()
        above, below = above + (found >= observed), below + (found <= observed)
    return min(1.0, 2 * (1 + min(above, below)) / (1 + permutations))


@dataclass(frozen=True)
class _Block:
    """Some templates with their responses.

    vectors: (r, c). means: (descriptors, r), sparse: times the vectors these templates' part of the descriptors' means.
    templates: of each the places of its responses in the sparse matrix, and its rows, which are shuffled.
    """

    vectors: np.ndarray
    means: sparse.csr_array
    templates: list[tuple[slice | np.ndarray, np.ndarray]]


def _blocks(cells: Cells, vectors: np.ndarray) -> list[_Block]:
    """Return all templates, in blocks of so many responses that their vectors stay in the caches."""
    weights = 1.0 / (cells.count * np.bincount(cells.descriptor)[cells.descriptor])
    rows_of = np.bincount(cells.template, weights=cells.count)
    block_of = (np.cumsum(rows_of) - rows_of).astype(np.int64) // ROWS_AT_ONCE
    found = []
    for number in np.unique(block_of[cells.template]):
        chosen = np.flatnonzero(block_of[cells.template] == number)
        chosen = chosen[np.argsort(cells.descriptor[chosen], kind="stable")]
        count, descriptor = cells.count[chosen], cells.descriptor[chosen]
        positions = np.concatenate(
            [np.arange(cells.start[cell], cells.start[cell] + cells.count[cell]) for cell in chosen]
        )
        template = np.repeat(cells.template[chosen], count)
        ends = np.cumsum(np.bincount(descriptor, weights=count, minlength=cells.descriptor.max() + 1)).astype(np.int64)
        weight = np.repeat(weights[chosen], count).astype(np.float32)
        rows = np.arange(len(positions))
        means = sparse.csr_array((weight, rows.astype(np.int32), np.append(0, ends)), shape=(len(ends), len(rows)))
        names = np.unique(template)
        places = [np.flatnonzero(template == name) if len(names) > 1 else slice(None) for name in names]
        found.append(_Block(vectors[positions], means, [(place, rows[place].copy()) for place in places]))
    return found


def _leading_directions(vectors: np.ndarray, n: int) -> np.ndarray:
    """Return the vectors (rows, c) in their n directions of largest variance, or as they are if c is no larger."""
    if vectors.shape[1] <= n:
        return np.ascontiguousarray(vectors)
    centred = vectors - vectors.mean(axis=0)
    return centred @ np.linalg.eigh(centred.T @ centred)[1][:, -n:]
