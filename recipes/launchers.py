"""Launchers of stages: in this process, in a pool of processes, or as tasks of a Ray cluster.

`recipes.experiment.run` decides which stages are ready, and a launcher starts them. All nodes of a cluster must share
the run folder under one path.
"""

import logging
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.lock import RunLocked
from evenhand.evaluation.runs.progress import start_logging
from evenhand.recipes.settings import Launching

log = logging.getLogger("evenhand")

RAY = "ray"
RETRIES = 3  # after the loss of the node or process of a stage
CONNECT_TIMEOUT = 5.0  # seconds to wait for the address of a cluster
LOCK_TIMEOUT = 120.0  # seconds to wait for the lock of a stage whose node was lost


class Startable(Protocol):
    """A stage that a launcher can start."""

    folder: Path
    loads_model: bool

    def run(self) -> None:
        """Run the stage; return at once if it is finished."""


# A function that starts a stage. The result of the future is the InputError that ended the stage, or None.
Start = Callable[[Startable], "Future[InputError | None]"]


@contextmanager
def start_launcher(settings: Launching) -> Iterator[Start]:
    """Yield a function that starts a stage: in this process for one job, else in a process pool or on a cluster.

    Raises:
        InputError: Ray is not installed, the cluster cannot be reached, a process or too many nodes were lost, or
            `accelerate launch` already runs several processes for each stage.
    """
    is_local = settings.launcher != RAY and settings.jobs in (None, 1)
    if not is_local and processes.world_size() > 1:
        raise InputError(
            f"jobs: each stage already runs on {processes.world_size()} processes; omit jobs and launcher, or start "
            "without `accelerate launch`."
        )
    if settings.launcher == RAY:
        with _in_ray(settings) as start:
            yield start
    elif is_local:
        yield _start_here
    else:
        with _in_processes(settings.jobs) as start:
            yield start


def _start_here(stage: Startable) -> "Future[InputError | None]":
    future: Future[InputError | None] = Future()
    future.set_result(_run_stage(stage))
    return future


def _run_stage(stage: Startable) -> InputError | None:
    """Run a stage; return the InputError that ended the stage, or None.

    Process pools and Ray transfer a returned error unchanged.
    """
    try:
        stage.run()
    except InputError as error:
        return error
    return None


@contextmanager
def _in_processes(jobs: int) -> Iterator[Start]:
    """Yield a function that starts a stage in a pool of processes, which share the cores equally."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")  # torch may hang in forked processes
    arguments = (threads, os.getpid(), log.level)
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(jobs, context, initializer=_set_up_process, initargs=arguments)
    try:
        try:
            yield lambda stage: pool.submit(_run_stage, stage)
        except Exception:
            pool.shutdown()  # waits for the running stages, so that their work is kept
            raise
        pool.shutdown()
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C and SIGTERM do not wait
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
    except BrokenProcessPool:
        raise InputError(
            f"jobs: one of {jobs} processes was killed, probably because memory ran out; run again with fewer jobs. "
            "Finished work is kept."
        ) from None


def _set_up_process(threads: int, parent: int, level: int) -> None:
    """Set up a process of the pool: its exit when the parent ends, its number of threads and its logging."""
    _exit_with_parent(parent)  # before the slow import of torch
    _set_up(threads, level)


@cache
def _exit_with_parent(parent: int) -> None:
    """Start a thread that ends this process when its parent process ends.

    Without the thread, the stages of a killed command would still run while the next command starts the same stages.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _set_up(threads: int, level: int) -> None:
    import torch

    torch.set_num_threads(threads)
    start_logging()
    log.setLevel(level)


@contextmanager
def _in_ray(settings: Launching) -> Iterator[Start]:
    """Yield a function that starts a stage as a task of a Ray cluster, or of a local Ray that stops afterwards."""
    if find_spec("ray") is None:
        raise InputError("launcher: ray is not installed; pip install 'evenhand[ray]'.")
    if settings.ray_address:
        _check_address(settings.ray_address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry; ray reads it on import
    local_options = {}
    if settings.ray_address is None:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray then listens on loopback only, on Linux too
        local_options = {"include_dashboard": False}
    import ray

    try:
        # The default None would read RAY_ADDRESS.
        ray.init(settings.ray_address or "local", logging_level=logging.WARNING, **local_options)
    except Exception as error:  # Ray has no common base class for these errors
        problem = "could not start locally" if local_options else f"has no cluster at {settings.ray_address!r}"
        raise InputError(f"ray_address: Ray {problem} ({' '.join(str(error).split())}).") from None
    try:
        cpus, gpus = _resources(settings, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        task = ray.remote(_task)

        def start(stage: Startable) -> "Future[InputError | None]":
            resources = {"num_cpus": cpus, "num_gpus": gpus if stage.loads_model else 0}
            arguments = (stage, str(Path.cwd()), cpus, log.level)
            return task.options(**resources, max_retries=RETRIES, name=str(stage.folder)).remote(*arguments).future()

        yield start
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", error)
        if not isinstance(cause, ray.exceptions.RayError):
            raise  # a bug in the stage, with its traceback
        raise InputError(
            f"launcher: Ray could not run a stage, or lost it {1 + RETRIES} times; install this version of Evenhand on "
            f"every node and share the run folder. Finished work is kept. Ray's error: {' '.join(str(cause).split())}"
        ) from None
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise InputError if no server listens at host:port; Ray itself would retry for six minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"ray_address: no server listens at {address!r} ({error}); give the address that `ray start --head` "
            "printed, or 'auto' on a machine of the cluster."
        ) from None


def _resources(settings: Launching, nodes: list[dict[str, float]]) -> tuple[int, float]:
    """Return the number of CPUs for each stage, and of GPUs for each stage that loads a model.

    The default is one CPU, and one GPU if any node has a GPU.
    """
    has_gpu = any(node.get("GPU") for node in nodes)
    cpus, gpus = settings.ray_cpus or 1, float(has_gpu) if settings.ray_gpus is None else settings.ray_gpus
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
        problem = f"ray_cpus, ray_gpus: no node has {cpus} CPUs and {gpus:g} GPUs"
        if settings.ray_address is None:
            raise InputError(f"{problem}; request fewer, or give the ray_address of a cluster.")
        log.warning("%s yet; stages wait for such a node", problem)
    return cpus, gpus


def _task(stage: Startable, folder: str, threads: int, level: int) -> InputError | None:
    """Run a stage on a node of the cluster, in the command's working directory; return its InputError or None."""
    _exit_with_parent(os.getppid())  # otherwise the task would outlive Ray's process on the node for a minute
    os.chdir(folder)
    _set_up(threads, level)
    deadline = time.monotonic() + LOCK_TIMEOUT
    while isinstance(error := _run_stage(stage), RunLocked) and time.monotonic() < deadline:
        time.sleep(1)
    return error
