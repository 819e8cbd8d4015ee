"""What each swept setting changes, on average over the other settings.

Single settings of a sweep also differ by chance. A value of one field occurs in many points, so its mean is more
precise. Points with the same seed are not independent: they share prompts, the base model's responses, and often the
labels or the tuned model. Therefore values are first compared within each seed; the interval and the test then show
whether the seeds agree.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.statistics.hypothesis_tests import TreatmentMeans, compare_treatments, holm
from evenhand.recipes.sweep.summary import SEED, format_value, make_hashable, setting_fields

OUTCOMES = ("reduction", "relevance_kept", "response_perplexity_change")  # columns of a sweep's points
_COLUMNS = ("field", "outcome", "value", "points", "mean", "low", "high", "p_value")


def setting_effects(points: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Return the means of OUTCOMES for each value of each swept field.

    Values are compared within combinations of a seed and other settings. If a combination lacks a value (a refused
    point, a method without a threshold), those values and combinations are compared that have the most points in a
    table without gaps. The means of each seed are then the blocks of `compare_treatments`. Fields without two such
    values or two such combinations have no rows.

    Args:
        points: the table `points` of a `Sweep`.
        swept: names of the columns that vary.

    Returns:
        A row for each field, outcome and value (as text; numbers ascend): the number of points, their mean outcome with
        the interval of its difference from the mean over values, `low` to `high`, and the p-value of the field's effect
        after Holm's correction over all fields and outcomes. Interval and p-value are NaN for one seed.
    """
    fields, found = setting_fields(swept), {}
    for name in fields:
        rows = points[points[name].notna()]
        keys = [rows[other].astype(str).fillna("") for other in (SEED, *fields) if other != name]
        for outcome in OUTCOMES:
            means = rows[outcome].astype(float).groupby([*keys, rows[name].map(make_hashable)]).mean()
            complete = _without_gaps(means.unstack(name))
            if len(complete) > 1:  # means of single points would only repeat the report's other tables
                found[name, outcome] = complete
    compared = [_compare_seeds(complete.groupby(level=0).mean().to_numpy()) for complete in found.values()]
    tested = [it.p_value for it in compared if not math.isnan(it.p_value)]
    adjusted = iter(holm(tested))
    effects = []
    for (key, complete), it in zip(found.items(), compared, strict=True):
        p_value = it.p_value if math.isnan(it.p_value) else next(adjusted)
        for value, mean in zip(complete.columns, it.means, strict=True):
            ends = mean - it.half_width, mean + it.half_width
            effects.append((*key, format_value(value), len(complete), mean, *ends, p_value))
    return pd.DataFrame(effects, columns=list(_COLUMNS))


def _without_gaps(table: pd.DataFrame) -> pd.DataFrame:
    """Return the largest part of the table without NaN that has at least two columns, or no rows if there is none."""
    patterns = table.notna().drop_duplicates().to_numpy()
    parts = [table.loc[:, pattern].dropna() for pattern in patterns if pattern.sum() > 1]
    return max(parts, key=lambda part: part.size, default=table.head(0))


def _compare_seeds(values: np.ndarray) -> TreatmentMeans:
    """Return `compare_treatments` of (seeds, values), without interval and p-value for one seed."""
    return compare_treatments(values) if len(values) > 1 else TreatmentMeans(values[0], math.nan, math.nan)
