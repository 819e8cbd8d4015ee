"""Interaction of two crossed attributes, such as gender and age: does the effect of one depend on the other?

With y_ab the mean of the people with level a of the first and level b of the second attribute, the contrast is

    y_ab − y_a· − y_·b + y_··,

where a dot is a mean over levels. No permutation leaves main effects in place and removes the interaction, so that no
exact test exists (Anderson and ter Braak 2003, "Permutation tests for multi-factorial analysis of variance"). One
random sign for all cells of a unit, a template or a name, gives the null distribution of the largest studentised
contrast (Westfall and Young 1993, "Resampling-Based Multiple Testing"), if deviations are about symmetric.
"""

from dataclasses import dataclass

import numpy as np

DRAWS_AT_ONCE = 250


@dataclass(frozen=True)
class Contrasts:
    """The contrasts of an interaction, k of them, with intervals and p-values that hold for all of them together.

    Attributes:
        value: the contrasts, in the unit of the values, (k,); ideal 0.
        low, high: bounds of 95 % intervals that hold together, (k,) each.
        p: p-values, adjusted for all contrasts, (k,).
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p: np.ndarray


def contrast_matrix(n_first: int, n_second: int) -> np.ndarray:
    """Return the matrix (a · b, a · b) that maps cell means, row by row, to the contrasts of their interaction.

    >>> contrast_matrix(2, 2)[0].tolist()
    [0.25, -0.25, -0.25, 0.25]
    """
    first = np.eye(n_first) - 1 / n_first
    second = np.eye(n_second) - 1 / n_second
    return np.kron(first, second)


def crossed_contrasts(means: np.ndarray, draws: int, rng: np.random.Generator, level: float = 0.05) -> Contrasts:
    """Return the contrasts where every template has all cells; the templates are the units.

    Args:
        means: cell means by template, level of the first and the second attribute, and column, (T, a, b, c); of fewer
            than MIN_TEMPLATES templates, signs have too few patterns for a p-value.
        draws: the number of draws of signs.
        rng: source of the signs.
        level: the error of all intervals together.

    Returns:
        a · b · c contrasts, the columns last.
    """
    n_templates, n_first, n_second, n_columns = means.shape
    cells = means.reshape(n_templates, n_first * n_second, n_columns)
    contrasts = np.einsum("kj,tjc->tkc", contrast_matrix(n_first, n_second), cells).reshape(n_templates, -1)
    value = contrasts.mean(axis=0)
    return _tested(value, (contrasts - value) / n_templates, n_templates, draws, rng, level)


def nested_contrasts(
    values: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    draws: int,
    rng: np.random.Generator,
    level: float = 0.05,
) -> Contrasts:
    """Return the contrasts where each unit, such as a name, belongs to one cell.

    Args:
        values: one value of each unit in each column, (n, c).
        first, second: codes of the unit's levels, (n,) each; every combination has at least two units.
        draws, rng, level: as of `crossed_contrasts`.
    """
    n_second = int(second.max()) + 1
    cell = first * n_second + second
    count = np.bincount(cell).astype(float)
    indicator = np.eye(len(count))[cell]
    means = (indicator.T @ values) / count[:, None]
    matrix = contrast_matrix(int(first.max()) + 1, n_second)
    value = (matrix @ means).ravel()
    # A mean of few units varies less around itself than around the truth: n / (n − 1) of the variance.
    weight = np.sqrt(count / (count - 1))[cell] / count[cell]
    deviations = weight[:, None] * (values - means[cell])
    by_unit = np.einsum("kn,nc->nkc", matrix[:, cell], deviations).reshape(len(values), -1)
    return _tested(value, by_unit, np.inf, draws, rng, level)


def _tested(
    value: np.ndarray, deviations: np.ndarray, n: float, draws: int, rng: np.random.Generator, level: float
) -> Contrasts:
    """Return contrasts with intervals and p-values from signs of the units' parts of the deviations, (units, k).

    The variance of a sum of units is Σ deviation², times n / (n − 1) if one mean was subtracted from all n units.
    """
    correction = 1.0 if np.isinf(n) else n / (n - 1)
    squares = (deviations**2).sum(axis=0)
    error = np.sqrt(correction * squares)
    varies = error > 1e-12
    largest = []
    for start in range(0, draws, DRAWS_AT_ONCE):
        signs = rng.choice([-1.0, 1.0], size=(min(DRAWS_AT_ONCE, draws - start), len(deviations)))
        drawn = signs @ deviations
        rest = squares if np.isinf(n) else squares - drawn**2 / n
        drawn_error = np.sqrt(np.maximum(correction * rest, 0.0))
        z = np.divide(np.abs(drawn), drawn_error, out=np.zeros_like(drawn), where=varies & (drawn_error > 1e-12))
        largest.append(z.max(axis=1, initial=0.0))
    null = np.sort(np.concatenate(largest))
    critical = null[min(int(np.ceil((1 - level) * (len(null) + 1))) - 1, len(null) - 1)]
    # A contrast that is the same in all units is 0 for certain, or differs from 0 for certain.
    same = np.where(np.abs(value) > 1e-12, np.inf, 0.0)
    observed = np.divide(np.abs(value), error, out=same, where=varies)
    n_as_large = len(null) - np.searchsorted(null, observed * (1 - 1e-9), side="left")
    p = np.where(observed > 0, (n_as_large + 1) / (len(null) + 1), 1.0)
    return Contrasts(value, value - critical * error, value + critical * error, p)
