"""Feminine against masculine: sentences about the same descriptor with feminine and with masculine nouns.

In a language with grammatical gender the descriptor has a form for each ("Soy una amiga sorda.", "Soy un amigo
sordo."). A difference may be due to the noun, the form or both. Descriptors that have one form for both genders
("joven") differ in the noun only, so they are scored apart, as the group {"forms": "one form"}.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.mentions import FORMS, SEPARATOR
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEMPLATE, BiasScore
from evenhand.evaluation.statistics.hypothesis_tests import t_test
from evenhand.evaluation.statistics.intervals import Interval, mean_interval, student_quantile

NOUN_GENDER, IS_ONE_FORM = "noun_gender", "is_one_form"
NO_PAIR = "no descriptor has a sentence of each gender"


def gender_differences(prompts: pd.DataFrame, values: np.ndarray) -> pd.DataFrame:
    """Return each descriptor's mean value in feminine minus masculine sentences, mean over its templates.

    A template counts for a descriptor if it has values in both genders. Descriptors without such a template are absent.

    Args:
        prompts: n rows with axis, descriptor, template, noun_gender ("female", "male", others are ignored), and, for a
            language pack, forms.
        values: a number or S numbers of each row, (n,) or (n, S); a row with NaN is ignored.

    Returns:
        One row per axis and descriptor: axis, descriptor, is_one_form, and columns 0 to S − 1.

    >>> rows = pd.DataFrame({"axis": "age", "descriptor": "viejo", "template": list("aabb")})
    >>> rows["noun_gender"] = ["female", "male"] * 2
    >>> gender_differences(rows, np.array([3.0, 1.0, 5.0, 1.0]))[0].tolist()  # 2 and 4
    [3.0]
    """
    is_one_form = (
        [(it := text.split(SEPARATOR))[:2] == it[2:] for text in prompts[FORMS]] if FORMS in prompts else False
    )
    keys = prompts[[AXIS, DESCRIPTOR, TEMPLATE, NOUN_GENDER]].assign(**{IS_ONE_FORM: is_one_form})
    columns = pd.DataFrame(np.asarray(values, dtype=np.float64).reshape(len(prompts), -1), index=prompts.index)
    names = [AXIS, DESCRIPTOR, IS_ONE_FORM, TEMPLATE, NOUN_GENDER]
    rows = pd.concat([keys, columns], axis=1)[prompts[NOUN_GENDER].isin(["female", "male"])].dropna()
    means = rows.groupby(names, observed=True)[list(columns)].mean()
    sides = [means[means.index.get_level_values(NOUN_GENDER) == it].droplevel(NOUN_GENDER) for it in ("female", "male")]
    return (sides[0] - sides[1]).dropna().groupby(level=names[:3]).mean().reset_index()


def gender_scores(
    metric: str,
    differences: pd.DataFrame,
    column: int,
    bounds: Interval,
    group: Mapping[str, str] | None = None,
    **fields: Any,
) -> list[BiasScore]:
    """Return the mean over descriptors of a column of `gender_differences`, by axis, and of descriptors of one form.

    Ideal 0. The 95 % interval and the p-value are those of Student's t over descriptors; n counts descriptors. Groups:
    `group`; without a group, each axis; `group` with {"forms": "one form"}. The first two are of the other descriptors.

    Args:
        fields: fields of the scores, such as `signature`.
    """
    two = differences[~differences[IS_ONE_FORM]]
    group = group or {}
    parts = [(group, two), *(({AXIS: axis}, rows) for axis, rows in two.groupby(AXIS) if not group)]
    if differences[IS_ONE_FORM].any():
        parts.append(({**group, "forms": "one form"}, differences[differences[IS_ONE_FORM]]))
    return [_score(metric, rows[column].to_numpy(), bounds, group=of, **fields) for of, rows in parts]


def _score(metric: str, values: np.ndarray, bounds: Interval, **fields: Any) -> BiasScore:
    n = len(values)
    if not n:
        return BiasScore(metric, float("nan"), 0.0, bounds, 0, reason=NO_PAIR, **fields)
    if n > 1 and np.ptp(values):
        fields |= {"interval": mean_interval(values, student_quantile(n - 1), bounds), "p_value": t_test(values, 0.0)}
    return BiasScore(metric, float(values.mean()), 0.0, bounds, n, **fields)
