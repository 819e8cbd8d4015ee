"""The bias value of a response: its style vector projected on its descriptor's bias direction (paper 002, C.1)."""

import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.statistics.cells import cell_sums

BIAS, NO_BIAS = "bias", "no_bias"
ALPHAS = (0, 1, 2)


def cell_means(vectors: np.ndarray, template: np.ndarray, descriptor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean style vector of each (descriptor, template) cell, (D, T, S), and the cell sizes, (D, T).

    The mean of an empty cell is NaN. `template` and `descriptor` are (n,) codes from 0.
    """
    n_templates, n_descriptors = int(template.max()) + 1, int(descriptor.max()) + 1
    sums, size = cell_sums(vectors, descriptor.astype(np.int64) * n_templates + template, n_descriptors * n_templates)
    with np.errstate(invalid="ignore"):
        means = sums / size[:, None]
    return means.reshape(n_descriptors, n_templates, -1), size.reshape(n_descriptors, n_templates)


def descriptor_means(vectors: np.ndarray, template: np.ndarray, descriptor: np.ndarray) -> np.ndarray:
    """Return the mean style m_d of each descriptor d, (D, S): the mean of its cell means over templates (002, C.1)."""
    return np.nanmean(cell_means(vectors, template, descriptor)[0], axis=1)


def bias_values(
    vectors: np.ndarray, template: np.ndarray, descriptor: np.ndarray, alpha: int = 0, *, cross_fitted: bool = False
) -> np.ndarray:
    """Return the bias value b = (p − m̄)·(m_d − m̄) / ‖m_d − m̄‖^α of each response, (n,) (paper 002, C.1).

    p is the response's style vector, m_d the mean style of its descriptor d (`descriptor_means`), m̄ the mean of all
    m_d. b is positive if the style of a response is characteristic of its descriptor, and near 0 for descriptors
    without bias. Units: probability² for α = 0, probability for α = 1, none for α = 2 (0 at m̄ and 1 at m_d).

    Args:
        vectors: style vectors, (n, S).
        template, descriptor: integer codes from 0, (n,).
        alpha: 0 (the paper's choice), 1 or 2.
        cross_fitted: compute the direction of each response without that response.

    Raises:
        InputError: alpha is not 0, 1 or 2.
    """
    if alpha not in ALPHAS:
        raise InputError(f"alpha: {alpha!r} is not one of {ALPHAS}; 0 is the paper's choice.")
    means, size = cell_means(vectors, template, descriptor)
    m_d = np.nanmean(means, axis=1)
    m_bar = m_d.mean(axis=0)
    n_templates = (size > 0).sum(axis=1)

    direction = m_d[descriptor] - m_bar
    if cross_fitted:
        n = size[descriptor, template][:, None]
        # Without response i, its cell mean changes by (mean − p_i) / (n − 1). For n = 1, it is not changed.
        direction += (means[descriptor, template] - vectors) / np.maximum(n - 1, 1) / n_templates[descriptor][:, None]
    return project(vectors, m_bar, direction, alpha)


def project(vectors: np.ndarray, m_bar: np.ndarray, direction: np.ndarray, alpha: int) -> np.ndarray:
    """Return (p − m̄)·direction / ‖direction‖^α for each row p of `vectors`: (n, S), (S,), (n, S) → (n,)."""
    return ((vectors - m_bar) * direction).sum(axis=1) / np.linalg.norm(direction, axis=1) ** alpha


def assign_labels(bias_value: np.ndarray, beta: float) -> np.ndarray:
    """Return the label of each response: "bias" if the bias value exceeds β, else "no_bias" (paper 002, C.1)."""
    return np.where(bias_value > beta, BIAS, NO_BIAS)
