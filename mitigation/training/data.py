"""What a model is tuned on: a method's rows, whole contexts of which are held out to validate on."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from evenhand.evaluation.errors import InputError

CONTEXT = "context"
RewardFunction = Callable[..., list[float]]  # responses, and the further columns of their rows → what each is worth


@dataclass(frozen=True, kw_only=True)
class TuningData:
    """A method's rows, and what they are for.

    `method` is the name of the method that made them, for the record; `trainer` the module of
    `evenhand.mitigation.training.trainers` whose columns they have; `control_tag` the tag that the tuned model is to be
    used with, "" for none. `tags` are strings that get a meaning in this tuning: with LoRA, which leaves embeddings
    alone, those of their tokens are trained besides; else a tag is hard to tell from what the base took it for.
    `rewards` are for trainers that draw responses, TRL's `reward_funcs`.
    """

    method: str
    train: Dataset
    validation: Dataset
    trainer: str = "sft"
    control_tag: str = ""
    tags: Sequence[str] = ()
    rewards: Sequence[RewardFunction] = ()


def hold_out(rows: Dataset, fraction: float, seed: int, max_rows: int | None = None) -> tuple[Dataset, Dataset]:
    """Return (rows to train on, rows to validate on): no context is on both sides.

    Whole contexts, in an order drawn by `seed`, are held out until they make up `fraction` of the rows. Of rows beyond
    `max_rows`, only as many are used, drawn by `seed`.

    Raises:
        InputError: there are fewer than two contexts.
    """
    if max_rows is not None and max_rows < len(rows):
        rows = rows.select(np.sort(np.random.default_rng(seed).permutation(len(rows))[:max_rows]))
    contexts, context_of, sizes = np.unique(list(rows[CONTEXT]), return_inverse=True, return_counts=True)
    if len(contexts) < 2:
        raise InputError(f"rows: {len(contexts)} distinct contexts; holding out some for validation needs 2.")
    drawn = np.random.default_rng(seed).permutation(len(contexts))
    target_responses = 1 + np.searchsorted(np.cumsum(sizes[drawn]), fraction * len(rows))
    held_out = np.isin(context_of, drawn[: min(target_responses, len(contexts) - 1)])
    return rows.select(np.flatnonzero(~held_out)), rows.select(np.flatnonzero(held_out))


def rows_sha256(*rows: Dataset) -> str:
    """Return a hash of all that is in the rows."""
    digest = hashlib.sha256()
    for part in rows:
        for column in part.column_names:
            digest.update(json.dumps(list(part[column])).encode())
    return digest.hexdigest()
