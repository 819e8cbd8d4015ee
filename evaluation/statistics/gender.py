"""Feminine against masculine: sentences about the same descriptor with feminine and with masculine nouns.

In a language with grammatical gender the descriptor has a form for each ("Soy una amiga sorda.", "Soy un amigo
sordo."). A difference may be due to the noun, the form or both. Descriptors that have one form for both genders
("joven") differ in the noun only, so they are scored apart, as the group {"forms": "one form"}.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import FORMS, SEPARATOR
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.hypothesis_tests import t_test
from evenhand.evaluation.statistics.intervals import Interval, mean_interval, varies

NOUN_GENDER = "noun_gender"
IS_ONE_FORM = "is_one_form"
NO_PAIR = "no descriptor has a sentence of each gender"


def gender_differences(prompts: pd.DataFrame, values: np.ndarray | pd.Series) -> pd.DataFrame:
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
    keys = prompts[[columns.AXIS, columns.DESCRIPTOR, columns.TEMPLATE, NOUN_GENDER]].copy()
    keys[IS_ONE_FORM] = False
    if FORMS in prompts:
        keys[IS_ONE_FORM] = [_is_one_form(text) for text in prompts[FORMS]]
    names = pd.DataFrame(np.asarray(values, dtype=np.float64).reshape(len(prompts), -1), index=prompts.index)
    rows = pd.concat([keys, names], axis=1).dropna()

    def means_of(gender: str) -> pd.DataFrame:
        of_gender = rows.loc[rows[NOUN_GENDER] == gender].drop(columns=NOUN_GENDER)
        return pd.DataFrame(
            of_gender.groupby([columns.AXIS, columns.DESCRIPTOR, IS_ONE_FORM, columns.TEMPLATE], observed=True).mean()
        )

    by_template = (means_of("female") - means_of("male")).dropna()
    means = pd.DataFrame(by_template.groupby(level=[columns.AXIS, columns.DESCRIPTOR, IS_ONE_FORM]).mean())
    return means.reset_index()


def _is_one_form(forms: str) -> bool:
    """Return whether the two feminine and the two masculine forms of a descriptor are equal."""
    texts = forms.split(SEPARATOR)
    return texts[:2] == texts[2:]


def gender_scores(
    metric: str,
    differences: pd.DataFrame,
    column: int,
    bounds: Interval,
    group: Mapping[str, str] | None = None,
) -> list[BiasScore]:
    """Return the mean over descriptors of a column of `gender_differences`, by axis, and of descriptors of one form.

    Ideal 0. The 95 % interval and the p-value are those of Student's t over descriptors; n counts descriptors. Groups:
    `group`; without a group, each axis; `group` with {"forms": "one form"}. The first two are of the other descriptors.

    Args:
        metric: name of the scores.
        differences: the result of `gender_differences`.
        column: the column to average.
        bounds: range of the scores.
        group: group of the scores; None: all descriptors, and each axis.
    """
    is_one_form = differences[IS_ONE_FORM].astype(bool)
    two_forms = differences.loc[~is_one_form]
    one_form = differences.loc[is_one_form]
    parts: list[tuple[dict[str, str], pd.DataFrame]] = [(dict(group or {}), two_forms)]
    if not group:
        for axis, rows in two_forms.groupby(columns.AXIS):
            parts.append(({columns.AXIS: str(axis)}, rows))
    if len(one_form):
        parts.append(({**(group or {}), "forms": "one form"}, one_form))
    return [_mean_difference(metric, rows[column].to_numpy(), bounds, of_rows) for of_rows, rows in parts]


def _mean_difference(metric: str, values: np.ndarray, bounds: Interval, group: Mapping[str, str]) -> BiasScore:
    """Return the mean of the differences of n descriptors, (n,), as a score."""
    n = len(values)
    has_error = varies(values)
    return BiasScore(
        metric=metric,
        value=float(values.mean()) if n else math.nan,
        ideal=0.0,
        bounds=bounds,
        n=n,
        interval=mean_interval(values, bounds),
        p_value=t_test(values, 0.0) if has_error else None,
        group=group,
        reason=None if n else NO_PAIR,
        n_of="descriptors",
    )
