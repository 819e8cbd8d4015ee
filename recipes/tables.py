"""The Parquet files that cross stages: written whole, read back with what belongs together."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from evaluation.errors import InputError
from evaluation.files import written_whole
from evaluation.metrics.generation_bias import StyledResponses
from evaluation.results import AXIS, DESCRIPTOR, PROMPT_ID, RESPONSE, STYLE_VECTOR, TEMPLATE

PROMPTS, RESPONSES, STYLES = "prompts.parquet", "responses.parquet", "styles.parquet"
SECOND_STYLES, OFFENSIVENESS = "second_styles.parquet", "offensiveness.parquet"
NEUTRAL, SCORES = "neutral.parquet", "scores.json"


@dataclass(frozen=True)
class StyledRun:
    """A measuring run's rows: prompts, and in the same order the response and the style vector (n, S) of each."""

    prompts: pd.DataFrame
    responses: list[str]
    vectors: np.ndarray
    styles: tuple[str, ...]

    def rows(self, kept: np.ndarray) -> "StyledRun":
        """Return the rows where the (n,) mask is true, or at the (m,) positions."""
        positions = np.arange(len(self.prompts))[kept]
        return StyledRun(
            self.prompts.iloc[positions].reset_index(drop=True),
            [self.responses[i] for i in positions],
            self.vectors[positions],
            self.styles,
        )

    def styled(self) -> StyledResponses:
        """Return what the generation bias metrics read."""
        columns = (self.prompts[name].tolist() for name in (TEMPLATE, DESCRIPTOR, AXIS))
        return StyledResponses(self.vectors, *columns, styles=self.styles)


def write_table(path: Path, rows: pd.DataFrame) -> None:
    """Write rows as Parquet."""
    with written_whole(path) as temporary:
        rows.to_parquet(temporary, index=False)


def read_table(path: Path) -> pd.DataFrame:
    """Read what `write_table` wrote.

    Raises:
        InputError: it is absent or not Parquet.
    """
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet ({error}); delete its folder and run the stage again."
        ) from None


def write_styles(path: Path, prompt_ids: pd.Series, vectors: np.ndarray, styles: tuple[str, ...]) -> None:
    """Write style vectors; the column names of the styles travel in the data frame's attributes."""
    rows = pd.DataFrame({PROMPT_ID: prompt_ids, STYLE_VECTOR: list(vectors)})
    rows.attrs["styles"] = list(styles)
    write_table(path, rows)


def read_styled_run(folder: Path, *, second: bool = False) -> StyledRun:
    """Read prompts, responses and style vectors of a measuring run: those of the second style classifier, if asked.

    Raises:
        InputError: a file is absent, or the three do not hold the same prompts.
    """
    if second and not (folder / SECOND_STYLES).exists():
        raise InputError(
            f"{folder} was measured without a second_style_classifier; measure with one into a new folder."
        )
    files = (PROMPTS, RESPONSES, SECOND_STYLES if second else STYLES)
    prompts, responses, styles = (read_table(folder / name) for name in files)
    if not (prompts[PROMPT_ID].equals(responses[PROMPT_ID]) and prompts[PROMPT_ID].equals(styles[PROMPT_ID])):
        raise InputError(f"{folder}: prompts, responses and styles hold different {PROMPT_ID}s; measure again.")
    vectors = np.stack(styles[STYLE_VECTOR].to_numpy()).astype(np.float32)
    return StyledRun(prompts, responses[RESPONSE].tolist(), vectors, tuple(styles.attrs["styles"]))
