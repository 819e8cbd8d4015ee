"""Stages of an experiment: runs of other commands, each in its folder and after the stages that it needs.

Equal stages have the same folder and run once; a stage that is finished returns at once.
"""

import logging
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.metrics.generation_bias.metric import HEADLINE
from evenhand.evaluation.metrics.generation_bias.verdict import is_bias_significant
from evenhand.evaluation.report.numbers import score_text
from evenhand.evaluation.score import display_name, find_score, read_scores
from evenhand.recipes.cluster import run_on_ray, set_up_process
from evenhand.recipes.commands import run_command
from evenhand.recipes.measure import SCORES
from evenhand.recipes.settings import Launching

log = logging.getLogger("evenhand")

Outcomes = Iterator[tuple["Stage", InputError | None]]


@dataclass(frozen=True)
class Stage:
    """One run of a command: its settings, and the folders of the stages that must be finished before it.

    `must_show_bias`: the stage measures the base model, which is tuned only if the measurement shows a bias. `number`
    is its place among all stages, such as "3 of 9".
    """

    command: str
    settings: Any
    needs: tuple[Path, ...] = ()
    must_show_bias: bool = False
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
            run_command(self.command, self.settings)
        except InputError as error:
            return error
        return self._no_bias() if self.must_show_bias else None

    def _no_bias(self) -> TuningRejected | None:
        pooled = find_score(read_scores(self.folder / SCORES), HEADLINE)
        if is_bias_significant(pooled):
            return None
        return TuningRejected(
            f"the base model shows no bias: pooled FGB* is {score_text(pooled)} ({display_name(str(self.folder))}), so "
            "tuning cannot reduce it. Measure with more prompts (measure.prompts.descriptors, per_cell), or tune the "
            "model anyway with --allow_no_bias true."
        )


def run_stages(stages: Sequence[Stage], launching: Launching) -> Outcomes:
    """Run each stage after the stages that it needs; yield each stage at its end, with its error or None.

    An error ends only the stages that need the stage.

    Args:
        stages: stages with different folders; each comes after the stages that it needs.
        launching: whether stages run in this process, in several processes or on a cluster.

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


def _run_here(stages: Sequence[Stage]) -> Outcomes:
    errors: dict[Path, InputError | None] = {}
    for stage in stages:
        errors[stage.folder] = stage.run(errors[folder] for folder in stage.needs)
        yield stage, errors[stage.folder]


def _run_in_pool(stages: Sequence[Stage], jobs: int) -> Outcomes:
    """Run `jobs` stages at a time in processes; a thread for each stage waits for the stages that it needs."""
    outcomes = {}
    with ThreadPoolExecutor(len(stages)) as threads, _process_pool(jobs) as pool:

        def run(stage: Stage) -> InputError | None:
            return pool.submit(stage.run, [outcomes[folder].result() for folder in stage.needs]).result()

        for stage in stages:
            outcomes[stage.folder] = threads.submit(run, stage)
        running = {outcomes[stage.folder]: stage for stage in stages}
        for outcome in as_completed(running):
            yield running[outcome], outcome.result()


@contextmanager
def _process_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of processes that share the cores equally. Ctrl-C and SIGTERM end the processes at once."""
    setup = os.getpid(), max(1, (os.cpu_count() or 1) // jobs), log.level
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("spawn")  # torch may hang in forked processes
    pool = ProcessPoolExecutor(jobs, context, initializer=set_up_process, initargs=setup)
    try:
        yield pool
        pool.shutdown()
    except BrokenProcessPool:
        raise InputError(
            f"jobs: one of {jobs} processes was killed, probably because memory ran out; run again with fewer jobs. "
            "Finished work is kept."
        ) from None
    except BaseException as error:
        # After an error, the running stages end first, so that their work is kept.
        pool.shutdown(wait=isinstance(error, Exception), cancel_futures=True)
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise
