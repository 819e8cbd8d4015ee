"""Execution of stages: each after the stages that it needs, in this process, in a pool of processes or on a cluster."""

import logging
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from graphlib import TopologicalSorter
from pathlib import Path

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError
from evenhand.recipes.cluster import run_on_ray
from evenhand.recipes.settings import Launching
from evenhand.recipes.stages import Stage, set_up_process

log = logging.getLogger("evenhand")


def run_stages(stages: Sequence[Stage], launching: Launching) -> Iterator[tuple[Stage, InputError | None]]:
    """Run each stage after the stages that it needs; yield each stage at its end, with its error or None.

    An error ends only the stages that need the stage.

    Args:
        stages: stages with different folders; each comes after the stages that it needs.

    Raises:
        InputError: `accelerate launch` already runs several processes for each stage; a process of the pool was
            killed; see also `evenhand.recipes.cluster.run_on_ray`.
    """
    if launching.launcher == "processes" and launching.jobs == 1:
        return _run_here(stages)
    if processes.world_size() > 1:
        raise InputError(
            f"jobs: each stage already runs on {processes.world_size()} processes; omit jobs and launcher, or start "
            "without `accelerate launch`."
        )
    if launching.launcher == "processes":
        return _run_in_pool(stages, launching.jobs)
    return run_on_ray(stages, launching)


def _run_here(stages: Sequence[Stage]) -> Iterator[tuple[Stage, InputError | None]]:
    errors: dict[Path, InputError | None] = {}
    for stage in stages:
        errors[stage.folder] = stage.run(errors[folder] for folder in stage.needs)
        yield stage, errors[stage.folder]


def _run_in_pool(stages: Sequence[Stage], jobs: int) -> Iterator[tuple[Stage, InputError | None]]:
    """Run `jobs` stages at a time; of the stages that can run, those come first that are first in `stages`."""
    by_folder, places = {stage.folder: stage for stage in stages}, {stage.folder: i for i, stage in enumerate(stages)}
    graph = TopologicalSorter({stage.folder: stage.needs for stage in stages})
    graph.prepare()
    errors: dict[Path, InputError | None] = {}
    running: dict[Future[InputError | None], Stage] = {}
    ready: list[Path] = []
    with _process_pool(jobs) as pool:
        while graph.is_active():
            ready = sorted([*ready, *graph.get_ready()], key=places.get)
            while ready and len(running) < jobs:
                stage = by_folder[ready.pop(0)]
                running[pool.submit(stage.run, [errors[folder] for folder in stage.needs])] = stage
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                stage = running.pop(future)
                errors[stage.folder] = future.result()
                graph.done(stage.folder)
                yield stage, errors[stage.folder]


@contextmanager
def _process_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes that share the cores equally. Ctrl-C and SIGTERM end the processes at once."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(
        jobs,
        multiprocessing.get_context("spawn"),  # torch may hang in forked processes
        initializer=set_up_process,
        initargs=(os.getpid(), threads, log.level),
    )
    try:
        try:
            yield pool
        except Exception:
            pool.shutdown()  # waits for the running stages, so that their work is kept
            raise
        pool.shutdown()
    except BrokenProcessPool:
        raise InputError(
            f"jobs: one of {jobs} processes was killed, probably because memory ran out; run again with fewer jobs. "
            "Finished work is kept."
        ) from None
    except BaseException as error:
        if not isinstance(error, Exception):
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
        raise
