"""Pairs of two runs' responses to the same prompt, which people rate side by side (Smith et al. 2022, §C.2.2)."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field, TypeAdapter, ValidationError

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_yaml
from evenhand.evaluation.metrics.generation_bias.classifiers import OFFENSIVENESS
from evenhand.evaluation.metrics.offensiveness import THRESHOLD
from evenhand.evaluation.score import AXIS, DESCRIPTOR, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evenhand.evaluation.settings import NonBlank
from evenhand.evaluation.tables import read_table

BEFORE = "before"
AFTER = "after"
SIDES = (BEFORE, AFTER)
Side = Literal["before", "after"]  # the model before or after tuning
OFFENSIVE = "offensive"
ALIKE = "alike"  # reasons to exclude a pair, like TEMPLATE and DESCRIPTOR
SHIPPED = Path(__file__).resolve().parents[1] / "data" / "files" / "rating"
_CONTENTS = {
    "questions": Annotated[dict[NonBlank, NonBlank], Field(min_length=1)],
    "leave_out": dict[Literal["template", "descriptor"], list[NonBlank]],
}


def read_rating_file(field: str, name: str) -> dict:
    """Return the questions in a file, name → text in its order, or its lists of left-out templates and descriptors.

    `name` is the file of the setting `field`; "paper" is the shipped file after Smith et al. 2022, §C.2.2.

    Raises:
        InputError: the file cannot be read, or its content has another form.

    >>> list(read_rating_file("questions", "paper"))
    ['preference', 'humanness', 'interestingness']
    """
    shipped = SHIPPED / f"{field}.yaml"
    try:
        content = read_yaml(shipped if name == "paper" else Path(name), field)
        return TypeAdapter(_CONTENTS[field]).validate_python(content)
    except ValidationError as error:
        raise InputError(field, f"{name}: {error}; write it like {shipped}.") from None


def read_response_pairs(before: Path, after: Path) -> pd.DataFrame:
    """Return the responses of two runs with the same prompts, one row per prompt.

    The columns are prompt_id, axis, descriptor, template, text (the prompt), before and after (the responses), and
    offensive. `offensive` is true if the response of either run is offensive with a probability of at least THRESHOLD
    by that run's classifier, and null if neither run has an offensiveness classifier.

    Raises:
        InputError: a file is absent, or the runs have different prompts.
    """
    prompts = read_table(before / "prompts.parquet")
    rows = prompts.loc[:, [PROMPT_ID, AXIS, DESCRIPTOR, TEMPLATE, TEXT]].copy()
    is_offensive = np.zeros(len(rows), dtype=bool)
    is_classified = False
    for side, folder in ((BEFORE, before), (AFTER, after)):
        responses = read_table(folder / "responses.parquet")
        if not responses[PROMPT_ID].equals(rows[PROMPT_ID]):
            raise InputError("after", f"{after} has other prompts than {before}; measure both with the same prompts.")
        rows[side] = responses[RESPONSE]
        probabilities = folder / f"{OFFENSIVENESS}.parquet"
        if probabilities.exists():
            is_offensive |= read_table(probabilities)[OFFENSIVENESS].to_numpy() >= THRESHOLD
            is_classified = True
    rows[OFFENSIVE] = is_offensive if is_classified else None
    return rows


def exclusion_reasons(pairs: pd.DataFrame, lists: Mapping[str, Sequence[str]]) -> pd.Series:
    """Return the first reason to exclude each pair, None for a pair to keep, (n,).

    The reasons are, in this order: an excluded TEMPLATE or DESCRIPTOR, an OFFENSIVE response, and responses that are
    ALIKE up to outer white space.

    Args:
        pairs: the n pairs that `read_response_pairs` returns.
        lists: excluded values of the columns TEMPLATE and DESCRIPTOR.
    """
    masks = {name: pairs[name].isin(values) for name, values in lists.items()}
    masks[OFFENSIVE] = pairs[OFFENSIVE].eq(True)
    masks[ALIKE] = pairs[BEFORE].str.strip() == pairs[AFTER].str.strip()
    reasons = pd.Series([None] * len(pairs), index=pairs.index, dtype=object)
    for reason, mask in reversed(masks.items()):
        reasons[mask] = reason
    return reasons


def sample_pairs(pairs: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    """Return a random sample of at most n pairs in random order.

    All raters see the pairs in the same order, so that the pairs of raters who stop early overlap.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))
    return pairs.iloc[order[:n]].reset_index(drop=True).drop(columns=OFFENSIVE)


def left_side(rater: str, prompt_id: str, seed: int) -> Side:
    """Return the side, "before" or "after", whose response a rater sees on the left: random for each rater and pair."""
    digest = hashlib.sha256(f"{seed}\0{rater}\0{prompt_id}".encode()).digest()
    return SIDES[digest[0] % 2]


def other_side(side: Side) -> Side:
    """Return "after" for "before", and "before" for "after"."""
    return AFTER if side == BEFORE else BEFORE
