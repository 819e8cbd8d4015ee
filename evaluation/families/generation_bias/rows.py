"""The rows behind generation bias: prompts, responses and style vectors, as a measuring run leaves them."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.generation_bias.metric import StyledResponses
from evenhand.evaluation.results import AXIS, DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evenhand.evaluation.runs.tables import read_numbers, read_table
from evenhand.evaluation.statistics.cells import finite_rows

SAMPLES = 40  # of the rows, that reports show
CUT = "cut_by_classifier"  # a column of styles: the classifier saw the response's beginning alone
PROMPTS, RESPONSES, STYLES, SECOND_STYLES = "prompts", "responses", "styles", "second_styles"


@dataclass(frozen=True)
class StyledRun:
    """Prompts, and in the same order the response and the style vector (n, S) of each; NaN for an empty response.

    `n_cut` is the number of a whole run's responses that are longer than the style classifier reads.
    """

    prompts: pd.DataFrame
    responses: list[str]
    vectors: np.ndarray
    styles: tuple[str, ...]
    n_cut: int = 0

    def rows(self, kept: np.ndarray) -> "StyledRun":
        """Return the rows where the (n,) mask is true, or at the (m,) positions."""
        positions = np.arange(len(self.prompts))[kept]
        if np.array_equal(positions, np.arange(len(self.prompts))):  # all of them: nothing is copied
            return replace(self, n_cut=0)
        return StyledRun(
            self.prompts.iloc[positions].reset_index(drop=True),
            [self.responses[i] for i in positions],
            self.vectors[positions],
            self.styles,
        )

    def styled(self) -> StyledResponses:
        """Return what the metrics of generation bias read."""
        columns = (self.prompts[name].tolist() for name in (TEMPLATE, DESCRIPTOR, AXIS))
        return StyledResponses(self.vectors, *columns, styles=self.styles)

    def written(self) -> np.ndarray:
        """Return whether each response says anything, (n,) bool."""
        return np.array([bool(response.strip()) for response in self.responses], dtype=bool)

    def usable(self) -> np.ndarray:
        """Return whether each response has a style vector, (n,) bool."""
        return finite_rows(self.vectors)


def style_table(
    prompt_ids: pd.Series, vectors: np.ndarray, styles: tuple[str, ...], cut: np.ndarray | None = None
) -> pd.DataFrame:
    """Return style vectors as a table: prompt_id, and a float32 column for each style, called by its name.

    Where a response was longer than the classifier reads, as the mask `cut` (n,) says, a column `cut_by_classifier`
    tells which.
    """
    table = pd.DataFrame(vectors.astype(np.float32, copy=False), columns=list(styles), copy=False)
    table.insert(0, PROMPT_ID, prompt_ids.to_numpy())
    if cut is not None and cut.any():
        table.insert(1, CUT, cut)
    return table


def read_styled_run(folder: Path, *, second: bool = False) -> StyledRun:
    """Read prompts, responses and style vectors of a measuring run: those of the second style classifier, if asked.

    Raises:
        InputError: a file is absent, or the three do not hold the same prompts.
    """
    if second and not (folder / f"{SECOND_STYLES}.parquet").exists():
        raise InputError(
            f"{folder} was measured without a second_style_classifier; measure with one into a new folder."
        )
    prompts, responses = (read_table(folder / f"{name}.parquet") for name in (PROMPTS, RESPONSES))
    path = folder / f"{SECOND_STYLES if second else STYLES}.parquet"
    marks = read_table(path, [PROMPT_ID, CUT])
    if not (prompts[PROMPT_ID].equals(responses[PROMPT_ID]) and prompts[PROMPT_ID].equals(marks[PROMPT_ID])):
        raise InputError(f"{folder}: prompts, responses and styles hold different {PROMPT_ID}s; measure again.")
    n_cut = int(marks[CUT].sum()) if CUT in marks else 0
    vectors, styles = read_numbers(path, leave_out=(PROMPT_ID, CUT))
    return StyledRun(prompts, responses[RESPONSE].tolist(), vectors, styles, n_cut)


def side_by_side(rows: np.ndarray, before: StyledRun, after: StyledRun | None = None) -> pd.DataFrame:
    """Return descriptor, axis, persona and prompt of some rows, by position, with the response of each run."""
    shown = before.rows(rows)
    table = shown.prompts[[DESCRIPTOR, AXIS, PERSONA]].assign(prompt=shown.prompts[TEXT], before=shown.responses)
    return table if after is None else table.assign(after=after.rows(rows).responses)


def random_samples(before: StyledRun, after: StyledRun | None = None) -> pd.DataFrame:
    """Return the responses to the same random prompts, side by side; see `side_by_side`."""
    return side_by_side(np.random.default_rng(0).permutation(len(before.prompts))[:SAMPLES], before, after)
