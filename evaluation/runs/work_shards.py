"""Shards of a long computation: the unfinished batches that each process has to compute."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

Batch = TypeVar("Batch", bound=Sequence[Any])


@dataclass(frozen=True)
class WorkShard:
    """The unfinished rows of the rank `rank` out of `world_size` ranks; by default all rows.

    `finished` contains the numbers of the rows that are on disk, int (f,).
    """

    finished: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    rank: int = 0
    world_size: int = 1

    def is_unfinished(self, rows: Sequence[int]) -> np.ndarray:
        """Return whether each of r row numbers is not finished, bool (r,)."""
        return ~np.isin(np.asarray(rows, dtype=np.int64), self.finished)

    def unfinished_batches(self, batches: Iterable[Batch], row_of: Callable[[Any], int] = int) -> list[Batch]:
        """Return this rank's share of the batches that have an unfinished row, in the order of `batches`.

        Batches are never split, so a row is always computed in the same batch. If the items of a batch are not row
        numbers, `row_of` must return one of the rows that an item produces; all rows of an item are finished together.

        >>> shard = WorkShard(finished=np.array([2]), rank=1, world_size=2)
        >>> shard.unfinished_batches([[0, 1], [2], [3], [4], [5]])
        [[3], [4]]
        """
        batches = [batch for batch in batches if len(batch)]
        if not len(self.finished) and self.world_size == 1:
            return batches
        starts = np.cumsum([0, *map(len, batches)])[:-1]
        rows = [row_of(item) for batch in batches for item in batch]
        unfinished = np.flatnonzero(np.logical_or.reduceat(self.is_unfinished(rows), starts)) if rows else []
        # Ranks take turns in the order 0, 1, 1, 0, 0, 1 …, so that no rank always gets the longer of two batches:
        # batches are sorted by length.
        turns, last = np.arange(len(unfinished)) % (2 * self.world_size), 2 * self.world_size - 1
        return [batches[index] for index in np.asarray(unfinished)[np.minimum(turns, last - turns) == self.rank]]


ALL_ROWS = WorkShard()
