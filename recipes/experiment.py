"""Execution of an experiment: each stage of the plans runs once, as soon as the stages that it needs are finished."""

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from pathlib import Path

from peft import LoraConfig

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.families.generation_bias.collect.expected_work import TRAINING_COST, expected_steps
from evenhand.evaluation.families.generation_bias.settings import check_candidates
from evenhand.evaluation.models.checkpoints import check_strength
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.progress import planned_work, working
from evenhand.evaluation.runs.run_paths import MANIFEST
from evenhand.mitigation.methods import load_trained_method
from evenhand.mitigation.training.checks import check_tuning, with_defaults
from evenhand.recipes.launchers import start_launcher
from evenhand.recipes.plans import Plan, Stage
from evenhand.recipes.preflight import check_exclusions
from evenhand.recipes.settings import FAMILY, Launching, measure_config

log = logging.getLogger("evenhand")

TEMPLATES, DESCRIPTORS, UNKNOWN = 26, 600, 5_000  # prompts of the paper's dataset, and rows of unknown number


def run(
    plans: Sequence[Plan], launching: Launching, on_finished: Callable[[Plan], None] = lambda plan: None
) -> dict[str, str]:
    """Run every stage of the plans once, and call `on_finished` when a plan ends.

    A plan ends early if a guard rejects its tuned model or the base model shows no bias; the other plans continue.

    Returns:
        The reason why each such plan ended early, by the folder of the plan's comparison.

    Raises:
        InputError: a stage has invalid settings (checked before the first stage runs), or a stage fails; see also
            `start_launcher`.
    """
    with working("checking settings"):
        processes.on_rank_zero(lambda: check_stages(plans))
    waiting = {stage.folder: stage for plan in plans for stage in plan.stages}
    started, total = 0, len(waiting)
    unfinished = list(plans)
    finished: set[Path] = set()
    rejected: dict[Path, str] = {}
    max_stages = launching.max_stages()
    with start_launcher(launching) as start, planned_work(expected_costs(waiting.values())):
        running: dict[Future[InputError | None], Stage] = {}
        while waiting or running:
            for stage in list(waiting.values()):
                reasons = [rejected[folder] for folder in stage.needs if folder in rejected]
                if reasons:
                    rejected[stage.folder] = reasons[0]
                    del waiting[stage.folder]
                elif len(running) < max_stages and finished.issuperset(stage.needs):
                    del waiting[stage.folder]
                    started += 1
                    log.info("stage %d of %d: %s → %s", started, total, stage.command, stage.folder)
                    with working(str(stage.folder)):
                        running[start(stage)] = stage
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                stage = running.pop(future)
                error = future.result()
                if isinstance(error, TuningRejected):
                    log.warning("%s: rejected: %s", stage.folder, error)
                    rejected[stage.folder] = str(error)
                elif error:
                    raise error
                else:
                    finished.add(stage.folder)
            rejected |= _reasons_to_stop(plan for plan in unfinished if plan.before in finished)
            for plan in [plan for plan in unfinished if {plan.comparison} & ({*finished} | {*rejected})]:
                unfinished.remove(plan)
                processes.on_rank_zero(partial(on_finished, plan))
            needed = {stage.folder for plan in unfinished for stage in plan.stages}
            waiting = {folder: stage for folder, stage in waiting.items() if folder in needed}
    return {str(plan.comparison): rejected[plan.comparison] for plan in plans if plan.comparison in rejected}


def expected_costs(stages: Iterable[Stage]) -> dict[str, float]:
    """Return the expected time of each unfinished stage as a multiple of the time of one response, by its folder.

    The factors are rough; they only predict the time left of the whole experiment. Responses in a file of the user and
    training rows without a limit count as UNKNOWN rows.
    """
    costs = {}
    for stage in stages:
        settings, cost = stage.settings, 0.0
        if stage.command == "measure":
            cells = TEMPLATES * (settings.prompts.descriptors or DESCRIPTORS)
            n = UNKNOWN if settings.prompts.file else cells * settings.prompts.per_cell
            cost = sum(cost for _, _, cost in expected_steps(measure_config(settings, FAMILY), n))
        elif stage.command == "tune":
            method = load_trained_method(settings.method)
            rows = settings.training.max_rows or method.DEFAULTS.get("max_rows") or UNKNOWN
            cost = TRAINING_COST * method.ROW_COST * rows * (settings.training.epochs or 1)
        if not (stage.folder / MANIFEST).exists():
            costs[str(stage.folder)] = cost
    return costs


def _reasons_to_stop(plans: Iterable[Plan]) -> dict[Path, str]:
    """Return why plans end before tuning, by the folder of the plan's comparison, and log each reason."""
    reasons = {plan.comparison: plan.reason_to_stop() for plan in plans}
    for reason in dict.fromkeys(filter(None, reasons.values())):
        log.warning(reason)
    return {comparison: reason for comparison, reason in reasons.items() if reason}


def check_stages(plans: Iterable[Plan]) -> None:
    """Raise InputError if an unfinished stage would fail, whatever the results of the stages before it are.

    Raises:
        InputError: a decoding, candidates of responses, a style cluster to exclude or a tuning cannot be used.
    """
    checked: set[Path] = set()
    checked_tunings = []  # points of a sweep over labels have equal tunings, and a check takes seconds
    for plan in plans:
        for stage in plan.stages:
            if stage.folder in checked or (stage.folder / MANIFEST).exists():
                continue
            checked.add(stage.folder)
            if stage.command not in ("measure", "label", "tune"):
                continue
            settings, base = stage.settings, measure_config(plan.stages[0].settings, FAMILY)
            if stage.command == "measure":
                decoding(settings.decoding.preset, **settings.decoding.arguments)
                if FAMILY in settings.metrics:
                    check_candidates(settings.generation_bias.resampling, settings.decoding)
            elif stage.command == "label":
                check_exclusions(plan.stages[0].settings, settings)
            else:
                has_strength = any(
                    it.command == "measure" and it.settings.model.adapter_strength is not None for it in plan.stages
                )
                tuning = (base.model, settings.method, settings.training, len(plan.tunings), has_strength)
                if tuning in checked_tunings:
                    continue
                checked_tunings.append(tuning)
                method, model = load_trained_method(settings.method), base.model
                check_tuning(model, method, with_defaults(model, method, settings.training), len(plan.tunings))
                if has_strength:
                    check_strength(LoraConfig(**settings.training.peft), "an adapter with tune.training.peft")
