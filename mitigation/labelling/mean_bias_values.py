"""Mean bias values of the responses to each descriptor, before and after tuning (paper 002, C.2)."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE
from evenhand.evaluation.statistics.cells import factorize, to_codes
from evenhand.mitigation.labelling.projection import bias_values, descriptor_means, project


def mean_bias_values(prompts: pd.DataFrame, bias_value: np.ndarray) -> pd.DataFrame:
    """Return a table of descriptor, axis, mean_bias_value and n (responses), sorted from largest to smallest mean.

    Args:
        prompts: columns descriptor and axis; one row per response.
        bias_value: the bias value of each response, (n,).
    """
    return _means(prompts, mean_bias_value=bias_value)


def cross_fitted_bias_values(prompts: pd.DataFrame, vectors: np.ndarray) -> pd.DataFrame:
    """Return a table of descriptor, axis, before (mean b, α = 0) and n, sorted from largest to smallest mean.

    The bias direction of each response is computed without that response. Responses without a style vector are left
    out.

    Args:
        prompts: columns template, descriptor and axis; one row per response.
        vectors: style vectors, (n, S); missing ones are NaN.
    """
    prompts, vectors = _finite(prompts, vectors)
    b = bias_values(vectors, to_codes(prompts[TEMPLATE]), to_codes(prompts[DESCRIPTOR]), cross_fitted=True)
    return _means(prompts, before=b)


def bias_value_changes(
    labelled_prompts: pd.DataFrame,
    labelled_vectors: np.ndarray,
    prompts: pd.DataFrame,
    before: np.ndarray,
    after: np.ndarray,
    alpha: int = 0,
) -> pd.DataFrame:
    """Return a table of descriptor, axis, before, after (mean b) and n, for two models' responses to the same prompts.

    The bias directions are computed from the labelled responses, whose prompts are not measured, so that no response
    affects its own direction. Descriptors without a direction are left out. Rows are sorted from the largest `before`
    to the smallest.

    Args:
        labelled_prompts, prompts: columns template, descriptor and axis; one row per response.
        labelled_vectors, before, after: style vectors, (n, S); missing ones are NaN.
        alpha: exponent of the norm in b, see `bias_values`.
    """
    directions = BiasDirections.from_responses(labelled_prompts, labelled_vectors)
    has_direction = directions.contain(prompts[DESCRIPTOR])
    b = {
        name: directions.project(vectors, prompts[DESCRIPTOR], alpha)[has_direction]
        for name, vectors in (("before", before), ("after", after))
    }
    return _means(prompts[has_direction], **b)


def _finite(prompts: pd.DataFrame, vectors: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the prompts and vectors of the responses that have a style vector."""
    mask = np.isfinite(vectors).all(axis=1)
    return prompts[mask], vectors[mask]


@dataclass(frozen=True)
class BiasDirections:
    """Bias directions: sorted names of descriptors (D,), their means m_d (D, S), and the mean of the means m̄ (S,)."""

    names: np.ndarray
    m_d: np.ndarray
    m_bar: np.ndarray

    @classmethod
    def from_responses(cls, prompts: pd.DataFrame, vectors: np.ndarray) -> "BiasDirections":
        """Return the bias directions from responses with style vectors (n, S); rows with NaN are left out."""
        prompts, vectors = _finite(prompts, vectors)
        descriptor, names = factorize(prompts[DESCRIPTOR])
        m_d = descriptor_means(vectors, to_codes(prompts[TEMPLATE]), descriptor)
        return cls(names, m_d, m_d.mean(axis=0))

    def contain(self, descriptor: pd.Series) -> np.ndarray:
        """Return whether each descriptor has a direction, (n,) bool."""
        code, names = factorize(descriptor)
        return np.isin(names, self.names)[code]

    def project(self, vectors: np.ndarray, descriptor: pd.Series, alpha: int = 0) -> np.ndarray:
        """Project style vectors (n, S) onto the bias direction of their descriptors; return the bias values (n,).

        A value is NaN if the descriptor has no direction or the response has no style vector."""
        code, names = factorize(descriptor)
        is_known = np.isin(names, self.names)
        direction = np.full((len(names), len(self.m_bar)), np.nan)
        direction[is_known] = self.m_d[np.searchsorted(self.names, names[is_known])] - self.m_bar
        return project(vectors, self.m_bar, direction[code], alpha)


def _means(prompts: pd.DataFrame, **values: np.ndarray) -> pd.DataFrame:
    """Return a table of the means of `values` by descriptor and axis, and n, the number of rows with the first value.

    Rows are sorted by the first mean, largest first.
    """
    first = next(iter(values))
    groups = prompts[[DESCRIPTOR, AXIS]].assign(**values).groupby([DESCRIPTOR, AXIS], as_index=False)
    table = groups.agg(**{name: (name, "mean") for name in values}, n=(first, "count"))
    table = table.astype({DESCRIPTOR: str, AXIS: str})  # groupby may return categories
    return table.sort_values(first, ascending=False, ignore_index=True)
