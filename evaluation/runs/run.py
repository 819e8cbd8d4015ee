"""The folder of a running stage, with the tables and parts that the stage reads and writes."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.parts import Parts
from evenhand.evaluation.runs.progress import working
from evenhand.evaluation.runs.run_paths import PARTS
from evenhand.evaluation.runs.tables import read_table, write_table
from evenhand.evaluation.runs.tracking import Tracker

Table = pd.DataFrame | Iterable[pd.DataFrame]  # a whole table, or consecutive parts of a table (`write_table`)


@dataclass
class Run:
    """The run folder that a stage works in.

    Attributes:
        folder: path of the run folder.
        fingerprint: hash of all settings and inputs, by which later stages identify the run.
        tracker: the tracker of the stage.
        inputs: fingerprints of the files and models that the stage reads.
        family: name of the current family of metrics; each family has a separate folder for parts.
        seconds: duration of each step, for the manifest.
        facts: further entries of the manifest.

    A table that all ranks compute together:

        table = run.table("cosines", lambda: cosines(...), on_all_ranks=True)

    A long computation within this table, which can resume after the process was killed (`Parts`):

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
        """Measure the duration of the block, and record the duration in `seconds` under the step's name."""
        start = time.monotonic()
        with working(name.replace("_", " ")):
            yield
        self.seconds[name.replace("_", " ")] = round(time.monotonic() - start, 2)

    def has(self, name: str) -> bool:
        """Return whether the table `name`.parquet is on disk; the result is the same on every rank."""
        return processes.on_rank_zero((self.folder / f"{name}.parquet").exists)

    def read(self, name: str) -> pd.DataFrame:
        """Return the table `name`.parquet."""
        return read_table(self.folder / f"{name}.parquet")

    def write(self, name: str, rows: Table) -> None:
        """Write the table `name`.parquet on rank 0 while the other ranks wait."""
        processes.on_rank_zero(lambda: write_table(self.folder / f"{name}.parquet", rows))

    def ensure(self, name: str, compute: Callable[[], Table], *, on_all_ranks: bool = False) -> None:
        """Compute and write the table `name`.parquet unless the table is on disk.

        `compute` is called on all ranks if `on_all_ranks` is true, else only on rank 0.
        """

        def compute_and_write() -> None:
            with self.step(name):
                self.write(name, compute())

        if not self.has(name):
            compute_and_write() if on_all_ranks else processes.on_rank_zero(compute_and_write)

    def table(self, name: str, compute: Callable[[], Table], *, on_all_ranks: bool = False) -> pd.DataFrame:
        """Return the table `name`.parquet; compute and write the table first if it is not on disk (`ensure`)."""
        self.ensure(name, compute, on_all_ranks=on_all_ranks)
        return self.read(name)

    def parts(self, name: str, columns: Sequence[str], n: int) -> Parts:
        """Return the `Parts` of the current family's computation `name`, with n rows and the given columns."""
        return Parts(self.folder / PARTS / self.family / name, columns, n)
