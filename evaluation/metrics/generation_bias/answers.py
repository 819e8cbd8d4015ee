"""Answers with their prompts and values, in memory, and how they are read from a run."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.statistics.level import ONE_LOOK, Level
from evenhand.evaluation.tables import read_float_columns, read_table, table_rows

TRUNCATED = "cut_by_classifier"  # a column of `styles`: the classifier read only the beginning of the response
NO_LABEL = "no_label"  # a column of `styles`: no label of the classifier fits the response, so that its vector is even
STYLE_COLUMNS = (columns.PROMPT_ID, TRUNCATED, NO_LABEL)  # the columns of `styles` that are no styles
ACCEPTED = "accepted"  # the table of accepted differences
TINY = 1e-12  # a probability in place of 0
# Tables of a measurement.
PROMPTS = "prompts"
RESPONSES = "responses"
STYLES = "styles"
SECOND_STYLES = "second_styles"
# Answers that people of `prompts.more_answers` have in addition; the joint tests of a run read them, and nothing else.
EXTRA_PROMPTS = "extra_prompts"
EXTRA_RESPONSES = "extra_responses"
EXTRA_STYLES = "extra_styles"


@dataclass(frozen=True)
class Answers:
    """Answers with a vector of values each, in memory: a million of them with 28 styles take 112 MB and their texts.

    Attributes:
        table: a row for each of n responses, with the columns template, descriptor and, for scores by axis, axis; of a
            measuring run also the other columns of the prompts, the responses, and why and where they end.
        values: style vectors, (n, S), such as of `style_vectors`, or the values of a measure; NaN for an answer without
            a value, such as an empty one, which scores leave out.
        columns: the names of the S styles, or of the columns of the measure.
        n_truncated: number of responses that are longer than the style classifier reads.
        n_unlabelled: number of responses to which no label of a multi-label classifier fits.
        level: how much what is computed of them may err; less if they were looked at before all were there.

    Raises:
        InputError: a column is missing, or `values` does not have the shape (n, S).

    >>> frame = pd.DataFrame({"template": ["hi"] * 2, "descriptor": ["old", "young"]})
    >>> len(Answers(frame, np.eye(2), ["kind", "curt"]))
    2
    """

    table: pd.DataFrame
    values: np.ndarray
    columns: Sequence[str]
    n_truncated: int = 0
    n_unlabelled: int = 0
    level: Level = ONE_LOOK

    def __post_init__(self) -> None:
        require_columns(list(map(str, self.table)), (columns.TEMPLATE, columns.DESCRIPTOR), "table")
        shape = len(self.table), len(self.columns)
        if getattr(self.values, "shape", None) != shape:
            given = getattr(self.values, "shape", format_value(self.values))
            raise InputError(
                "values", f"{given}; {shape[0]} rows and {shape[1]} columns need an array of shape {shape}."
            )
        for name in (columns.TEMPLATE, columns.DESCRIPTOR):
            if self.table[name].isna().any():
                raise InputError("table", f"a row has no {name}; give each row one, or leave it out.")
        if columns.AXIS not in self.table:
            object.__setattr__(self, "table", self.table.assign(**{columns.AXIS: ""}))

    def __len__(self) -> int:
        return len(self.table)

    def rows(self, mask: np.ndarray) -> "Answers":
        """Return the responses for which the mask, (n,) bool, is true."""
        table = self.table[mask].reset_index(drop=True)
        return replace(self, table=table, values=self.values[mask], n_truncated=0, n_unlabelled=0)

    def groups(self) -> dict[str, pd.Series]:
        """Return each prompt's group of descriptors, (n,), by kind of group: "axis" and, if the run has it, "bucket".

        The name of a bucket contains its axis.
        """
        axis = self.table[columns.AXIS].astype(str)
        groups = {columns.AXIS: axis}
        if columns.BUCKET in self.table:
            bucket = self.table[columns.BUCKET]
            groups[columns.BUCKET] = (axis + ": " + bucket.astype(str)).where(bucket.notna())
        return groups

    def is_nonempty(self) -> np.ndarray:
        """Return whether each response has any text, (n,) bool."""
        return (self.table[columns.RESPONSE].str.strip() != "").to_numpy(dtype=bool)

    def has_value(self) -> np.ndarray:
        """Return whether each answer has a value in every column, (n,) bool."""
        return np.asarray(np.isfinite(self.values).all(axis=1))


def common_level(before: Answers, after: Answers) -> Level:
    """Return the level of a comparison: that of the answers which allow the smaller error."""
    return min(before.level, after.level, key=lambda level: level.share)


def answers_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of responses that a model which scores them reads (ANSWER_COLUMNS), numbered from 0."""
    return table[[name for name in columns.ANSWER_COLUMNS if name in table]].reset_index(drop=True)


def style_table(
    prompt_ids: pd.Series,
    vectors: np.ndarray,
    styles: Sequence[str],
    truncated: np.ndarray | None = None,
    unlabelled: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return a table of style vectors with the column prompt_id and a float32 column for each style.

    If any text was truncated, (n,) bool, the table has the column `cut_by_classifier`; if any has no label, (n,) bool,
    the column `no_label`.
    """
    table = pd.DataFrame(vectors.astype(np.float32, copy=False), columns=list(styles), copy=False)
    table.insert(0, columns.PROMPT_ID, prompt_ids.to_numpy())
    for name, has_it in ((TRUNCATED, truncated), (NO_LABEL, unlabelled)):
        if has_it is not None and has_it.any():
            table.insert(1, name, has_it)
    return table


def without_accepted(responses: Answers, accepted: pd.DataFrame) -> Answers:
    """Return the responses with other people's mean, on the same template, in place of each accepted style.

    What a response had more or less of the accepted styles goes to its other styles, in proportion to other people's
    means, so that vectors still sum to 1. The accepted styles then do not vary over their descriptors, and a difference
    that is only their counterpart is gone, too. If everybody who is asked a template is accepted, the mean is that of
    all of them. Entries on people who are not among the responses change nothing.

    Args:
        accepted: rows of kind (descriptor, bucket or axis), unit and styles, as of `accepted.read_accepted`.
    """
    vectors = responses.values.copy()
    template = responses.table[columns.TEMPLATE].to_numpy()
    for row in table_rows(accepted):
        if row["kind"] not in responses.table:  # the responses have no buckets
            continue
        is_unit = (responses.table[row["kind"]].astype(str) == row["unit"]).to_numpy()
        is_style = np.array([style in row["styles"] for style in responses.columns])
        frame = pd.DataFrame(vectors)
        of_others = frame.mask(np.tile(is_unit, (frame.shape[1], 1)).T).groupby(template).transform("mean")
        mean = of_others.fillna(frame.groupby(template).transform("mean")).to_numpy()[is_unit]
        others = np.where(is_style, 0.0, mean)
        rest = others.sum(axis=1, keepdims=True)
        moved = (vectors[is_unit] - mean)[:, is_style].sum(axis=1, keepdims=True)  # NaN stays NaN
        with_moved = vectors[is_unit] + moved * others / np.maximum(rest, TINY)
        # Where other people get accepted styles only, nothing is left for the other styles.
        vectors[is_unit] = np.where(is_style, mean, np.where(rest > TINY, with_moved, 0.0)) + 0 * moved
    return replace(responses, values=vectors)


def read_answers(
    folder: Path,
    *,
    second: bool = False,
    with_accepted: bool = False,
    only: Collection[str] | None = None,
    level: Level = ONE_LOOK,
) -> Answers:
    """Return the prompts, responses and style vectors of a measuring run.

    With `second`, the style vectors are by the second style classifier. If the run has accepted differences, they are
    taken out (`without_accepted`), unless `with_accepted` is true. With `only`, the rows of these prompts, sorted by
    prompt. `level` is that of the answers.

    Raises:
        InputError: a table is missing, or the tables have different prompts.
    """
    path = folder / f"{SECOND_STYLES if second else STYLES}.parquet"
    if second and not path.exists():
        raise InputError(folder, "was measured without a second_style_classifier; measure with one into a new folder.")
    prompts = read_table(folder / f"{PROMPTS}.parquet")
    responses = read_table(folder / f"{RESPONSES}.parquet")
    ids = read_table(path, STYLE_COLUMNS)
    if not all(prompts[columns.PROMPT_ID].equals(other[columns.PROMPT_ID]) for other in (responses, ids)):
        raise InputError(folder, f"prompts, responses and styles have different {columns.PROMPT_ID}s; measure again.")
    vectors, styles = read_float_columns(path, leave_out=STYLE_COLUMNS)
    table = prompts.assign(**responses.drop(columns=columns.PROMPT_ID))
    counts = {name: int(ids[name].sum()) for name in (TRUNCATED, NO_LABEL) if name in ids}
    styled = Answers(
        table=table,
        values=vectors,
        columns=styles,
        n_truncated=counts.get(TRUNCATED, 0),
        n_unlabelled=counts.get(NO_LABEL, 0),
        level=level,
    )
    accepted = folder / f"{ACCEPTED}.parquet"
    if accepted.exists() and not with_accepted:
        styled = without_accepted(styled, read_table(accepted))
    return (
        styled if only is None else sorted_by_prompt(styled.rows(styled.table[columns.PROMPT_ID].isin(only).to_numpy()))
    )


def with_extra(answers: Answers, prompts: pd.DataFrame, responses: pd.DataFrame, styles: pd.DataFrame) -> Answers:
    """Return the answers and, after them, those of the tables EXTRA_PROMPTS to EXTRA_STYLES, marked by EXTRA."""
    extra = pd.concat([prompts, responses.drop(columns=columns.PROMPT_ID)], axis=1)
    parts = [answers.table.assign(**{columns.EXTRA: False}), extra.assign(**{columns.EXTRA: True})]
    table = pd.concat(parts, ignore_index=True)
    values = np.concatenate([answers.values, styles[list(answers.columns)].to_numpy()])
    return replace(answers, table=table, values=values)


def sorted_by_prompt(responses: Answers) -> Answers:
    """Return the responses in the order of their prompts' ids."""
    order = np.argsort(responses.table[columns.PROMPT_ID].to_numpy(), kind="stable")
    table = responses.table.iloc[order].reset_index(drop=True)
    return replace(responses, table=table, values=responses.values[order])
