"""Training data: a method's rows, split into training and validation rows by context."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.methods import RewardFunction

CONTEXT = "context"


@dataclass(frozen=True, kw_only=True)
class TuningData:
    """A method's rows, and the attributes of the method that training needs.

    method: the method's name, for the record.
    trainer: the module of `evenhand.mitigation.training.trainers` that trains on the rows.
    control_tag: the tag at the end of every context of the tuned model; "" for none.
    tags: strings that get a meaning in training. LoRA does not train embeddings, except for the tokens of `tags`:
        with the base's embeddings, a tag is hard to distinguish from its former meaning.
    rewards: TRL's `reward_funcs`, for trainers that sample responses.
    """

    method: str
    train: Dataset
    validation: Dataset
    trainer: str = "sft"
    control_tag: str = ""
    tags: Sequence[str] = ()
    rewards: Sequence[RewardFunction] = ()


def hold_out(rows: Dataset, fraction: float, seed: int, max_rows: int | None = None) -> tuple[Dataset, Dataset]:
    """Return (training rows, validation rows), which have no context in common.

    At most `max_rows` rows are used, sampled by `seed`. Contexts are held out in an order shuffled by `seed`, until
    their rows make up `fraction` of all rows.

    Raises:
        InputError: the rows have fewer than two distinct contexts.
    """
    if max_rows is not None and max_rows < len(rows):
        rows = rows.select(np.sort(np.random.default_rng(seed).permutation(len(rows))[:max_rows]))
    contexts, context_of, sizes = np.unique(list(rows[CONTEXT]), return_inverse=True, return_counts=True)
    if len(contexts) < 2:
        raise InputError(f"rows: {len(contexts)} distinct contexts; a split into training and validation rows needs 2.")
    order = np.random.default_rng(seed).permutation(len(contexts))
    n_held_out = 1 + np.searchsorted(np.cumsum(sizes[order]), fraction * len(rows))
    held_out = np.isin(context_of, order[: min(n_held_out, len(contexts) - 1)])
    return rows.select(np.flatnonzero(~held_out)), rows.select(np.flatnonzero(held_out))


def rows_sha256(*datasets: Dataset) -> str:
    """Return the SHA-256 of the column values of data sets."""
    digest = hashlib.sha256()
    for rows in datasets:
        for column in rows.column_names:
            digest.update(json.dumps(list(rows[column])).encode())
    return digest.hexdigest()
