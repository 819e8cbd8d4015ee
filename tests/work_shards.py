"""Work shards for tests of resumable work."""

from collections.abc import Iterable

import numpy as np

from evenhand.evaluation.runs.work_shards import WorkShard


def shard_after(batches: Iterable[tuple]) -> WorkShard:
    """Return the shard of the rows that these batches leave unfinished; each batch begins with its row numbers."""
    return WorkShard(np.array([row for rows, *_ in batches for row in rows], dtype=np.int64))
