"""The outcome `filtered`: whether the provider's filter, or a refusal in a field of its own, withheld an answer."""

from collections.abc import Sequence

import pandas as pd

from evenhand.evaluation.data.chats import FILTER_REASONS
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.score import DESCRIPTOR, LEFT_OUT

FILTERED_OUTCOME = "filtered"
MAX_NAMED = 8


def filtered(table: pd.DataFrame) -> pd.DataFrame:
    """Return 1 for each prompt whose answer was withheld, else 0; the column left_out has the reasons."""
    return pd.DataFrame({FILTERED_OUTCOME: table[LEFT_OUT].isin(FILTER_REASONS).astype(float).to_numpy()})


def measured_outcomes(names: Sequence[str], table: pd.DataFrame) -> list[str]:
    """Return the names of the outcomes to measure: the given ones, and `filtered` if an answer was withheld."""
    is_filtered = LEFT_OUT in table and table[LEFT_OUT].isin(FILTER_REASONS).any()
    return list(dict.fromkeys([*names, *([FILTERED_OUTCOME] if is_filtered else [])]))


def filtered_text(prompts: pd.DataFrame, responses: pd.DataFrame) -> list[str]:
    """Return [a sentence on how many answers were withheld, and from whom], or [] if none was.

    The counts are of the prompts that each descriptor asked.
    """
    is_filtered = responses[LEFT_OUT].isin(FILTER_REASONS).to_numpy()
    if not is_filtered.any():
        return []
    table = pd.DataFrame({DESCRIPTOR: prompts[DESCRIPTOR].astype(str).to_numpy(), FILTERED_OUTCOME: is_filtered})
    counts = table.groupby(DESCRIPTOR)[FILTERED_OUTCOME].agg(["sum", "size"])
    counts["share"] = counts["sum"] / counts["size"]
    counts = counts[counts["sum"] > 0].sort_values("share", ascending=False, kind="stable")
    listed = [f"{sanitize(name, 60)} {row['sum']:,.0f} of {row['size']:,.0f}" for name, row in counts.iterrows()]
    more = ["…"] if len(listed) > MAX_NAMED else []
    total = f"{is_filtered.sum():,} of {len(is_filtered):,}"
    return [f"A filter of the provider withheld {total} answers: {', '.join(listed[:MAX_NAMED] + more)}."]
