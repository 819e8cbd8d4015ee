"""Mean bias values by descriptor: to whom responses are most characteristic, before and after (paper 002, C.2)."""

import numpy as np
import pandas as pd

from evenhand.evaluation.results import AXIS, DESCRIPTOR, TEMPLATE
from evenhand.evaluation.statistics.cells import codes
from evenhand.mitigation.labelling.projection import bias_values, descriptor_means, project


def mean_bias_values(prompts: pd.DataFrame, bias_value: np.ndarray) -> pd.DataFrame:
    """Return descriptor, axis, mean_bias_value and n (responses), largest first, of (n,) bias values."""
    return _means(prompts, mean_bias_value=bias_value)


def cross_fitted_bias_values(prompts: pd.DataFrame, vectors: np.ndarray) -> pd.DataFrame:
    """Return descriptor, axis, before (mean b, α = 0) and n, largest first, of responses by their own directions.

    Each response is taken out of its own direction, since there is no other run whose directions could be used. Those
    without a style vector are left out.

    Args:
        prompts: columns template, descriptor and axis; one row per response.
        vectors: style vectors, (n, S), NaN where there is none.
    """
    known = np.isfinite(vectors).all(axis=1)
    prompts, vectors = prompts[known], vectors[known]
    b = bias_values(vectors, codes(prompts[TEMPLATE]), codes(prompts[DESCRIPTOR]), cross_fitted=True)
    return _means(prompts, before=b)


def bias_value_changes(
    labelled_prompts: pd.DataFrame,
    labelled_vectors: np.ndarray,
    prompts: pd.DataFrame,
    before: np.ndarray,
    after: np.ndarray,
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
    finite = np.isfinite(labelled_vectors).all(axis=1)
    labelled_prompts, labelled_vectors = labelled_prompts[finite], labelled_vectors[finite]
    names = np.unique(labelled_prompts[DESCRIPTOR])
    template, descriptor = codes(labelled_prompts[TEMPLATE]), codes(labelled_prompts[DESCRIPTOR])
    m_d = descriptor_means(labelled_vectors, template, descriptor)
    m_bar = m_d.mean(axis=0)
    known = prompts[DESCRIPTOR].isin(names).to_numpy()
    direction = m_d[np.searchsorted(names, prompts.loc[known, DESCRIPTOR])] - m_bar
    b = {
        name: project(vectors[known], m_bar, direction, alpha)
        for name, vectors in (("before", before), ("after", after))
    }
    return _means(prompts[known], **b)


def _means(prompts: pd.DataFrame, **values: np.ndarray) -> pd.DataFrame:
    """Return the mean of each value by descriptor and axis, and n, the rows with the first value; largest first."""
    first = next(iter(values))
    groups = prompts[[DESCRIPTOR, AXIS]].assign(**values).groupby([DESCRIPTOR, AXIS], as_index=False)
    table = groups.agg(**{name: (name, "mean") for name in values}, n=(first, "count"))
    return table.sort_values(first, ascending=False, ignore_index=True)
