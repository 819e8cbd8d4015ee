"""Points that note where they run, in a module that a Ray worker can import."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.lock import run_lock


@dataclass(frozen=True)
class NotedPoint:
    """A point that waits for `leave`, if that is given, and ends with `error`."""

    folder: Path
    leave: Path | None = None
    error: InputError | None = None

    def begun(self) -> list[tuple[str, int]]:
        """Return the nodes on which the point began, with its processes there."""
        file = self.folder / "begun"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(node, int(pid)) for node, pid in map(str.split, lines)]


def run_noted(point: NotedPoint) -> InputError | None:
    """Note the node (with Ray) and the process, and return the point's error."""
    try:
        with run_lock(point.folder):
            with (point.folder / "begun").open("a") as file:
                file.write(f"{_node()} {os.getpid()}\n")
            while point.leave and not point.leave.exists():
                time.sleep(0.05)
            (point.folder / "done").touch()
    except InputError as error:
        return error
    return point.error


def _node() -> str:
    if "RAY_RAYLET_PID" not in os.environ:
        return "here"
    import ray

    return ray.get_runtime_context().get_node_id()
