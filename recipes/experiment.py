"""An experiment as data: the stages that turn one config into a comparison, planned first and run after.

Measure → label → tune → measure again → compare, for each method, as a list of stages each of which has its config and
its folder. The loop runs them one after another in folders with names; an ablation runs what several plans have in
common once, in folders named by what is in them.
"""

import hashlib
import json
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from evaluation.errors import InputError
from evaluation.progress import start_logging
from mitigation.checks import Refused
from mitigation.training import ADAPTER
from recipes.config import CompareConfig, LoopConfig, as_settings
from recipes.runs import NOT_COMPARED
from recipes.tune import load_method

log = logging.getLogger("evenhand")

FAMILY = "generation_bias"  # what labels are made of and tuning removes; others may be measured beside it
COMMON = ("report_to", "group", "output_dir")
SET_HERE = {
    "measure": ("split", "seed", "show", *COMMON),
    "label": ("responses", "seed", *COMMON),
    "tune": ("labels", "method", *COMMON),
}
# Where a stage goes, given its name in the loop, the command and the config.
Place = Callable[[str, str, Any], Path]


@dataclass(frozen=True)
class Stage:
    """One run of a command: what it is told, and the folders of the stages that must be finished before."""

    command: str
    config: Any
    needs: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:
        return self.config.output_dir

    def run(self) -> None:
        """Run it, or find that it is finished."""
        getattr(import_module(f"recipes.{self.command}"), self.command)(self.config)


@dataclass(frozen=True)
class Plan:
    """The stages of one method in the order they run, and the folders that its results are read from."""

    method: str
    seed: int
    stages: tuple[Stage, ...]
    before: Path
    labels: Path
    tunings: tuple[Path, ...]
    after: Path
    untagged: Path | None
    comparison: Path


def plan(config: LoopConfig, method: str, place: Place) -> Plan:
    """Return what one method takes, from the first measurement to the comparison.

    Raises:
        InputError: a field is given that is set here, prompts that cannot be split into two sides, or an unknown
            method.
    """
    _check(config)
    stages: list[Stage] = []

    def add(name: str, command: str, stage_config: Any, *needs: Path) -> Path:
        settings = replace(stage_config, report_to=config.report_to, group=config.output_dir.name)
        settings = replace(settings, output_dir=place(name, command, settings))
        stages.append(Stage(command, settings, needs))
        return settings.output_dir

    measured = replace(config.measure, split="measure", seed=config.seed, show=False)
    module = load_method(method)
    tag = module.INFERENCE_TAG
    training = replace(config.tune.training, seed=config.seed).filled_in(module)
    before = add("before", "measure", measured)
    model, tuned_before, labels, tunings = measured.model, (), [], []
    for number in range(1, config.rounds + 1):
        # The first round's responses and labels are every method's.
        there, own = ("", f"{method}/") if number == 1 else (f"{method}/round_{number}/",) * 2
        train = replace(
            measured,
            model=model,
            metrics=[FAMILY],
            split="train",
            per_cell=config.train_per_cell,
            permutations=0,
            second_style_classifier=None,  # it must not shape a label
            offensiveness_classifier=None,
            offensive_label=None,
        )
        responses = add(f"{there}train", "measure", train, *tuned_before)
        labels.append(
            add(f"{there}label", "label", replace(config.label, responses=responses, seed=config.seed), responses)
        )
        tuning = replace(config.tune, labels=labels[-1], method=method, training=training)
        tunings.append(add(f"{own}tune", "tune", tuning, labels[-1]))
        model, tuned_before = str(tunings[-1] / ADAPTER), (tunings[-1],)
    after = add(f"{method}/after", "measure", replace(measured, model=model), *tuned_before)
    untagged = None
    if tag and config.untagged:
        asked_without = replace(measured, model=model, metrics=[FAMILY], control_tag="", permutations=0)
        untagged = add(f"{method}/untagged", "measure", asked_without, *tuned_before)
    compared = CompareConfig(
        before=before, after=after, labels=labels[0], tuning=tunings[-1], untagged=untagged, show=False
    )
    needed = [folder for folder in (before, after, labels[0], untagged) if folder is not None]
    comparison = add(f"{method}/compare", "compare", compared, *needed)
    return Plan(method, config.seed, tuple(stages), before, labels[0], tuple(tunings), after, untagged, comparison)


def by_name(folder: Path) -> Place:
    """Return the place of a stage that is called by its name."""
    return lambda name, command, config: folder / name


def by_content(folder: Path) -> Place:
    """Return the place of a stage that is called by its command and a hash of its config: equal stages are one."""

    def place(name: str, command: str, config: Any) -> Path:
        told = {key: value for key, value in as_settings(config).items() if key not in NOT_COMPARED}
        digest = hashlib.sha256(json.dumps([command, told], sort_keys=True).encode()).hexdigest()
        return folder / f"{command}-{digest[:12]}"

    return place


def run(
    plans: Sequence[Plan], jobs: int = 1, on_finished: Callable[[Plan], None] = lambda plan: None
) -> dict[str, str]:
    """Run every stage of the plans once, `jobs` at a time; call `on_finished` as a plan's last stage ends.

    A tuning that a guard refuses ends its own plan and no other. With several jobs each stage runs in a process of its
    own with its share of the cores.

    Returns:
        Why a plan was refused, by the folder of its comparison.

    Raises:
        InputError: any other mistake, as soon as it shows.
    """
    waiting = {stage.folder: stage for plan in plans for stage in plan.stages}
    started, total = 0, len(waiting)
    unfinished = list(plans)
    finished: set[Path] = set()
    refused: dict[Path, str] = {}
    with _workers(jobs) as submit:
        running: dict[Future[None], Stage] = {}
        while waiting or running:
            for stage in list(waiting.values()):
                reasons = [refused[folder] for folder in stage.needs if folder in refused]
                if reasons:
                    refused[stage.folder] = reasons[0]
                    del waiting[stage.folder]
                elif len(running) < jobs and finished.issuperset(stage.needs):
                    del waiting[stage.folder]
                    started += 1
                    log.info("stage %d of %d: %s → %s", started, total, stage.command, stage.folder)
                    running[submit(stage)] = stage
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                stage = running.pop(future)
                try:
                    future.result()
                    finished.add(stage.folder)
                except Refused as error:
                    log.warning("%s: refused: %s", stage.folder, error)
                    refused[stage.folder] = str(error)
            for plan in [plan for plan in unfinished if {plan.comparison} & ({*finished} | {*refused})]:
                unfinished.remove(plan)
                on_finished(plan)
    return {str(plan.comparison): refused[plan.comparison] for plan in plans if plan.comparison in refused}


@contextmanager
def _workers(jobs: int) -> Iterator[Callable[[Stage], Future[None]]]:
    """Yield what starts a stage: here and at once for one job, else in one of so many processes."""
    if jobs == 1:
        yield _run_here
        return
    threads = max(1, (os.cpu_count() or 1) // jobs)
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    with ProcessPoolExecutor(jobs, context, initializer=_prepare_worker, initargs=(threads,)) as pool:
        yield lambda stage: pool.submit(stage.run)


def _run_here(stage: Stage) -> Future[None]:
    future: Future[None] = Future()
    try:
        future.set_result(stage.run())
    except Refused as error:
        future.set_exception(error)
    return future


def _prepare_worker(threads: int) -> None:
    """Set a worker process up: its threads, its log, and an end when its parent is gone."""
    import torch

    torch.set_num_threads(threads)
    start_logging()
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)  # a kill of the parent must not leave stages at work that the next run starts again

    threading.Thread(target=watch, daemon=True).start()


def _check(config: LoopConfig) -> None:
    for name, fields in SET_HERE.items():
        part = getattr(config, name)
        for field in fields:
            if getattr(part, field) != getattr(type(part)(), field):
                raise InputError(f"{name}.{field}: it is set by itself; leave it out.")
    if config.tune.training.seed != type(config.tune.training)().seed:
        raise InputError("tune.training.seed: it is set by itself; give the seed of the whole loop.")
    if config.measure.metrics[0] != FAMILY:
        raise InputError(f"measure.metrics: {config.measure.metrics} must begin with {FAMILY}, which the loop reduces.")
    if config.measure.prompts_file:
        raise InputError("measure.prompts_file: the loop needs prompts to train on besides; give a dataset folder.")
