"""Which batches of long work a process makes: those that are on no disk yet, dealt out to the processes of the run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

Batch = TypeVar("Batch", bound=Sequence[Any])


@dataclass(frozen=True)
class WorkShard:
    """What is left to one process of several: all but the `finished`, numbers of rows; by default all there is."""

    finished: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    process: int = 0
    processes: int = 1

    def left(self, rows: Sequence[int]) -> np.ndarray:
        """Return which of these rows are not finished, bool (r,)."""
        return ~np.isin(np.asarray(rows, dtype=np.int64), self.finished)

    def of(self, batches: Iterable[Batch], row_of: Callable[[Any], int] = int) -> list[Batch]:
        """Return this process' batches, in their order: whole ones, so that each row has the neighbours it always has.

        An item of a batch makes rows, all of them at once; `row_of` returns one of them. By default items are numbers
        of rows. A batch is left as long as one of its rows is.

        >>> WorkShard(finished=np.array([2]), process=1, processes=2).of([[0, 1], [2], [3], [4], [5]])
        [[3], [4]]
        """
        batches = [batch for batch in batches if len(batch)]
        if not len(self.finished) and self.processes == 1:
            return batches
        starts = np.cumsum([0, *map(len, batches)])[:-1]
        rows = [row_of(item) for batch in batches for item in batch]
        left = np.flatnonzero(np.logical_or.reduceat(self.left(rows), starts)) if rows else []
        # 0, 1, 1, 0, 0, 1 …: the first batches are the longest, and nobody always has the longer of two.
        turns, last = np.arange(len(left)) % (2 * self.processes), 2 * self.processes - 1
        return [batches[place] for place in np.asarray(left)[np.minimum(turns, last - turns) == self.process]]


ALL = WorkShard()
