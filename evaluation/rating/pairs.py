"""Pairs of responses of two runs to the same prompt, for people to rate side by side (paper 002, §C.2.2)."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.offensiveness.metric import THRESHOLD
from evenhand.evaluation.results import AXIS, DESCRIPTOR, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evenhand.evaluation.runs.tables import read_table

BEFORE, AFTER = SIDES = "before", "after"
FIRST = "first"  # column of the pairs: the side of response_1 in the file for crowdsourcing platforms
OFFENSIVENESS = "offensiveness"  # a run's table, and its column, of an offensiveness classifier's probabilities
OFFENSIVE, ALIKE = "offensive", "alike"  # reasons to exclude a pair, like TEMPLATE and DESCRIPTOR


def read_pairs(before: Path, after: Path) -> pd.DataFrame:
    """Return one row per prompt of two runs.

    The columns are prompt_id, axis, descriptor, template, text, before, after and offensive. `offensive` is true where
    a classifier of either run finds either response offensive, and null if neither run has a classifier.

    Raises:
        InputError: a file is absent, or the runs have different prompts.
    """
    rows = read_table(before / "prompts.parquet")[[PROMPT_ID, AXIS, DESCRIPTOR, TEMPLATE, TEXT]]
    offensive = np.zeros(len(rows), dtype=bool)
    is_classified = False
    for side, folder in zip(SIDES, (before, after), strict=True):
        responses = read_table(folder / "responses.parquet")
        if not responses[PROMPT_ID].equals(rows[PROMPT_ID]):
            raise InputError(f"after: {after} has other prompts than {before}; measure both with the same prompts.")
        rows = rows.assign(**{side: responses[RESPONSE]})
        if (folder / f"{OFFENSIVENESS}.parquet").exists():
            offensive |= read_table(folder / f"{OFFENSIVENESS}.parquet")[OFFENSIVENESS].to_numpy() >= THRESHOLD
            is_classified = True
    return rows.assign(**{OFFENSIVE: offensive if is_classified else None})


def exclusion_reasons(pairs: pd.DataFrame, lists: Mapping[str, Sequence[str]]) -> pd.Series:
    """Return the first reason to exclude each pair, or None: TEMPLATE, DESCRIPTOR, OFFENSIVE, ALIKE.

    Args:
        pairs: of `read_pairs`.
        lists: excluded values of the columns TEMPLATE and DESCRIPTOR.
    """
    reasons = {name: pairs[name].isin(values) for name, values in lists.items()}
    reasons |= {OFFENSIVE: pairs[OFFENSIVE].eq(True), ALIKE: pairs[BEFORE].str.strip() == pairs[AFTER].str.strip()}
    first_reason = pd.Series([None] * len(pairs), index=pairs.index, dtype=object)
    for reason, mask in reversed(reasons.items()):
        first_reason[mask] = reason
    return first_reason


def sample_pairs(pairs: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    """Return at most n random pairs in random order, with a random column FIRST.

    All raters see this order, so that the pairs of raters who stop early overlap.
    """
    rng = np.random.default_rng(seed)
    sample = pairs.iloc[rng.permutation(len(pairs))[:n]].reset_index(drop=True)
    return sample.drop(columns=OFFENSIVE).assign(**{FIRST: np.array(SIDES)[rng.integers(0, 2, len(sample))]})


def left_side(rater: str, prompt_id: str, seed: int) -> str:
    """Return the side whose response the rater sees on the left: a fair coin for each rater and pair."""
    return SIDES[hashlib.sha256(f"{seed}\0{rater}\0{prompt_id}".encode()).digest()[0] % 2]


def other_side(side: str) -> str:
    """Return "after" for "before", and "before" for "after"."""
    return SIDES[1 - SIDES.index(side)]
