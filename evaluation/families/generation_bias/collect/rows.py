"""Tables of a measuring run: prompts, responses and style vectors."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.metric import StyledResponses
from evenhand.evaluation.rows import Rows, copy_rows, finite_rows
from evenhand.evaluation.runs.tables import (
    is_same_column,
    read_aligned,
    read_categorical,
    read_float_columns,
    read_table,
)
from evenhand.evaluation.score import AXIS, CUT, DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT, UNSEEN

N_SAMPLES = 40  # rows that reports display
TRUNCATED = "cut_by_classifier"  # a column of `styles`: the classifier read only the beginning of the response
BUCKET = "bucket"
SHARED_COLUMNS = (TEMPLATE, DESCRIPTOR, AXIS, BUCKET, UNSEEN)
PROMPTS, RESPONSES, STYLES, SECOND_STYLES = "prompts", "responses", "styles", "second_styles"


@dataclass(frozen=True)
class StyledRun:
    """Prompts of a run, their responses, and style vectors (n, S). Only `shared` is in memory; other data is on disk.

    Attributes:
        folder: the run folder.
        positions: positions of the n prompts among all prompts of the run, (n,); None for all prompts.
        shared: template, descriptor, axis and, if the run has them, `bucket` and `unseen` of each prompt.
        vectors: style vectors (n, S); NaN for an empty response.
        styles: the names of the S styles.
        n_truncated: number of responses that are longer than the style classifier reads; 0 for a subset of a run.
    """

    folder: Path
    positions: np.ndarray | None
    shared: pd.DataFrame
    vectors: Rows
    styles: tuple[str, ...]
    n_truncated: int = 0

    def __len__(self) -> int:
        return len(self.shared)

    @property
    def prompts(self) -> pd.DataFrame:
        """All columns of the prompts, one row per prompt."""
        return self._select(read_table(self.folder / f"{PROMPTS}.parquet"))

    @property
    def responses(self) -> list[str]:
        """The text of each response."""
        return self._select(read_table(self.folder / f"{RESPONSES}.parquet", [RESPONSE]))[RESPONSE].tolist()

    @property
    def is_cut(self) -> np.ndarray:
        """Whether max_new_tokens ended each response, (n,) bool; false for responses from a file."""
        table = self._select(read_table(self.folder / f"{RESPONSES}.parquet"))
        return table[CUT].to_numpy() if CUT in table else np.zeros(len(table), dtype=bool)

    def _select(self, table: pd.DataFrame) -> pd.DataFrame:
        return table if self.positions is None else table.iloc[self.positions].reset_index(drop=True)

    def texts(self, *columns: str) -> Iterator[pd.DataFrame]:
        """Yield the responses with the given columns of their prompts, in parts."""
        start = 0
        tables = ((PROMPTS, columns), (RESPONSES, [RESPONSE]))
        for part in read_aligned(*((self.folder / f"{name}.parquet", names) for name, names in tables if names)):
            if self.positions is None:
                yield part
            else:
                first, last = np.searchsorted(self.positions, [start, start + len(part)])
                yield part.iloc[self.positions[first:last] - start].reset_index(drop=True)
            start += len(part)

    def rows(self, mask: np.ndarray) -> "StyledRun":
        """Return the prompts and responses for which the mask, (n,) bool, is true."""
        if mask.all():  # no copy
            return replace(self, n_truncated=0)
        positions = np.flatnonzero(mask)
        return StyledRun(
            self.folder,
            positions if self.positions is None else self.positions[positions],
            self.shared.iloc[positions].reset_index(drop=True),
            copy_rows(self.vectors, positions),
            self.styles,
        )

    def styled(self) -> StyledResponses:
        """Return the style vectors with templates, descriptors and axes, for the functions that compute metrics."""
        return StyledResponses(self.vectors, *(self.shared[name] for name in (TEMPLATE, DESCRIPTOR, AXIS)), self.styles)

    def groups(self) -> dict[str, pd.Series]:
        """Return each prompt's group of descriptors, (n,), by kind of group: "axis" and, if the run has it, "bucket".

        The name of a bucket contains its axis.
        """
        axis = self.shared[AXIS].astype(str)
        of_kind = {AXIS: axis}
        return of_kind | ({BUCKET: axis + ": " + self.shared[BUCKET].astype(str)} if BUCKET in self.shared else {})

    def is_nonempty(self) -> np.ndarray:
        """Return whether each response has any text, (n,) bool."""
        nonempty = (bool(response.strip()) for part in self.texts() for response in part[RESPONSE])
        return np.fromiter(nonempty, dtype=bool, count=len(self))

    def has_vector(self) -> np.ndarray:
        """Return whether each response has a style vector, (n,) bool."""
        return finite_rows(self.vectors)


def style_tables(
    prompt_ids: pd.Series, parts: Iterable[tuple[slice, np.ndarray]], styles: tuple[str, ...], truncated: np.ndarray
) -> Iterator[pd.DataFrame]:
    """Yield a table of style vectors for each part of the responses.

    Args:
        prompt_ids: the prompt id of each of the n responses.
        parts: slices of the responses, each with its style vectors (m, S).
        styles: the names of the S styles.
        truncated: whether each response is longer than the classifier reads, (n,) bool; if any is, the tables have a
            column `cut_by_classifier`.
    """
    for rows, vectors in parts:
        table = style_table(prompt_ids.iloc[rows], vectors, styles)
        if truncated.any():
            table.insert(1, TRUNCATED, truncated[rows])
        yield table


def style_table(prompt_ids: pd.Series, vectors: np.ndarray, styles: tuple[str, ...]) -> pd.DataFrame:
    """Return a table of style vectors with the column prompt_id and a float32 column for each style."""
    table = pd.DataFrame(vectors.astype(np.float32, copy=False), columns=list(styles), copy=False)
    table.insert(0, PROMPT_ID, prompt_ids.to_numpy())
    return table


def read_styled_run(folder: Path, *, second: bool = False) -> StyledRun:
    """Return the prompts, responses and style vectors of a measuring run.

    With `second`, the style vectors are by the second style classifier.

    Raises:
        InputError: a table is missing, or the tables have different prompts.
    """
    name = SECOND_STYLES if second else STYLES
    if second and not (folder / f"{name}.parquet").exists():
        raise InputError(
            f"{folder} was measured without a second_style_classifier; measure with one into a new folder."
        )
    prompts, responses, path = (folder / f"{name}.parquet" for name in (PROMPTS, RESPONSES, name))
    if not (is_same_column(prompts, responses, PROMPT_ID) and is_same_column(prompts, path, PROMPT_ID)):
        raise InputError(f"{folder}: prompts, responses and styles have different {PROMPT_ID}s; measure again.")
    truncated = read_table(path, [TRUNCATED])
    n_truncated = int(truncated[TRUNCATED].sum()) if TRUNCATED in truncated else 0
    vectors, styles = read_float_columns(path, leave_out=(PROMPT_ID, TRUNCATED))
    return StyledRun(folder, None, read_categorical(prompts, SHARED_COLUMNS), vectors, styles, n_truncated)


def has_same_prompts(first: StyledRun, second: StyledRun) -> bool:
    """Return whether two whole runs have equal prompt ids in equal order."""
    return is_same_column(*(run.folder / f"{PROMPTS}.parquet" for run in (first, second)), PROMPT_ID)


def paired_samples(rows: np.ndarray, before: StyledRun, after: StyledRun | None = None) -> pd.DataFrame:
    """Return descriptor, axis, persona, prompt, and each run's response for the prompts at the given positions."""
    prompts = select_texts(before, rows)
    table = prompts[[DESCRIPTOR, AXIS, PERSONA]].assign(prompt=prompts[TEXT], before=prompts[RESPONSE])
    return table if after is None else table.assign(after=select_texts(after, rows)[RESPONSE])


def select_texts(run: StyledRun, rows: np.ndarray) -> pd.DataFrame:
    """Return the prompts and responses at the given positions, in the order of the positions, which may repeat."""
    parts, start, wanted = [], 0, np.unique(rows)
    for part in run.texts(PROMPT_ID, DESCRIPTOR, AXIS, PERSONA, TEXT):
        part.index += start
        parts.append(part.loc[wanted[(wanted >= start) & (wanted < start + len(part))]])
        start += len(part)
    return pd.concat(parts).loc[rows].reset_index(drop=True)


def random_samples(before: StyledRun, after: StyledRun | None = None) -> pd.DataFrame:
    """Return each run's responses to N_SAMPLES random prompts, which are the same prompts for both runs."""
    return paired_samples(np.random.default_rng(0).permutation(len(before))[:N_SAMPLES], before, after)
