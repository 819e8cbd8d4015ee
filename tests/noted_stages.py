"""Stages that note where they begin and end, in a module that a Ray worker can import."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from evenhand.evaluation.runs.lock import run_lock
from evenhand.recipes.plans import Plan


@dataclass(frozen=True)
class Noted:
    """A stage that notes in its folder on which node it begins, waits for its leave, and is done."""

    folder: Path
    needs: tuple[Path, ...] = ()
    leave: Path | None = None
    command: str = "noted"
    settings: None = None
    loads_model: bool = False

    def run(self) -> None:
        import ray

        with run_lock(self.folder):
            with (self.folder / "begun").open("a") as file:
                file.write(f"{ray.get_runtime_context().get_node_id()} {os.getpid()}\n")
            while self.leave and not self.leave.exists():
                time.sleep(0.05)
            (self.folder / "done").touch()

    def begun(self) -> list[tuple[str, int]]:
        """The nodes that it began on, and its processes there."""
        file = self.folder / "begun"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(node, int(pid)) for node, pid in map(str.split, lines)]


def plan_of(folder: Path, *names: str, leave: Path) -> Plan:
    """A plan of stages in a row, the last of which waits for leave."""
    stages: list[Noted] = []
    for name in names:
        needs = (stages[-1].folder,) if stages else ()
        stages.append(Noted(folder / name, needs, leave if name == names[-1] else None))
    first, last = stages[0].folder, stages[-1].folder
    return Plan("noted", 0, tuple(stages), first, None, (), last, None, last, "sample", allow_no_bias=True)
