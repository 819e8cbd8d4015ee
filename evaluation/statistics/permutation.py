"""Permutation test of the null hypothesis that the style of responses does not depend on the descriptor."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from evenhand.evaluation.statistics.cell_noise import summed_products
from evenhand.evaluation.statistics.cells import Cells, project
from evenhand.evaluation.statistics.effects import (
    LEVEL,
    centred,
    descriptor_means,
    effects_under_null,
    permutation_sampler,
)

PERMUTED_DIRECTIONS = 32
CLEAR = 4  # a p-value that is CLEAR standard errors from LEVEL is on the wrong side in 1 of 30,000 tests
MAX_PERMUTATIONS = 20_000
MONTE_CARLO_ERROR = 0.005  # more than two standard errors, 2 √(0.025 · 0.975 / MAX_PERMUTATIONS) = 0.0022
TIE = 1e-5  # relative difference that rounding can make between equal statistics
NUMBERS_PER_PASS = 1 << 23  # float32 numbers of the permuted means in one batch: 32 MiB


def permutation_p_value(cells: Cells, permutations: int, rng: np.random.Generator) -> float:
    """Return the p-value of the null hypothesis that style does not depend on the descriptor.

    Each permutation shuffles the responses within each template. The statistic is the variance between the descriptors'
    means over templates, as in pooled FGB*, in the 32 directions in which the responses vary most; shuffling does not
    change these directions. Under the null hypothesis responses to one template are exchangeable. The test is therefore
    exact, P(p ≤ α) ≤ α, for any number of responses (Phipson and Smyth 2010, "Permutation p-values should never be
    zero").

    The p-value is two-sided, like a 95 % interval: twice the smaller tail, at most 1. Both p < 0.05 and an interval
    above 0 require a value that is exceeded by chance in at most 2.5 % of cases.

    The test is sequential (Besag and Clifford 1991, "Sequential Monte Carlo p-values"): rounds of `permutations` are
    drawn until p is CLEAR standard errors of its simulation away from 0.05, or there are MAX_PERMUTATIONS. A p-value
    within MONTE_CARLO_ERROR of 0.05 is therefore undecided, and another seed may put it on the other side.
    """
    templates = [np.flatnonzero(cells.template == template) for template in np.unique(cells.template)]
    descriptor = np.unique(cells.descriptor, return_inverse=True)[1]
    projected = project(replace(cells, descriptor=descriptor), _leading_directions(cells, PERMUTED_DIRECTIONS))
    observed = _variance_between(descriptor_means(projected, centred(projected.mean, templates)))
    per_batch = max(1, min(permutations, NUMBERS_PER_PASS // projected.mean[: descriptor.max() + 1].size))
    above, below, n, p = 0, 0, 0, 1.0
    sampler = partial(permutation_sampler, projected)
    for batch in effects_under_null(projected, templates, MAX_PERMUTATIONS, rng, sampler, per_batch):
        spreads = _variance_between(batch)
        above += int((spreads >= observed * (1 - TIE)).sum())
        below += int((spreads <= observed * (1 + TIE)).sum())
        n += len(batch)
        p = min(1.0, 2 * (1 + min(above, below)) / (1 + n))
        if n >= permutations and abs(p - LEVEL) > CLEAR * 2 * math.sqrt(p / 2 * (1 - p / 2) / n):
            break
    return p


def _variance_between(means: np.ndarray) -> np.ndarray:
    """Return the variance between descriptors of their means, (…, D, c), summed over columns, (…)."""
    return means.var(axis=-2, dtype=np.float64).sum(axis=-1)


def _leading_directions(cells: Cells, n: int) -> np.ndarray:
    """Return the n directions in which responses vary most, (c, n) float32; the identity matrix if c ≤ n."""
    c = cells.mean.shape[1]
    if c <= n:
        return np.eye(c, dtype=np.float32)
    between = (cells.mean - np.average(cells.mean, axis=0, weights=cells.count)) * np.sqrt(cells.count)[:, None]
    within = summed_products(cells, np.arange(len(cells.count)))
    return np.linalg.eigh(within + between.T @ between)[1][:, -n:].astype(np.float32)
