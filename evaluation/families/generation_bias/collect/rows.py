"""The rows behind generation bias: prompts, responses and style vectors, as a measuring run leaves them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.metric import StyledResponses
from evenhand.evaluation.results import AXIS, DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT, UNSEEN
from evenhand.evaluation.rows import Rows, finite_rows, some_rows
from evenhand.evaluation.runs.tables import read_categories, read_numbers, read_parts, read_table, same_column

SAMPLES = 40  # of the rows, that reports show
CUT = "cut_by_classifier"  # a column of styles: the classifier saw the response's beginning alone
SHARED = (TEMPLATE, DESCRIPTOR, AXIS, UNSEEN)
PROMPTS, RESPONSES, STYLES, SECOND_STYLES = "prompts", "responses", "styles", "second_styles"


@dataclass(frozen=True)
class StyledRun:
    """What a measuring run left: prompts, and in the same order the response and the style vector (n, S) of each.

    Of each row nothing is in memory but what its prompt shares with others; the rest is read as it is asked for.

    folder: of the run. positions: of the rows among all that were measured, (n,); None: all of them.
    shared: what prompts share, as categories: template, descriptor, axis, and where there is one the mark of what
    tuning did not see. vectors: NaN for an empty response.
    n_cut: the number of a whole run's responses that are longer than the style classifier reads.
    """

    folder: Path
    positions: np.ndarray | None
    shared: pd.DataFrame
    vectors: Rows
    styles: tuple[str, ...]
    n_cut: int = 0

    def __len__(self) -> int:
        return len(self.shared)

    @property
    def prompts(self) -> pd.DataFrame:
        """All columns of all prompts: read now, and as large as they are."""
        return self._picked(read_table(self.folder / f"{PROMPTS}.parquet"))

    @property
    def responses(self) -> list[str]:
        """All responses: read now, and as large as they are."""
        return self._picked(read_table(self.folder / f"{RESPONSES}.parquet", [RESPONSE]))[RESPONSE].tolist()

    def _picked(self, table: pd.DataFrame) -> pd.DataFrame:
        return table if self.positions is None else table.iloc[self.positions].reset_index(drop=True)

    def texts(self, *columns: str) -> Iterator[pd.DataFrame]:
        """Yield those columns of the prompts, and the responses, some rows at a time."""
        start = 0
        tables = ((PROMPTS, columns), (RESPONSES, [RESPONSE]))
        for part in read_parts(*((self.folder / f"{name}.parquet", of) for name, of in tables if of)):
            if self.positions is None:
                yield part
            else:
                first, last = np.searchsorted(self.positions, [start, start + len(part)])
                yield part.iloc[self.positions[first:last] - start].reset_index(drop=True)
            start += len(part)

    def rows(self, kept: np.ndarray) -> "StyledRun":
        """Return the rows where the (n,) mask is true."""
        if kept.all():  # nothing is copied
            return replace(self, n_cut=0)
        positions = np.flatnonzero(kept)
        return StyledRun(
            self.folder,
            positions if self.positions is None else self.positions[positions],
            self.shared.iloc[positions].reset_index(drop=True),
            some_rows(self.vectors, positions),
            self.styles,
        )

    def styled(self) -> StyledResponses:
        """Return what the metrics of generation bias read."""
        return StyledResponses(self.vectors, *(self.shared[name] for name in (TEMPLATE, DESCRIPTOR, AXIS)), self.styles)

    def written(self) -> np.ndarray:
        """Return whether each response says anything, (n,) bool."""
        said = (bool(response.strip()) for part in self.texts() for response in part[RESPONSE])
        return np.fromiter(said, dtype=bool, count=len(self))

    def usable(self) -> np.ndarray:
        """Return whether each response has a style vector, (n,) bool."""
        return finite_rows(self.vectors)


def style_tables(
    prompt_ids: pd.Series, parts: Iterable[tuple[slice, np.ndarray]], styles: tuple[str, ...], cut: np.ndarray
) -> Iterator[pd.DataFrame]:
    """Yield style vectors as tables, in parts: places among the prompts, and their vectors (m, S).

    Where a response was longer than the classifier reads, as the mask `cut` (n,) says, a column `cut_by_classifier`
    tells which.
    """
    for place, vectors in parts:
        table = style_table(prompt_ids.iloc[place], vectors, styles)
        if cut.any():
            table.insert(1, CUT, cut[place])
        yield table


def style_table(prompt_ids: pd.Series, vectors: np.ndarray, styles: tuple[str, ...]) -> pd.DataFrame:
    """Return style vectors as a table: prompt_id, and a float32 column for each style, called by its name."""
    table = pd.DataFrame(vectors.astype(np.float32, copy=False), columns=list(styles), copy=False)
    table.insert(0, PROMPT_ID, prompt_ids.to_numpy())
    return table


def read_styled_run(folder: Path, *, second: bool = False) -> StyledRun:
    """Read prompts, responses and style vectors of a measuring run: those of the second style classifier, if asked.

    Raises:
        InputError: a file is absent, or the three do not hold the same prompts.
    """
    name = SECOND_STYLES if second else STYLES
    if second and not (folder / f"{name}.parquet").exists():
        raise InputError(
            f"{folder} was measured without a second_style_classifier; measure with one into a new folder."
        )
    prompts, responses, path = (folder / f"{name}.parquet" for name in (PROMPTS, RESPONSES, name))
    if not (same_column(prompts, responses, PROMPT_ID) and same_column(prompts, path, PROMPT_ID)):
        raise InputError(f"{folder}: prompts, responses and styles hold different {PROMPT_ID}s; measure again.")
    marks = read_table(path, [CUT])
    n_cut = int(marks[CUT].sum()) if CUT in marks else 0
    vectors, styles = read_numbers(path, leave_out=(PROMPT_ID, CUT))
    return StyledRun(folder, None, read_categories(prompts, SHARED), vectors, styles, n_cut)


def same_prompts(one: StyledRun, other: StyledRun) -> bool:
    """Return whether two whole runs are over the same prompts, in the same order."""
    return same_column(*(run.folder / f"{PROMPTS}.parquet" for run in (one, other)), PROMPT_ID)


def side_by_side(rows: np.ndarray, before: StyledRun, after: StyledRun | None = None) -> pd.DataFrame:
    """Return descriptor, axis, persona and prompt of some rows, by position, with the response of each run."""
    shown = some_texts(before, rows)
    table = shown[[DESCRIPTOR, AXIS, PERSONA]].assign(prompt=shown[TEXT], before=shown[RESPONSE])
    return table if after is None else table.assign(after=some_texts(after, rows)[RESPONSE])


def some_texts(run: StyledRun, rows: np.ndarray) -> pd.DataFrame:
    """Return prompts and responses of some rows, by position, in their order."""
    found, start = [], 0
    for part in run.texts(PROMPT_ID, DESCRIPTOR, AXIS, PERSONA, TEXT):
        part.index += start
        found.append(part.loc[rows[(rows >= start) & (rows < start + len(part))]])
        start += len(part)
    return pd.concat(found).loc[rows].reset_index(drop=True)


def random_samples(before: StyledRun, after: StyledRun | None = None) -> pd.DataFrame:
    """Return the responses to the same random prompts, side by side; see `side_by_side`."""
    return side_by_side(np.random.default_rng(0).permutation(len(before))[:SAMPLES], before, after)
