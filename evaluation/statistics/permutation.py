"""Whether the style of a response depends on the descriptor at all: a permutation test."""

import numpy as np
from scipy import sparse

from evenhand.evaluation.statistics.cells import Cells

PERMUTED_DIRECTIONS = 32


def permutation_p_value(cells: Cells, permutations: int, rng: np.random.Generator) -> float:
    """Test "the style of a response does not depend on the descriptor": shuffle responses within each template.

    The statistic is the spread of the descriptors' means over templates, in the 32 directions in which responses vary
    most (which shuffling does not change). Under the hypothesis responses to one template are exchangeable, so the
    test is exact. Resolution: 1 / (permutations + 1).
    """
    code = np.repeat(cells.descriptor, cells.count)
    template = np.repeat(cells.template, cells.count)
    weight = np.repeat(1.0 / (cells.count * np.bincount(cells.descriptor)[cells.descriptor]), cells.count)
    vectors = _leading_directions(np.ascontiguousarray(cells.vectors, dtype=np.float32), PERMUTED_DIRECTIONS)
    by_template = [np.flatnonzero(template == t) for t in np.unique(template)]
    present = np.unique(code)

    def spread(order: np.ndarray) -> float:
        sums = sparse.csr_array((weight.astype(np.float32), (code, order)), shape=(code.max() + 1, len(code))) @ vectors
        return float(sums[present].var(axis=0, dtype=np.float64).sum())

    order = np.arange(len(code))
    observed, at_least = spread(order), 0
    for _ in range(permutations):
        for rows in by_template:
            order[rows] = rng.permutation(rows)
        at_least += spread(order) >= observed
    return (1 + at_least) / (1 + permutations)


def _leading_directions(vectors: np.ndarray, n: int) -> np.ndarray:
    """Return the vectors (rows, c) in their n directions of largest variance, or as they are if c is no larger."""
    if vectors.shape[1] <= n:
        return vectors
    centred = vectors - vectors.mean(axis=0)
    return centred @ np.linalg.eigh(centred.T @ centred)[1][:, -n:]
