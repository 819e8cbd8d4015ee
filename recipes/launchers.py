"""Where the stages of a plan run: here, in processes of this machine, or as tasks of a Ray cluster.

`recipes.experiment.run` says which stage may start; a launcher starts it. All of them read and write the run folder,
which for a cluster is storage that all its nodes share under one path.
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
RETRIES = 3  # of a stage whose node or process is lost
SECONDS_TO_ANSWER = 5.0  # of a cluster's address
PATIENCE = 120.0  # seconds that a stage's last process, on a node that is lost, may take to let go of its folder


class Startable(Protocol):
    """What a launcher asks of a stage: to be run, and whether a GPU is of any use to it."""

    folder: Path
    loads_model: bool

    def run(self) -> None:
        """Run it, or find that it is finished."""


# Starts a stage; what comes of it is the mistake that ended it, if one did.
Start = Callable[[Startable], "Future[InputError | None]"]


@contextmanager
def launched(settings: Launching) -> Iterator[Start]:
    """Yield what starts a stage: here and at once for one job, else in one of so many processes, or on a cluster.

    Raises:
        InputError: Ray is not installed, or there is no such cluster; a process or too many nodes were lost; several
            processes share each stage already.
    """
    here = settings.launcher != RAY and settings.jobs in (None, 1)
    if not here and processes.world_size() > 1:
        raise InputError(
            f"jobs: stages at a time beside the {processes.world_size()} processes that share each of them; leave jobs "
            "and launcher out, or start without `accelerate launch`."
        )
    if settings.launcher == RAY:
        with _on_ray(settings) as start:
            yield start
    elif here:
        yield _here
    else:
        with _in_processes(settings.jobs) as start:
            yield start


def _here(stage: Startable) -> "Future[InputError | None]":
    future: Future[InputError | None] = Future()
    future.set_result(_mistake(stage))
    return future


def _mistake(stage: Startable) -> InputError | None:
    """Run a stage; return the mistake that ends it as a value, which processes and Ray hand over as it is."""
    try:
        stage.run()
    except InputError as error:
        return error
    return None


@contextmanager
def _in_processes(jobs: int) -> Iterator[Start]:
    """Yield what starts a stage in one of so many processes, each with its share of the cores."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    arguments = (threads, os.getpid(), log.level)
    try:
        with ProcessPoolExecutor(jobs, context, initializer=_prepare_process, initargs=arguments) as pool:
            yield lambda stage: pool.submit(_mistake, stage)
    except BrokenProcessPool:
        raise InputError(
            f"jobs: one of {jobs} processes was killed, as it is where memory runs out; run again with fewer, what is "
            "done so far is kept."
        ) from None


def _prepare_process(threads: int, parent: int, level: int) -> None:
    """Set a process up: an end when its parent is gone, its threads, its log."""
    _end_with(parent)  # before torch is imported, which takes its time
    _prepare(threads, level)


@cache
def _end_with(parent: int) -> None:
    """End this process when its parent is gone, even if that was just now.

    A kill of the parent must not leave stages at work that the next run starts again.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _prepare(threads: int, level: int) -> None:
    import torch

    torch.set_num_threads(threads)
    start_logging()
    log.setLevel(level)


@contextmanager
def _on_ray(settings: Launching) -> Iterator[Start]:
    """Yield what starts a stage as a task of a cluster, or of a Ray on this machine that ends with the block."""
    if find_spec("ray") is None:
        raise InputError("launcher: ray is not installed; pip install 'evenhand[ray]'.")
    if settings.ray_address:
        _refuse_silent(settings.ray_address)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read as ray is imported: nothing is told to anybody
    alone = {}
    if settings.ray_address is None:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # by which Ray keeps to loopback, on Linux too
        alone = {"include_dashboard": False}
    import ray

    try:
        # "local" although None is the default: that would read RAY_ADDRESS.
        ray.init(settings.ray_address or "local", logging_level=logging.WARNING, **alone)
    except Exception as error:  # Ray has none of its own for this
        where = "could not be started here" if alone else f"has no cluster to join at {settings.ray_address!r}"
        raise InputError(f"ray_address: Ray {where} ({' '.join(str(error).split())}).") from None
    try:
        cpus, gpus = _resources(settings, [node["Resources"] for node in ray.nodes() if node["Alive"]])
        task = ray.remote(_task)

        def start(stage: Startable) -> "Future[InputError | None]":
            needed = {"num_cpus": cpus, "num_gpus": gpus if stage.loads_model else 0}
            told = (stage, str(Path.cwd()), cpus, log.level)
            return task.options(**needed, max_retries=RETRIES, name=str(stage.folder)).remote(*told).future()

        yield start
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", error)
        if not isinstance(cause, ray.exceptions.RayError):
            raise  # a fault of the stage's own, with its traceback
        raise InputError(
            f"launcher: Ray could not run a stage, or lost it {1 + RETRIES} times; every node needs this Evenhand and "
            f"the folder of the run. What is done so far is kept. Ray says: {' '.join(str(cause).split())}"
        ) from None
    finally:
        ray.shutdown()


def _refuse_silent(address: str) -> None:
    """Refuse a host:port that nothing listens at: Ray itself would try for six minutes and more.

    Raises:
        InputError: nothing does.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"ray_address: nothing listens at {address!r} ({error}); give the address that `ray start --head` printed, "
            "or 'auto' on a machine of the cluster."
        ) from None


def _resources(settings: Launching, nodes: list[dict[str, float]]) -> tuple[int, float]:
    """Return the CPUs of a stage, and the GPUs of one that loads a model: unless told, one where there is any.

    Raises:
        InputError: this machine, which no other will join, has not as many.
    """
    there = any(node.get("GPU") for node in nodes)
    cpus, gpus = settings.ray_cpus or 1, float(there) if settings.ray_gpus is None else settings.ray_gpus
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
        lacking = f"ray_cpus, ray_gpus: no node has {cpus} CPUs and {gpus:g} GPUs"
        if settings.ray_address is None:
            raise InputError(f"{lacking}; ask for less, or give the ray_address of a cluster.")
        log.warning("%s yet; stages wait for one that has", lacking)
    return cpus, gpus


def _task(stage: Startable, folder: str, threads: int, level: int) -> InputError | None:
    """Run a stage on some node, as if from the folder that the command was given in."""
    _end_with(os.getppid())  # its node's Ray, without which it would be at work for another minute
    os.chdir(folder)
    _prepare(threads, level)
    deadline = time.monotonic() + PATIENCE
    while isinstance(found := _mistake(stage), RunLocked) and time.monotonic() < deadline:
        time.sleep(1)
    return found
