"""A run at work: the tables and parts that a stage writes into its folder."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.parts import Parts
from evenhand.evaluation.runs.run_paths import PARTS
from evenhand.evaluation.runs.tables import read_table, write_table
from evenhand.evaluation.runs.tracking import Tracker

Table = pd.DataFrame | Iterable[pd.DataFrame]  # whole, or in parts (`write_table`)


@dataclass
class Run:
    """The run folder that a stage works in.

    `fingerprint` is a hash of all settings and inputs; it identifies the run to later stages. `inputs` are fingerprints
    of the files and models that are read. `family` is the family of metrics at work, whose parts have their own folder.
    `seconds` per step and `facts` are written into the manifest.

    A table that all ranks compute together:

        table = run.table("cosines", lambda: cosines(...), on_all_ranks=True)

    and, within it, long work that resumes after a kill (`Parts`):

        parts = run.parts("vectors", ["vector"], len(texts))
        for shard in parts.unfinished_shards():
            parts.save(shard, sentence_embeddings(encoder, texts, shard=shard), "embeddings", "texts")
        vectors = parts.read()["vector"]
    """

    folder: Path
    fingerprint: str
    tracker: Tracker
    inputs: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step of the stage."""
        start = time.monotonic()
        yield
        self.seconds[name.replace("_", " ")] = round(time.monotonic() - start, 2)

    def has(self, name: str) -> bool:
        """Return, on every rank alike, whether the table `name`.parquet is on disk."""
        return processes.on_rank_zero((self.folder / f"{name}.parquet").exists)

    def read(self, name: str) -> pd.DataFrame:
        """Return the rows of `name`.parquet."""
        return read_table(self.folder / f"{name}.parquet")

    def write(self, name: str, rows: Table) -> None:
        """Write `name`.parquet on rank 0, while the other ranks wait."""
        processes.on_rank_zero(lambda: write_table(self.folder / f"{name}.parquet", rows))

    def ensure(self, name: str, compute: Callable[[], Table], *, on_all_ranks: bool = False) -> None:
        """Compute and write `name`.parquet, on rank 0 alone or together on all ranks, unless it is on disk."""

        def compute_and_write() -> None:
            with self.step(name):
                self.write(name, compute())

        if not self.has(name):
            compute_and_write() if on_all_ranks else processes.on_rank_zero(compute_and_write)

    def table(self, name: str, compute: Callable[[], Table], *, on_all_ranks: bool = False) -> pd.DataFrame:
        """Return the rows of `name`.parquet, computed by `ensure` if they are not on disk."""
        self.ensure(name, compute, on_all_ranks=on_all_ranks)
        return self.read(name)

    def parts(self, name: str, columns: Sequence[str], n: int) -> Parts:
        """Return rows 0 … n−1 with these columns, kept in parts by the family at work."""
        return Parts(self.folder / PARTS / self.family / name, columns, n)
