"""Points of a loop or an ablation as tasks of Ray, on this machine or on a cluster (the extra `evenhand[ray]`)."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from evenhand.evaluation.errors import InputError, require_extra
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.lock import RunLocked
from evenhand.evaluation.runs.progress import start_logging
from evenhand.recipes.tuning_settings import Launching

log = logging.getLogger("evenhand")

RETRIES = 3  # after the loss of the node or process of a task
CONNECT_TIMEOUT = 5.0  # seconds to wait for the address of a cluster
SECONDS_BETWEEN_TRIES = 1.0

Task = TypeVar("Task")


def run_on_ray(
    points: Sequence[Task], run: Callable[[Task], InputError | None], launching: Launching
) -> Iterator[tuple[Task, InputError | None]]:
    """Run each point as a task of Ray; yield each point when its task ends, with the error that `run` returned.

    A point whose stage is running in another task waits for it, and finds it finished.

    Raises:
        InputError: Ray is not installed, cannot be reached or lost a task too often.
    """
    if processes.world_size() > 1:
        raise InputError(
            "ray",
            f"each stage already runs on {processes.world_size()} processes; omit ray, or start without torchrun or "
            "accelerate.",
        )
    require_extra("ray", "ray", field="ray")
    _check_address(launching.ray)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry; ray reads it on import
    import ray

    _connect(launching.ray)
    try:
        cpus = launching.ray_cpus or 1
        gpus = launching.ray_gpus
        if gpus is None:
            gpus = float(any(node["Resources"].get("GPU") for node in ray.nodes()))
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(_run_task)
        running = {task.remote(run, point, str(Path.cwd()), cpus, log.level): point for point in points}
        while running:
            finished, _ = ray.wait(list(running))
            for reference in finished:
                yield running.pop(reference), ray.get(reference)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", error)
        if not isinstance(cause, ray.exceptions.RayError):
            raise  # a bug in the stage, with its traceback
        raise InputError(
            "ray",
            f"Ray could not run a point, or lost it {1 + RETRIES} times; install this version of Evenhand on every "
            f"node and share the run folder. Finished work is kept. Ray's error: {' '.join(str(cause).split())}",
        ) from None
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    """Connect to a cluster, or start one on this machine if the address is "local"."""
    options = {}
    if address == "local":
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray then listens on loopback only, on Linux too
        options["include_dashboard"] = False
    import ray

    try:
        ray.init(address, logging_level=logging.WARNING, **options)
    except Exception as error:  # Ray has no common base class for these errors
        raise InputError("ray", f"Ray cannot use {address!r} ({' '.join(str(error).split())}).") from None


def _check_address(address: str) -> None:
    """Raise InputError if no server listens at host:port; Ray itself would try for six minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto" or "local"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise InputError("ray", f"no server listens at {address!r} ({error}).") from None


def _run_task(
    run: Callable[[Task], InputError | None], point: Task, folder: str, threads: int, level: int
) -> InputError | None:
    """Run a point on a node of the cluster, in the command's working directory."""
    _set_up_worker(os.getppid(), threads, level)  # without it, the task would outlive Ray's process on the node
    os.chdir(folder)
    error = run(point)
    while isinstance(error, RunLocked):  # by another point, or by the task of a lost node
        time.sleep(SECONDS_BETWEEN_TRIES)
        error = run(point)
    return error


@cache
def _set_up_worker(parent: int, threads: int, level: int) -> None:
    """Set up a process of Ray that runs points: its end when the process `parent` ends, its threads and its logging."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()  # before the slow import of torch
    import torch

    torch.set_num_threads(threads)
    start_logging()
    log.setLevel(level)
