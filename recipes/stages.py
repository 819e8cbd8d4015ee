"""Stages of an experiment: runs of other commands, each in its folder and after the stages that it needs.

Equal stages have the same folder and run once; a stage that is finished returns at once.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError, TuningRejected, require_extra
from evenhand.evaluation.metrics.generation_bias.metric import HEADLINE
from evenhand.evaluation.metrics.generation_bias.verdict import is_bias_significant
from evenhand.evaluation.progress import start_logging
from evenhand.evaluation.report.numbers import score_text
from evenhand.evaluation.score import display_name, find_score, read_scores
from evenhand.evaluation.store import RunLocked
from evenhand.recipes.measurement import SCORES
from evenhand.recipes.settings import Launching

log = logging.getLogger("evenhand")

RETRIES = 3  # after the loss of the node or process of a stage
CONNECT_TIMEOUT = 5.0  # seconds to wait for the address of a cluster
LOCK_TIMEOUT = 120.0  # seconds to wait for the lock of a stage whose node was lost

Outcomes = Iterator[tuple["Stage", InputError | None]]


@dataclass(frozen=True)
class Stage:
    """One run of a command: its settings, and the folders of the stages that must be finished before it.

    `must_show_bias`: the stage measures the base model, which is tuned only if the measurement shows a bias.
    `for_comparisons`: it also scores what comparisons with it need. `number` is its place among all stages, such as
    "3 of 9".
    """

    command: str
    settings: Any
    needs: tuple[Path, ...] = ()
    must_show_bias: bool = False
    for_comparisons: bool = False
    number: str = ""

    @property
    def folder(self) -> Path:
        return self.settings.output_dir

    def run(self, errors: Iterable[InputError | None] = ()) -> InputError | None:
        """Run the stage unless a stage that it needs has an error in `errors`; return the error that ended it."""
        if failed := next(filter(None, errors), None):
            return failed
        log.info("stage %s: %s → %s", self.number, self.command, self.folder)
        try:
            self.run_command()
        except InputError as error:
            return error
        if not self.must_show_bias:
            return None
        pooled = find_score(read_scores(self.folder / SCORES), HEADLINE)
        if is_bias_significant(pooled):
            return None
        return TuningRejected(
            "model",
            f"the base model shows no bias: pooled FGB* is {score_text(pooled)} ({display_name(str(self.folder))}), so "
            "tuning cannot reduce it. Measure with more prompts (measure.prompts.descriptors, answers_per_cell), or "
            "tune the model anyway with --allow_no_bias true.",
        )

    def run_command(self) -> None:
        """Run the stage's command. A comparison and the labels are made by one of several processes."""
        # These imports are slow, and a worker of Ray is set up before.
        from evenhand.recipes.compare import compare
        from evenhand.recipes.label import label
        from evenhand.recipes.measurement import measure_model
        from evenhand.recipes.tune import tune

        if self.command == "measure":
            measure_model(self.settings, show=False, for_comparisons=self.for_comparisons)
        elif self.command == "label":
            processes.on_rank_zero(lambda: label(self.settings))
        elif self.command == "tune":
            tune(self.settings)
        else:
            processes.on_rank_zero(lambda: compare(self.settings, show=False))


def run_stages(stages: Sequence[Stage], launching: Launching) -> Outcomes:
    """Run each stage after the stages that it needs; yield each stage at its end, with its error or None.

    An error ends only the stages that need the stage.

    Args:
        stages: stages with different folders; each comes after the stages that it needs.
        launching: whether stages run here, one after the other, or on a cluster.
    """
    if launching.ray is not None:
        yield from run_on_ray(stages, launching)
        return
    errors: dict[Path, InputError | None] = {}
    for stage in stages:
        errors[stage.folder] = stage.run(errors[folder] for folder in stage.needs)
        yield stage, errors[stage.folder]


def run_on_ray(stages: Sequence[Stage], settings: Launching) -> Outcomes:
    """Run each stage as a task of Ray; yield each stage when it ends.

    The arguments of a task are the results of the stages that the stage needs, so that Ray finds the order.
    """
    if processes.world_size() > 1:
        raise InputError(
            "ray",
            f"each stage already runs on {processes.world_size()} processes; omit ray, or start without "
            "torchrun or accelerate.",
        )
    require_extra("ray", "ray", field="ray")
    options = {}
    _check_address(settings.ray)
    if settings.ray == "local":
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # Ray then listens on loopback only, on Linux too
        options = {"include_dashboard": False}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry; ray reads it on import
    import ray

    try:
        ray.init(settings.ray, logging_level=logging.WARNING, **options)
    except Exception as error:  # Ray has no common base class for these errors
        raise InputError("ray", f"Ray cannot use {settings.ray!r} ({' '.join(str(error).split())}).") from None
    try:
        cpus = settings.ray_cpus or 1
        gpus = settings.ray_gpus
        if gpus is None:
            gpus = float(any(node["Resources"].get("GPU") for node in ray.nodes()))
        task = ray.remote(max_retries=RETRIES)(_run_task)
        outcomes = {}
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
            "ray",
            f"Ray could not run a stage, or lost it {1 + RETRIES} times; install this version of Evenhand on "
            f"every node and share the run folder. Finished work is kept. Ray's error: {' '.join(str(cause).split())}",
        ) from None
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise InputError if no server listens at host:port; Ray itself would try for six minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # "auto" or "local"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise InputError("ray", f"no server listens at {address!r} ({error}).") from None


def _run_task(stage: Stage, folder: str, threads: int, level: int, *errors: InputError | None) -> InputError | None:
    """Run a stage on a node of the cluster, in the command's working directory."""
    _set_up_worker(os.getppid(), threads, level)  # without it, the task would outlive Ray's process on the node
    os.chdir(folder)
    deadline = time.monotonic() + LOCK_TIMEOUT
    while isinstance(error := stage.run(errors), RunLocked) and time.monotonic() < deadline:
        time.sleep(1)
    return error


@cache
def _set_up_worker(parent: int, threads: int, level: int) -> None:
    """Set up a process of Ray that runs stages: its end when the process `parent` ends, its threads and its logging."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()  # before the slow import of torch
    import torch

    torch.set_num_threads(threads)
    start_logging()
    log.setLevel(level)
