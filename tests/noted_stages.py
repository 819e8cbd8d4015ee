"""Stages that note where they run, in a module that a Ray worker can import."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.store import run_lock


@dataclass(frozen=True)
class Noted:
    """A stage that notes its node (with Ray) and its process, waits for `leave`, and ends with `error`."""

    folder: Path
    needs: tuple[Path, ...] = ()
    leave: Path | None = None
    error: InputError | None = None
    command: str = "noted"

    def run(self, errors: Iterable[InputError | None] = ()) -> InputError | None:
        if failed := next(filter(None, errors), None):
            return failed
        with run_lock(self.folder):
            with (self.folder / "begun").open("a") as file:
                file.write(f"{_node()} {os.getpid()}\n")
            while self.leave and not self.leave.exists():
                time.sleep(0.05)
            (self.folder / "done").touch()
        return self.error

    def begun(self) -> list[tuple[str, int]]:
        """Return the nodes on which the stage began, with its processes there."""
        file = self.folder / "begun"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(node, int(pid)) for node, pid in map(str.split, lines)]


def _node() -> str:
    if "RAY_RAYLET_PID" not in os.environ:
        return "here"
    import ray

    return ray.get_runtime_context().get_node_id()


def stages_in_a_row(folder: Path, *names: str, leave: Path | None = None) -> list[Noted]:
    """Return stages each of which needs the one before; the last waits for `leave`."""
    stages: list[Noted] = []
    for name in names:
        needs = (stages[-1].folder,) if stages else ()
        stages.append(Noted(folder / name, needs, leave if name == names[-1] else None))
    return stages
