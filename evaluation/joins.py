"""The join of two runs: which rows of both are about the same prompt, question, sentence or pair."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError

REPETITION = "repetition"  # a column for the join: how many earlier rows of the run have the same key


@dataclass(frozen=True)
class JoinedRows:
    """The rows of two runs by what they are about.

    Attributes:
        before, after: the rows that both runs have, n each, in the order of the run before.
        alone: the rows that only one of the runs has.
    """

    before: pd.DataFrame
    after: pd.DataFrame
    alone: pd.DataFrame

    def is_common(self) -> np.ndarray:
        """Return whether each row of either run is in both, (n + alone,) bool."""
        return np.arange(len(self.before) + len(self.alone)) < len(self.before)


def join_rows(before: pd.DataFrame, after: pd.DataFrame, keys: Sequence[str], noun: str) -> JoinedRows:
    """Return the rows of two runs, joined by their keys and, of a repeated key, by the number of the repetition.

    Neither the order of the rows nor the rows that a run has in addition matter.

    Args:
        before, after: tables with the columns `keys`.
        noun: the plural noun of what a row is about, for the error.

    Raises:
        InputError: the runs have no row in common.

    >>> old = pd.DataFrame({"prompt_id": ["p", "q", "q"], "answer": ["a", "b", "c"]})
    >>> new = pd.DataFrame({"prompt_id": ["q", "r", "p"], "answer": ["d", "e", "f"]})
    >>> joined = join_rows(old, new, ["prompt_id"], "prompts")
    >>> [*zip(joined.before["answer"], joined.after["answer"])], joined.alone["answer"].tolist()
    ([('a', 'f'), ('b', 'd')], ['c', 'e'])
    """
    old = _with_index(before, keys)
    new = _with_index(after, keys)
    common = old.index[old.index.isin(new.index)]
    if common.empty and len(old) + len(new):
        raise InputError(
            "after",
            f"it has none of the {len(old):,} {noun} of the run before; measure both on the same {noun}. Logs of two "
            "periods have other messages: limit the new run alone, such as `check RUN --max_difference 5`.",
        )
    alone = pd.concat([before[~old.index.isin(common)], after[~new.index.isin(common)]], ignore_index=True)
    return JoinedRows(
        before=old.loc[common].reset_index(drop=True), after=new.loc[common].reset_index(drop=True), alone=alone
    )


def _with_index(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the rows with their keys and repetitions as a unique index."""
    index = table[list(keys)].astype(str)
    index[REPETITION] = index.groupby(list(keys)).cumcount()
    return table.set_axis(pd.MultiIndex.from_frame(index), axis=0)
