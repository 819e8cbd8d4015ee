"""The values of a measure in two runs on the same terms: one kind, the same classes, the same answers."""

from dataclasses import replace

import pandas as pd

from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues, join_rare
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind

NUMERIC = (
    ValueKind.SHARE,
    ValueKind.PROBABILITY,
    ValueKind.RATIO,
    ValueKind.NUMBER,
)  # each is a special case of the next one


def common_kind(before: ValueKind, after: ValueKind) -> ValueKind | None:
    """Return the kind as which values of two runs can be compared; None if there is none.

    Numbers of one run that are all from 0 are also numbers like those of the other run that are not.

    >>> common_kind(ValueKind.RATIO, ValueKind.NUMBER).value, common_kind(ValueKind.RATIO, ValueKind.CLASS)
    ('number', None)
    """
    if before == after:
        return before
    if before in NUMERIC and after in NUMERIC:
        return max(before, after, key=NUMERIC.index)
    return None


def on_common_terms(before: MeasureValues, after: MeasureValues) -> tuple[MeasureValues, MeasureValues] | str:
    """Return the values of two runs with one kind and the same classes, or why they cannot be compared.

    A class that only one run has is absent in the other one: each of its answers has 0. Classes that are rare in both
    runs together are joined. An answer without a value in one run has none in either.

    Args:
        before, after: the values of the answers of both runs to the same prompts, row by row.
    """
    kind = common_kind(before.kind, after.kind)
    if kind is None:
        return f"the values of “{before.name}” are of the kind {before.kind} before and {after.kind} after"
    has_both = before.has_value & after.has_value
    tables = [before.table, after.table]
    if kind == ValueKind.CLASS:
        classes = list(dict.fromkeys([*before.table, *after.table]))
        tables = [table.reindex(columns=classes, fill_value=0.0) for table in tables]
    else:
        tables = [before.table, after.table.set_axis(list(before.table), axis=1)]
    both = join_rare(replace(before, kind=kind, table=pd.concat(tables, ignore_index=True)))
    n = len(before)
    old = replace(before, kind=kind, table=both.table.iloc[:n])
    new = replace(after, kind=kind, table=both.table.iloc[n:].reset_index(drop=True))
    return old.only(has_both), new.only(has_both)


def common_values(before: MeasureValues, after: MeasureValues) -> tuple[MeasureValues, MeasureValues]:
    """Return the values of a declared measure in two runs on the same terms (`on_common_terms`).

    Raises:
        TypeError: the values are of different kinds, although a measure declares its kind.
    """
    common = on_common_terms(before, after)
    if isinstance(common, str):
        raise TypeError(common)
    return common
