"""The values of measures: computed from answers, written to a run's table, and read from it with their kind.

The values of a measure are a table with a row for each answer. A number, such as a length, is one column; classes, such
as languages, are a column each, with 1 for the answer's class and 0 for others. An answer without a value has NaN and
is left out. What the values are (`ValueKind`) is declared by the measure. For a column of a user's file it is decided
once, when the run is made, and recorded in the basis of its scores.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.answers import NO_CONTENT
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.measures import (
    FIELD,
    TOO_SHORT,
    Context,
    Measure,
    Needs,
    ValueKind,
    find_measure,
)

VALUES = "outcomes"  # the table of the values of all measures
LARGEST = 1e150  # number whose square is one, too
KIND = "kind of values"  # the entry of the basis of a score
OTHER = "other"  # the class of classes with fewer than MIN_SHARE of the responses
MIN_SHARE = 0.001
ROUNDING = 1e-6  # by which a probability of a network in float32 may be above 1
RANGES = {
    ValueKind.SHARE: (0, 1),
    ValueKind.PROBABILITY: (0, 1),
    ValueKind.RATIO: (0, math.inf),
    ValueKind.NUMBER: (-math.inf, math.inf),
}


@dataclass(frozen=True)
class MeasureValues:
    """The values of a measure of n answers.

    Attributes:
        name: the name of the measure, or of a column of the user's file.
        kind: what the values are.
        table: the values, (n, k), as they were measured; NaN where an answer has none.
        strata: the stratum of each answer, (n,) int, if the mean is over new answers in the same strata; None: over new
            answers like these.
    """

    name: str
    kind: ValueKind
    table: pd.DataFrame
    strata: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def numbers(self) -> np.ndarray:
        """The finite values, (n, k); NaN for the others."""
        values = self.table.to_numpy(dtype=np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    @property
    def has_value(self) -> np.ndarray:
        """Whether each answer has a value, (n,) bool."""
        return np.asarray(np.isfinite(self.numbers).all(axis=1))

    @property
    def no_value(self) -> str:
        """Why there is no mean if no answer has a value."""
        measure = find_measure(self.name)
        return "no response has a value" if measure is None else measure.no_value

    def rows(self, mask: np.ndarray) -> "MeasureValues":
        """Return the values of the answers for which the mask, (n,) bool, is true."""
        return replace(self, table=self.table[mask].reset_index(drop=True), strata=self.strata_of(mask))

    def strata_of(self, mask: np.ndarray) -> np.ndarray | None:
        """Return the strata of the answers for which the mask, (n,) bool, is true; None without strata."""
        return None if self.strata is None else self.strata[mask]

    def only(self, mask: np.ndarray) -> "MeasureValues":
        """Return the values, as missing where the mask, (n,) bool, is false."""
        return replace(self, table=self.table.where(pd.Series(mask, index=self.table.index), axis=0))


def with_values(responses: Answers, values: MeasureValues) -> Answers:
    """Return the responses with the values of a measure, (n, k), in place of their style vectors."""
    return replace(responses, values=values.numbers, columns=list(map(str, values.table)))


def measured_values(name: str, answers: pd.DataFrame, context: Context) -> MeasureValues:
    """Return the values of a measure, or of a column of the file of responses.

    Args:
        name: the name of a measure, or of a column of `answers`.
        answers: a row for each answer, with the columns of its prompt, response and, of a run, left_out.
        context: what measures may read, apart from the answers.

    Raises:
        InputError: the measure has not a value of its kind for each answer.
    """
    measure = find_measure(name)
    if measure is None:
        column = answers[name].reset_index(drop=True)
        kind = kind_of_column(column)
        return MeasureValues(name, kind, value_columns(name, column, kind))
    has_value = _can_have_value(measure, answers, context)
    found = list(measure.values(answers[has_value].reset_index(drop=True), context))
    check_values(measure, found, int(has_value.sum()))
    column = pd.Series(found, index=np.flatnonzero(has_value), dtype=object).reindex(range(len(answers)))
    return MeasureValues(name, measure.kind, value_columns(measure.column or name, column, measure.kind))


def check_values(measure: Measure, found: Sequence[object], n: int) -> None:
    """Check what the function of a measure returned for n answers.

    Raises:
        InputError: it is not one value for each answer, or a value is not of the measure's kind.
    """
    if len(found) != n:
        raise InputError(FIELD, f"{measure.name} has {len(found)} values for {n} answers; return one for each.")
    if measure.kind == ValueKind.CLASS:
        return
    known = pd.Series(list(found), dtype=object).dropna()
    values = pd.to_numeric(known, errors="coerce").astype(float)
    low, high = RANGES[measure.kind]
    is_wrong = ~values.between(low - ROUNDING, high + ROUNDING)
    if measure.kind == ValueKind.SHARE:
        is_wrong |= ~values.isin((0, 1))
    if is_wrong.any():
        expected = f"numbers from {low:g} to {high:g}"
        if measure.kind == ValueKind.SHARE:
            expected = "true or false"
        value = format_value(known[is_wrong].iloc[0])
        raise InputError(
            FIELD, f"{measure.name} has the value {value}; values of its kind, {measure.kind}, are {expected}."
        )


def _can_have_value(measure: Measure, answers: pd.DataFrame, context: Context) -> np.ndarray:
    """Return whether each answer has what the measure needs, (n,) bool."""
    if measure.table:
        return answers[columns.PROMPT_ID].isin(context.tables[measure.table][columns.PROMPT_ID]).to_numpy()
    if measure.needs == Needs.NOTHING:
        return np.ones(len(answers), dtype=bool)
    has_text = (answers[columns.RESPONSE].str.strip() != "").to_numpy(dtype=bool)
    if measure.needs == Needs.TEXT:
        return has_text
    if columns.LEFT_OUT not in answers:
        return np.ones(len(answers), dtype=bool)
    is_answer = answers[columns.LEFT_OUT].isna() | (answers[columns.LEFT_OUT] == NO_CONTENT)
    return has_text | is_answer.to_numpy(dtype=bool)


def kind_of_column(column: pd.Series) -> ValueKind:
    """Return what the values of a column of a user's file are: 0 and 1, numbers from 0, other numbers, or names.

    >>> [kind_of_column(pd.Series(values)).value for values in ([0, 1], [0, 2.5], [-1, 0], ["good", None])]
    ['share', 'ratio', 'number', 'class']
    """
    known = column.dropna()
    if not all(isinstance(value, numbers.Number | np.bool_) for value in known):
        return ValueKind.CLASS
    values = known.to_numpy(dtype=np.float64)
    if np.isin(values, (0, 1)).all():
        return ValueKind.SHARE
    return ValueKind.RATIO if (values >= 0).all() else ValueKind.NUMBER


def value_columns(name: str, column: pd.Series, kind: ValueKind) -> pd.DataFrame:
    """Return numbers as one column, and names of classes as a column of 0 and 1 for each class; NaN if missing.

    Raises:
        InputError: a number is so large that no variance can be computed.
    """
    if kind != ValueKind.CLASS or column.isna().all():  # without any class, one column says that no answer has a value
        values = pd.to_numeric(column).astype(float)
        sizes = values.abs()
        if (too_large := sizes[np.isfinite(sizes) & (sizes > LARGEST)]).any():
            raise InputError(
                "generation_bias.outcomes",
                f"{name!r} has {too_large.iloc[0]:g}, which is too large; give a larger unit.",
            )
        return values.to_frame(name)
    values = pd.get_dummies(column, dtype=float)
    values[column.isna()] = np.nan
    return values


def values_table(prompt_ids: pd.Series, values: Mapping[str, MeasureValues]) -> pd.DataFrame:
    """Return the values of all measures as one table: prompt_id, and a column "measure: value" for each value."""
    table = {columns.PROMPT_ID: prompt_ids}
    for name, of_measure in values.items():
        for column in of_measure.table:
            table[f"{name}: {column}"] = of_measure.table[column]
    return pd.DataFrame(table)


def stored_names(run: FamilyRun) -> list[str]:
    """Return the names of the measures of a run."""
    if not run.has(VALUES):
        return []
    return list(
        dict.fromkeys(name.partition(": ")[0] for name in map(str, run.table(VALUES)) if name != columns.PROMPT_ID)
    )


def stored_values(run: FamilyRun, name: str) -> MeasureValues:
    """Return the values of a measure of a run, on the prompts of the run that are compared."""
    table = run.table(VALUES)
    start = f"{name}: "
    columns = {column: column.removeprefix(start) for column in map(str, table) if column.startswith(start)}
    measure = find_measure(name)
    if measure is not None:
        kind = measure.kind
    else:
        kinds = [ValueKind(score.basis[KIND]) for score in run.scores if score.metric == name and KIND in score.basis]
        if not kinds:
            raise InputError(
                "outcomes", f"{run.folder} does not say whether {name!r} has numbers or classes; measure it again."
            )
        kind = kinds[0]
    return MeasureValues(name, kind, table[list(columns)].rename(columns=columns))


def join_rare(values: MeasureValues) -> MeasureValues:
    """Return the values with classes of fewer than MIN_SHARE of the responses, except TOO_SHORT, joined as OTHER."""
    if values.kind != ValueKind.CLASS or values.table.shape[1] == 1:
        return values
    rare = []
    for name, share in values.table.mean().items():
        if name != TOO_SHORT and (name == OTHER or share < MIN_SHARE):
            rare.append(str(name))
    if not rare:
        return values
    joined = values.table.drop(columns=rare).assign(**{OTHER: values.table[rare].sum(axis=1, skipna=False)})
    return replace(values, table=joined)
