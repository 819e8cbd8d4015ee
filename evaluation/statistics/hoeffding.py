"""Hoeffding's variance components of a U-statistic with pairs (W. Hoeffding, 1948, §5)."""

import numpy as np


def mean_of_pairs_variance(kernel: np.ndarray) -> np.ndarray:
    """Return the variance of the mean over pairs, 4 ζ₁ / n + 2 ζ₂ / (n (n−1)), from (…, n, n) kernel values."""
    n = kernel.shape[-1]
    zeta_1, zeta_2 = hoeffding_components(kernel)
    return 4 * zeta_1 / n + 2 * zeta_2 / (n * (n - 1))


def centred(products: np.ndarray) -> np.ndarray:
    """Return the products of deviations from the mean, given the (…, n, n) products."""
    rows = products.mean(axis=-1, keepdims=True)
    return products - rows - rows.swapaxes(-1, -2) + rows.mean(axis=-2, keepdims=True)


def hoeffding_components(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return unbiased estimates of a U-statistic's variance components from its (…, n, n) kernel values, n ≥ 4.

    ζ₁ = Var(E[h(X₁, X₂) | X₁]) and ζ₂ = Var of the rest, so that the mean of h over pairs has variance
    4 ζ₁ / n + 2 ζ₂ / (n (n−1)) (Hoeffding 1948, §5). The diagonal is ignored. Both may come out negative by noise.
    """
    n = kernel.shape[-1]
    off = kernel * (1 - np.eye(n))
    row = off.sum(axis=-1)
    return components(n, (off**2).sum(axis=(-2, -1)), (row**2).sum(axis=-1), row.sum(axis=-1))


def components(
    n: np.ndarray | int, squares: np.ndarray, squared_rows: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return ζ₁, ζ₂ from Σ h_ij², Σ_i (Σ_j h_ij)² and Σ h_ij over i ≠ j.

    E h₁₂², E h₁₂h₂₃ and E h₁₂h₃₄ are averages over distinct indices.
    """
    triples = squared_rows - squares
    quadruples = total**2 - 4 * triples - 2 * squares
    same = squares / (n * (n - 1))
    overlapping = triples / (n * (n - 1) * (n - 2))
    disjoint = quadruples / (n * (n - 1) * (n - 2) * (n - 3))
    return overlapping - disjoint, same - 2 * overlapping + disjoint
