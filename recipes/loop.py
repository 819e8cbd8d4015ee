"""The command `loop`: measure, label, tune, measure again and compare, for each method, with one report.

`plan_method` has the stages of one method as settings, so that all settings are checked before the first stage runs.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from peft import LoraConfig

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.files import check_links_inside
from evenhand.evaluation.manifest import FINISHED, run_state
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.prompts import measurement_prompts
from evenhand.evaluation.metrics.generation_bias.settings import (
    ComparisonSettings,
    ResamplingSettings,
    measured_model,
)
from evenhand.evaluation.models.checkpoints import check_strength
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER, is_adapter, local_path
from evenhand.evaluation.settings import ClassifierSettings, as_settings
from evenhand.evaluation.store import TRACKERS, claim_pages, has_runs
from evenhand.mitigation.checks import check_tuning, default_methods, with_defaults
from evenhand.mitigation.methods import load_method
from evenhand.recipes.finished_runs import models_with_code
from evenhand.recipes.label import EXPONENTS
from evenhand.recipes.measurement import read_inputs
from evenhand.recipes.settings import (
    FAMILY,
    AblateSettings,
    CompareSettings,
    LabelSettings,
    LoopSettings,
    Measurement,
    MeasureSettings,
    TuneSettings,
    measure_config,
)
from evenhand.recipes.stages import Stage, run_stages
from evenhand.recipes.sweep.points import Point, write_report

log = logging.getLogger("evenhand")

# Returns the folder of a stage, given its name in the loop, its command and its settings.
StageFolders = Callable[[str, str, Any], Path]
OPENING = 4  # tokens of the method `opening`, without a setting


@dataclass(frozen=True)
class Plan:
    """The stages of one method with the settings of a loop, in the order they run, and the points that they make."""

    loop: LoopSettings
    method: str
    stages: Sequence[Stage]
    points: Sequence[Point]


def loop(settings: LoopSettings) -> None:
    """Run every unfinished stage, then write and print the report of all methods side by side.

    Raises:
        InputError: a stage cannot be run, or every method was rejected.
    """
    if settings.methods is None:
        model = measure_config(MeasureSettings(**vars(settings.measure)), FAMILY).model
        settings = replace(settings, methods=processes.on_rank_zero(lambda: default_methods(model)))
        log.info("loop: chosen for this model: methods %s", ",".join(settings.methods))
    plans = [
        plan_method(settings, method, lambda name, command, of_stage: settings.output_dir / name)
        for method in dict.fromkeys(settings.methods)
    ]
    refused = run_plans(settings, plans)
    points = [point for plan in plans for point in plan.points]
    title = "Generation bias before and after tuning"
    processes.on_rank_zero(lambda: write_report(title, settings, points, refused))


def plan_method(loop: LoopSettings, method: str, stage_folder: StageFolders) -> Plan:
    """Return the stages of one method, and its points: one for each decoding.

    All methods share the measurement of the base model and the labels. A method that draws from candidates is measured
    only with decodings that sample.
    """
    module, stages = load_method(method), []
    tracked = {
        "report_to": loop.report_to,
        "log_artifacts": loop.log_artifacts,
        "log_responses": loop.log_responses,
        "group": loop.group or loop.output_dir.name,
    }

    def add(name: str, command: str, cls: type, part: Any, needs: Iterable[Path], **of_run: Any) -> Path:
        of_part = {} if part is None else {field.name: getattr(part, field.name) for field in fields(part)}
        settings = cls(**{**of_part, **tracked, **of_run})
        settings = replace(settings, output_dir=stage_folder(name, command, settings))
        must_show_bias = name.endswith("before") and not loop.allow_no_bias
        stages.append(Stage(command, settings, tuple(needs), must_show_bias))
        return settings.output_dir

    def measure(name: str, part: Measurement, *needs: Path, **of_run: Any) -> Path:
        return add(name, "measure", MeasureSettings, part, needs, seed=loop.seed, show=False, **of_run)

    def measure_before(name: str, part: Measurement) -> Path:
        compared = replace(part.generation_bias, for_comparisons=True)  # once for all methods and settings of methods
        return measure(name, replace(part, generation_bias=compared))

    trust = {"trust_remote_code": bool(models_with_code(as_settings(loop.measure)))}  # then later stages trust it, too
    base, of_methods = base_measurement(loop.measure), loop.measure.generation_bias
    model, before, labels, tuning = base.model, measure_before("before", base), None, None
    needs = (before,)
    if module.instruction:
        instruction = loop.instruction or module.instruction
        model = replace(model, system_prompt="\n".join(filter(None, (model.system_prompt, instruction))))
    if module.needs_labels:
        train = measure(
            "train",
            _labelled_measurement(base, loop.train_per_cell),
            *(() if loop.allow_no_bias else needs),
            split="train",
        )
        labels = add("label", "label", LabelSettings, loop.label, (train,), run=train)
        needs = (labels,)
    if module.trainer:
        of_run = {"labels": labels, "method": method, "seed": loop.seed, **trust}
        tuning = add(f"{method}/tune", "tune", TuneSettings, loop.tune, needs, **of_run)
        needs = (tuning,)
        if (strength := loop.measure.model.adapter_strength) is not None and module.tags:
            raise InputError(
                f"measure.model.adapter_strength: {method} also changes embeddings, which have no strength; omit it."
            )
        # The adapter's files name its base and the revision of the base.
        model = replace(model, name=str(tuning / ADAPTER_FOLDER), revision=None, adapter_strength=strength)

    def compare(subfolder: str, before: Path, measurement: Measurement) -> Point:
        # A comparison scores the responses of both models by the base; scores by the tuned model are in no report.
        unscored, candidates = replace(measurement.generation_bias, relevance=False), of_methods.resampling.candidates
        opening = of_methods.opening or (OPENING if module.opens else None)  # another method can be opened, too
        unscored = replace(unscored, opening=opening)
        if module.exchanges_style:
            unscored = replace(unscored, style_exchange=candidates)
        if module.resamples:
            exponents = labels / f"{EXPONENTS}.parquet"
            unscored = replace(unscored, resampling=ResamplingSettings(exponents=exponents, candidates=candidates))
        # Other families use no system prompt, and no responses that could be opened or resampled.
        asks_otherwise = model.system_prompt or opening or module.resamples or module.exchanges_style
        metrics = [FAMILY] if asks_otherwise else measurement.metrics
        tuned = replace(measurement.with_metrics(*metrics), model=model, generation_bias=unscored)
        after, without_tag = measure(f"{method}/{subfolder}after", tuned, *needs), None
        if module.inference_tag and loop.measure_without_tag and not subfolder:
            unscored = replace(unscored, control_tag="", permutations=0)
            alone = replace(tuned.with_metrics(FAMILY), generation_bias=unscored, capabilities=[])
            without_tag = measure(f"{method}/untagged", alone, *needs)
        folders = {"before": before, "after": after, "labels": labels, "tuning": tuning}
        folders["after_without_tag"] = without_tag
        comparison = add(
            *(f"{method}/{subfolder}compare", "compare", CompareSettings, None, filter(None, folders.values())),
            **folders,
            **trust,
            generation_bias=ComparisonSettings(relevance=measurement.generation_bias.relevance),
            show=False,
        )
        return Point(method, loop.seed, measurement.decoding.title(), comparison=comparison, **folders)

    points, other = [compare("", before, base)], loop.second_decoding
    if (
        other is not None
        and (module.resamples or module.exchanges_style)
        and not MeasureConfig(decoding=other).open_model().samples
    ):
        log.info(f"{method} is not measured with second_decoding, which does not sample: all candidates would be equal")
    elif other is not None:
        measurement = replace(base, decoding=other, capabilities=[])
        points.append(compare("second_decoding/", measure_before("second_decoding/before", measurement), measurement))
    return Plan(loop, method, stages, points)


def base_measurement(measurement: Measurement) -> Measurement:
    """Return a loop's measurement without the settings that are a method's: its adapter's strength, its candidates.

    A strength is the base model's if that is an adapter itself.
    """
    model = measurement.model
    if model.adapter_strength is not None and not is_adapter(local_path(model.name)):
        model = replace(model, adapter_strength=None)
    plain = replace(measurement.generation_bias, opening=None, resampling=ResamplingSettings())
    return replace(measurement, model=model, generation_bias=plain)


def _labelled_measurement(measurement: Measurement, per_cell: int) -> Measurement:
    """Return the settings of the measurement whose responses are labelled, by the first style classifier alone."""
    measurement = measurement.with_metrics(FAMILY)
    one_classifier = replace(
        measurement.generation_bias,
        second_style_classifier=None,  # it must not influence a label
        offensiveness=ClassifierSettings(),
        permutations=0,
        relevance=False,
    )
    prompts = replace(measurement.prompts, per_cell=per_cell)
    return replace(measurement, prompts=prompts, capabilities=[], generation_bias=one_classifier)


def run_plans(
    settings: LoopSettings | AblateSettings,
    plans: Sequence[Plan],
    on_finished: Callable[[Point], None] = lambda point: None,
) -> dict[Path, str]:
    """Run every stage of the plans once, and call `on_finished` for each finished point.

    A point ends early if a guard rejects its tuned model or the base model shows no bias; the other points continue.

    Returns:
        The reason why each such point ended early, by the folder of the point's comparison.
    """
    folder = settings.output_dir
    command = "loop" if isinstance(settings, LoopSettings) else "ablate"
    processes.on_rank_zero(lambda: check_plans(folder, plans))
    processes.on_rank_zero(lambda: claim_pages(folder, command, lambda: has_runs(folder)))
    stages = {stage.folder: stage for plan in plans for stage in plan.stages}
    numbered = [replace(stage, number=f"{i} of {len(stages)}") for i, stage in enumerate(stages.values(), 1)]
    points = {point.comparison: point for plan in plans for point in plan.points}
    errors: dict[Path, InputError] = {}
    for stage, error in run_stages(numbered, settings):
        if error is None and stage.folder in points:
            processes.on_rank_zero(lambda point=points[stage.folder]: on_finished(point))
        elif error is not None:
            if str(error) not in map(str, errors.values()):
                log.warning("%s: %s", stage.folder, error)
            errors[stage.folder] = error
            if processes.world_size() > 1 and not isinstance(error, TuningRejected):
                raise error  # the other processes may not have this error, and would wait
    if failed := next((error for error in errors.values() if not isinstance(error, TuningRejected)), None):
        raise failed
    return {comparison: str(errors[comparison]) for comparison in points if comparison in errors}


def check_plans(folder: Path, plans: Sequence[Plan]) -> None:
    """Check the settings and inputs of all unfinished stages, as far as that is possible before the first stage."""
    stages = {stage.folder: (stage, plan) for plan in plans for stage in plan.stages}
    checked: list[Any] = []
    for path, (stage, plan) in stages.items():
        check_links_inside(path, "output_dir", within=folder, leave_out=TRACKERS)
        settings, strength = stage.settings, plan.loop.measure.model.adapter_strength
        base = base_measurement(plan.loop.measure).model
        if run_state(path) == FINISHED:
            continue
        if stage.command == "measure":
            config = measure_config(settings, FAMILY)
            measured_model(config).check()
            if settings.model.name == base.name and settings.generation_bias.resampling.exponents is None:
                read_inputs(settings)
                if settings.split == "train":  # the other measurements have the same descriptors
                    measurement_prompts(config)
        elif stage.command == "tune":
            key = base, plan.method, settings.training, strength is None
            if key in checked:
                continue
            checked.append(key)
            method = load_method(plan.method)
            training = with_defaults(base, method, settings.training)
            check_tuning(base, method, training)
            if strength is not None:
                check_strength(LoraConfig(**training.peft), "an adapter with tune.training.peft")
