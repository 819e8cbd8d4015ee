"""Mean bias values by descriptor: to whom responses are most characteristic, before and after (paper 002, C.2)."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.results import AXIS, DESCRIPTOR, TEMPLATE
from evenhand.evaluation.rows import Rows, blocks, finite_rows, some_rows
from evenhand.evaluation.statistics.cells import coded, codes
from evenhand.mitigation.labelling.projection import bias_values, descriptor_means, project


def mean_bias_values(prompts: pd.DataFrame, bias_value: np.ndarray) -> pd.DataFrame:
    """Return descriptor, axis, mean_bias_value and n (responses), largest first, of (n,) bias values."""
    return _means(prompts, mean_bias_value=bias_value)


def cross_fitted_bias_values(prompts: pd.DataFrame, vectors: Rows) -> pd.DataFrame:
    """Return descriptor, axis, before (mean b, α = 0) and n, largest first, of responses by their own directions.

    Each response is taken out of its own direction, since there is no other run whose directions could be used. Those
    without a style vector are left out.

    Args:
        prompts: columns template, descriptor and axis; one row per response.
        vectors: style vectors, (n, S), NaN where there is none.
    """
    prompts, vectors = _finite(prompts, vectors)
    b = bias_values(vectors, codes(prompts[TEMPLATE]), codes(prompts[DESCRIPTOR]), cross_fitted=True)
    return _means(prompts, before=b)


def bias_value_changes(
    labelled_prompts: pd.DataFrame,
    labelled_vectors: Rows,
    prompts: pd.DataFrame,
    before: Rows,
    after: Rows,
    alpha: int = 0,
) -> pd.DataFrame:
    """Return descriptor, axis, before, after (mean b) and n, of two models' responses to the same prompts.

    The bias directions are those of the labelled responses, to other prompts than the measured ones, so that no
    response has shaped the direction it is projected on. Descriptors without a direction are left out; the largest
    before comes first.

    Args:
        labelled_prompts, prompts: columns template, descriptor and axis; one row per response.
        labelled_vectors, before, after: style vectors, (n, S), NaN where there is none.
        alpha: exponent of the norm in b, see `bias_values`.
    """
    directions = BiasDirections.from_responses(labelled_prompts, labelled_vectors)
    known = directions.known(prompts[DESCRIPTOR])
    b = {
        name: directions.project(vectors, prompts[DESCRIPTOR], alpha)[known]
        for name, vectors in (("before", before), ("after", after))
    }
    return _means(prompts[known], **b)


def _finite(prompts: pd.DataFrame, vectors: Rows) -> tuple[pd.DataFrame, Rows]:
    """Return the rows that have a style vector."""
    known = finite_rows(vectors)
    return (prompts, vectors) if known.all() else (prompts[known], some_rows(vectors, np.flatnonzero(known)))


@dataclass(frozen=True)
class BiasDirections:
    """The bias directions of some responses' descriptors: their names, sorted, m_d (D, S), and m̄ (S,)."""

    names: np.ndarray
    m_d: np.ndarray
    m_bar: np.ndarray

    @classmethod
    def from_responses(cls, prompts: pd.DataFrame, vectors: Rows) -> "BiasDirections":
        """Return those of responses with style vectors (n, S), by template and descriptor; NaN is left out."""
        prompts, vectors = _finite(prompts, vectors)
        descriptor, names = coded(prompts[DESCRIPTOR])
        m_d = descriptor_means(vectors, codes(prompts[TEMPLATE]), descriptor)
        return cls(names, m_d, m_d.mean(axis=0))

    def known(self, descriptor: pd.Series) -> np.ndarray:
        """Return which of these descriptors have a direction, (n,) bool."""
        code, names = coded(descriptor)
        return np.isin(names, self.names)[code]

    def project(self, vectors: Rows, descriptor: pd.Series, alpha: int = 0) -> np.ndarray:
        """Return b (n,) of vectors (n, S) by their descriptors' directions; NaN without a direction, or a vector."""
        code, names = coded(descriptor)
        there = np.isin(names, self.names)
        direction = np.full((len(names), len(self.m_bar)), np.nan)
        direction[there] = self.m_d[np.searchsorted(self.names, names[there])] - self.m_bar
        b = [project(some, self.m_bar, direction[code[rows]], alpha) for rows, some in blocks(vectors)]
        return np.concatenate([np.zeros(0), *b])


def _means(prompts: pd.DataFrame, **values: np.ndarray) -> pd.DataFrame:
    """Return the mean of each value by descriptor and axis, and n, the rows with the first value; largest first."""
    first = next(iter(values))
    groups = prompts[[DESCRIPTOR, AXIS]].assign(**values).groupby([DESCRIPTOR, AXIS], as_index=False)
    table = groups.agg(**{name: (name, "mean") for name in values}, n=(first, "count"))
    table = table.astype({DESCRIPTOR: str, AXIS: str})  # no categories
    return table.sort_values(first, ascending=False, ignore_index=True)
