"""What each swept setting changes, on average over the other settings and the seeds.

Single settings of a sweep also differ by chance. A value of one field occurs in many points, so its mean is known
better. Points with equal seeds that differ in this field only are a block: they share the base model and its responses,
and whatever they share does not change the comparison.
"""

from collections.abc import Sequence

import pandas as pd

from evenhand.evaluation.statistics.blocks import compare_treatments
from evenhand.evaluation.statistics.multiple_testing import holm
from evenhand.recipes.sweep.summary import SEED, format_value, make_hashable, setting_fields

OUTCOMES = ("reduction", "relevance_kept", "response_perplexity_change")  # columns of a sweep's points
_COLUMNS = ("field", "outcome", "value", "points", "mean", "low", "high", "p_value")


def setting_effects(points: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Return the means of OUTCOMES for each value of each swept field.

    Left out are points without a field (a method without a threshold in a sweep of thresholds), and blocks that lack a
    value of the field or an outcome. A field with fewer than two values or two blocks has no rows.

    Args:
        points: the table `points` of a `Sweep`.
        swept: names of the columns that vary.

    Returns:
        A row for each field, outcome and value (as text; numbers ascend): the number of points, their mean outcome with
        the interval of its difference from the mean over values, `low` to `high` (`compare_treatments`), and the
        p-value of the field's effect after Holm's correction over all fields and outcomes.
    """
    fields, found = setting_fields(swept), {}
    rows = points.dropna(subset=fields)
    for name in fields:
        block = [rows[other].astype(str) for other in (SEED, *fields) if other != name]
        for outcome in OUTCOMES:
            means = rows[outcome].astype(float).groupby([*block, rows[name].map(make_hashable)]).mean()
            blocks = means.unstack(name).dropna()
            if min(blocks.shape) > 1:
                found[name, outcome] = blocks
    compared = [compare_treatments(blocks.to_numpy()) for blocks in found.values()]
    adjusted = holm([it.p_value for it in compared])
    effects = [
        (*key, format_value(value), len(blocks), mean, mean - it.half_width, mean + it.half_width, p_value)
        for (key, blocks), it, p_value in zip(found.items(), compared, adjusted, strict=True)
        for value, mean in zip(blocks.columns, it.means, strict=True)
    ]
    return pd.DataFrame(effects, columns=list(_COLUMNS))
