"""Stages as tasks of a Ray cluster, whose nodes share the run folder under one path; the setup of their processes."""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.progress import start_logging
from evenhand.evaluation.store import RunLocked
from evenhand.recipes.settings import Launching

log = logging.getLogger("evenhand")

RETRIES = 3  # after the loss of the node or process of a stage
CONNECT_TIMEOUT = 5.0  # seconds to wait for the address of a cluster
LOCK_TIMEOUT = 120.0  # seconds to wait for the lock of a stage whose node was lost


def run_on_ray(stages: Sequence[Any], settings: Launching) -> Iterator[tuple[Any, InputError | None]]:
    """Run each stage (`stages.Stage`) as a task whose arguments are the stages it needs; yield each stage at its end.

    Raises:
        InputError: Ray is not installed, does not start or has no cluster at the address; too many nodes were lost.
    """
    if find_spec("ray") is None:
        raise InputError("launcher: ray is not installed; pip install 'evenhand[ray]'.")
    options = {}
    if settings.ray_address:
        _check_address(settings.ray_address)
    else:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray then listens on loopback only, on Linux too
        options = {"include_dashboard": False}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry; ray reads it on import
    import ray

    try:
        # The default None would read RAY_ADDRESS.
        ray.init(settings.ray_address or "local", logging_level=logging.WARNING, **options)
    except Exception as error:  # Ray has no common base class for these errors
        raise InputError(f"ray_address: Ray cannot use {settings.ray_address!r} ({_on_one_line(error)}).") from None
    try:
        cpus, gpus = settings.ray_cpus or 1, settings.ray_gpus
        if gpus is None:
            gpus = float(any(node["Resources"].get("GPU") for node in ray.nodes()))
        task, outcomes = ray.remote(max_retries=RETRIES)(_run_task), {}
        for stage in stages:
            resources = {"num_cpus": cpus, "num_gpus": 0 if stage.command == "label" else gpus}
            needed = (outcomes[folder] for folder in stage.needs)
            named = task.options(name=str(stage.folder), **resources)
            outcomes[stage.folder] = named.remote(stage, str(Path.cwd()), cpus, log.level, *needed)
        running = {outcomes[stage.folder]: stage for stage in stages}
        while running:
            (done,), _ = ray.wait([*running])
            yield running.pop(done), ray.get(done)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", error)
        if not isinstance(cause, ray.exceptions.RayError):
            raise  # a bug in the stage, with its traceback
        raise InputError(
            f"launcher: Ray could not run a stage, or lost it {1 + RETRIES} times; install this version of Evenhand on "
            f"every node and share the run folder. Finished work is kept. Ray's error: {_on_one_line(cause)}"
        ) from None
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise InputError if no server listens at host:port; Ray itself would try for six minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"ray_address: no server listens at {address!r} ({error}).") from None


def _run_task(stage: Any, folder: str, threads: int, level: int, *errors: InputError | None) -> InputError | None:
    """Run a stage on a node of the cluster, in the command's working directory."""
    set_up_process(os.getppid(), threads, level)  # without it, the task would outlive Ray's process on the node
    os.chdir(folder)
    deadline = time.monotonic() + LOCK_TIMEOUT
    while isinstance(error := stage.run(errors), RunLocked) and time.monotonic() < deadline:
        time.sleep(1)
    return error


def _on_one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def set_up_process(parent: int, threads: int, level: int) -> None:
    """Set up a process that runs stages: its end when the process `parent` ends, its threads and its logging."""
    _exit_with(parent)  # before the slow import of torch
    import torch

    torch.set_num_threads(threads)
    start_logging()
    log.setLevel(level)


@cache
def _exit_with(parent: int) -> None:
    """Start a thread that ends this process when its parent ends, or its stages would run beside those started next."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
