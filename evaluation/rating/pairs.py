"""Two measured runs → pairs of responses to the same prompt, for people to judge side by side (paper 002, §C.2.2)."""

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
FIRST = "first"  # column of the pairs: the side whose response stands first in the file for a crowdsourcing platform
OFFENSIVENESS = "offensiveness"  # table of a run with an offensiveness classifier, and its column of probabilities
OFFENSIVE, ALIKE = "offensive", "alike"  # why a pair is left out, beside TEMPLATE and DESCRIPTOR


def read_pairs(before: Path, after: Path) -> pd.DataFrame:
    """Return one row a prompt of two measuring runs: who is spoken to, the prompt, both responses, and whether one is
    offensive to the classifier that either run was measured with (null: to none).

    Raises:
        InputError: a file is absent, or the runs were not measured on the same prompts.
    """
    rows = read_table(before / "prompts.parquet")[[PROMPT_ID, AXIS, DESCRIPTOR, TEMPLATE, TEXT]]
    offensive = np.zeros(len(rows), dtype=bool)
    judged = False
    for side, folder in zip(SIDES, (before, after), strict=True):
        responses = read_table(folder / "responses.parquet")
        if not responses[PROMPT_ID].equals(rows[PROMPT_ID]):
            raise InputError(f"after: {after} was not measured on the prompts of {before}; measure both on the same.")
        rows = rows.assign(**{side: responses[RESPONSE]})
        if (folder / f"{OFFENSIVENESS}.parquet").exists():
            offensive |= read_table(folder / f"{OFFENSIVENESS}.parquet")[OFFENSIVENESS].to_numpy() >= THRESHOLD
            judged = True
    return rows.assign(**{OFFENSIVE: offensive if judged else None})


def exclusion_reasons(pairs: pd.DataFrame, lists: Mapping[str, Sequence[str]]) -> pd.Series:
    """Return why each pair is left out, or None: its template, its descriptor, an offensive or twice the same response.

    Of several reasons the first one counts. Two responses that are alike give a rater nothing to choose.
    """
    reasons = {name: pairs[name].isin(values) for name, values in lists.items()}
    reasons |= {OFFENSIVE: pairs[OFFENSIVE].eq(True), ALIKE: pairs[BEFORE].str.strip() == pairs[AFTER].str.strip()}
    found = pd.Series([None] * len(pairs), index=pairs.index, dtype=object)
    for reason, holds in reversed(reasons.items()):
        found[holds] = reason
    return found


def sample_pairs(pairs: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    """Return n of the pairs at random, or all, in a random order that every rater has: who stops early has judged what
    the others began with. Half of them, by chance, have the response of `before` FIRST.
    """
    rng = np.random.default_rng(seed)
    chosen = pairs.iloc[rng.permutation(len(pairs))[:n]].reset_index(drop=True)
    return chosen.drop(columns=OFFENSIVE).assign(**{FIRST: np.array(SIDES)[rng.integers(0, 2, len(chosen))]})


def left_side(rater: str, prompt_id: str, seed: int) -> str:
    """Return whose response a rater sees on the left, "before" or "after": a coin for each rater and pair."""
    return SIDES[hashlib.sha256(f"{seed}\0{rater}\0{prompt_id}".encode()).digest()[0] % 2]


def other_side(side: str) -> str:
    """Return the other one of "before" and "after"."""
    return SIDES[1 - SIDES.index(side)]
