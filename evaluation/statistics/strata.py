"""The covariance of the column means of a stratified sample of rows."""

import math

import numpy as np

from evenhand.evaluation.statistics.cells import cell_sums


def mean_covariance(values: np.ndarray, strata: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the covariance of the k column means of n rows, (k, k), and the degrees of freedom of the estimate.

    Rows are independent within each stratum, and the sizes n_c of the strata c are fixed. The covariance is
    Σ_c (n_c/n)² S_c/n_c, with S_c the unbiased covariance within stratum c (Cochran 1977, "Sampling Techniques", 5.9).
    A stratum of one row gets the S pooled over the other strata. If no stratum has two rows, all rows are one stratum.

    Args:
        values: the rows, (n, k), without NaN.
        strata: integer code of each row's stratum, (n,).

    In the example the variance within each of the two strata is 2, so the result is 2/4:

    >>> mean_covariance(np.array([[0.0], [2.0], [10.0], [12.0]]), np.array([0, 0, 1, 1]))  # each s² = 2: 2/4
    (array([[0.5]]), 2)
    """
    n, k = values.shape
    strata = np.unique(strata, return_inverse=True)[1]
    size = np.bincount(strata) if n else np.zeros(0, int)
    if n < 2:
        return np.full((k, k), math.nan), 0
    if size.max() < 2:
        strata, size = np.zeros(n, dtype=int), np.array([n])
    means = cell_sums(values, strata)[0] / size[:, None]
    weight = np.sqrt(np.where(size > 1, size / np.maximum(size - 1, 1), 0.0))
    alone, freedom = int((size == 1).sum()), int((size - 1).sum())
    deviation = values - means[strata]
    pooled = alone * (deviation.T @ deviation) / freedom if alone else 0.0
    deviation *= weight[strata][:, None]
    return (deviation.T @ deviation + pooled) / n**2, freedom
