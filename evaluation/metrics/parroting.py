"""Which descriptors' prompts a model repeats instead of answering them, before and after tuning (paper 002, C.2.1)."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from evaluation.metrics.text_quality import repeats_prompt
from evaluation.results import AXIS, DESCRIPTOR


def repeated(responses: Sequence[str], prompts: Sequence[str]) -> np.ndarray:
    """Return whether each response is its prompt again (`repeats_prompt`), (n,) bool."""
    return np.array([repeats_prompt(*pair) for pair in zip(responses, prompts, strict=True)], dtype=bool)


def parroting_by_descriptor(
    descriptor: Sequence[str], axis: Sequence[str], before: np.ndarray, after: np.ndarray
) -> pd.DataFrame:
    """Return the share of responses that repeat their prompt, by descriptor; shares in [0, 1], ideal 0.

    Args:
        descriptor, axis: of each prompt that was answered in both runs, (n,).
        before, after: whether the response repeats it, (n,) bool.

    Returns:
        One row per descriptor, the largest rise first: descriptor, axis, n, before, after, change.

    >>> yes, no = np.array([True, False]), np.array([False, False])
    >>> parroting_by_descriptor(["deaf", "deaf"], ["ability", "ability"], yes, no).to_dict("records")
    [{'descriptor': 'deaf', 'axis': 'ability', 'n': 2, 'before': 0.5, 'after': 0.0, 'change': -0.5}]
    """
    rows = pd.DataFrame({DESCRIPTOR: list(descriptor), AXIS: list(axis), "before": before, "after": after})
    table = rows.groupby([DESCRIPTOR, AXIS], as_index=False).agg(
        n=("before", "size"), before=("before", "mean"), after=("after", "mean")
    )
    table["change"] = table["after"] - table["before"]
    return table.sort_values(["change", DESCRIPTOR], ascending=[False, True], ignore_index=True)
