"""The command `loop`: measure, label, tune, measure again and compare, for each method, with one report.

`plan_method` has the stages of one method as settings, so that all settings are checked before the first stage runs.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from peft import LoraConfig

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.files import check_links_inside
from evenhand.evaluation.manifest import FINISHED, run_state
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.prompts import measurement_prompts
from evenhand.evaluation.metrics.generation_bias.settings import ComparisonSettings, measured_model
from evenhand.evaluation.models.checkpoints import check_strength
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER, adapter_folder
from evenhand.evaluation.settings import ClassifierSettings, DecodingSettings, ModelSettings, as_settings
from evenhand.evaluation.store import TRACKERS, claim_pages, has_runs
from evenhand.mitigation.checks import check_tuning, default_methods, with_defaults
from evenhand.mitigation.methods import Method, load_method
from evenhand.recipes.finished_runs import models_with_code
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
OPENING = 4  # tokens of the method `borrowed_opening`, without a setting
CANDIDATES = 4  # candidates of the method `nearest_style`, without a setting


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

    All methods share the measurement of the base model and the labels.
    """
    return _Planner(loop=loop, method=method, kind=load_method(method), stage_folder=stage_folder).plan()


@dataclass
class _Planner:
    """Adds the stages of one method, in the order they run. Each `add_…` returns the folder of its stage."""

    loop: LoopSettings
    method: str
    kind: type[Method]
    stage_folder: StageFolders
    stages: list[Stage] = field(default_factory=list)

    def plan(self) -> Plan:
        """Return the plan of the method."""
        base = base_measurement(self.loop.measure)
        before = self.add_base_measurement("before", base)
        labels = self.add_labels(base, before) if self.kind.needs_labels else None
        tuning = self.add_tuning(labels or before, labels) if self.kind.trainer else None
        points = [self.add_point("", base, before, labels, tuning)]
        other = self.loop.second_decoding
        if other is not None and self.is_measured_with(other):
            measurement = replace(base, decoding=other, capabilities=[])
            before = self.add_base_measurement("second_decoding/before", measurement)
            points.append(self.add_point("second_decoding/", measurement, before, labels, tuning))
        return Plan(self.loop, self.method, self.stages, points)

    def is_measured_with(self, decoding: DecodingSettings) -> bool:
        """Return whether the method can be measured with a decoding; candidates must be sampled."""
        if self.candidates() is None or MeasureConfig(decoding=decoding).open_model().samples:
            return True
        log.info(
            "%s is not measured with second_decoding, which does not sample: all candidates would be equal", self.method
        )
        return False

    def opening(self) -> int | None:
        """Return the number of tokens that answer another person. With a setting, all methods have it."""
        default = OPENING if self.kind.opens else None
        return self.loop.measure.generation_bias.borrowed_opening or default

    def candidates(self) -> int | None:
        """Return the number of candidates to choose a style from. With a setting, all methods have it."""
        default = CANDIDATES if self.kind.exchanges_style else None
        return self.loop.measure.generation_bias.nearest_style or default

    def measured_model(self, base: ModelSettings, tuning: Path | None) -> ModelSettings:
        """Return the settings of the model that the method makes: with its adapter, or with its instruction."""
        model = base
        if self.kind.instruction:
            lines = [model.system_prompt, self.loop.instruction or self.kind.instruction]
            model = replace(model, system_prompt="\n".join(filter(None, lines)))
        if tuning is None:
            return model
        # The adapter's files name its base and the revision of the base.
        strength = self.loop.measure.model.adapter_strength
        return replace(model, name=str(tuning / ADAPTER_FOLDER), revision=None, adapter_strength=strength)

    def add_base_measurement(self, name: str, measurement: Measurement) -> Path:
        """Add the measurement of the base model, once for all methods and settings of methods."""
        return self.add_measurement(name, measurement, [], is_base=True)

    def add_measurement(
        self,
        name: str,
        measurement: Measurement,
        needs: Sequence[Path],
        *,
        split: str = "measure",
        is_base: bool = False,
    ) -> Path:
        """Add a measurement; that of the base model must show a bias, unless the loop allows none."""
        settings = MeasureSettings(**vars(measurement), **self.tracked(), split=split, seed=self.loop.seed)
        must_show_bias = is_base and not self.loop.allow_no_bias
        stage = Stage("measure", settings, must_show_bias=must_show_bias, for_comparisons=is_base)
        return self.add(stage, name, needs)

    def add_labels(self, base: Measurement, before: Path) -> Path:
        """Add the measurement of the responses to label, and their labelling."""
        needs = [] if self.loop.allow_no_bias else [before]
        measurement = _labelled_measurement(base, self.loop.train_answers_per_cell)
        train = self.add_measurement("train", measurement, needs, split="train")
        settings = LabelSettings(**vars(self.loop.label), **self.tracked(), run=train)
        return self.add(Stage("label", settings), "label", [train])

    def add_tuning(self, needed: Path, labels: Path | None) -> Path:
        """Add the tuning of the base model."""
        if self.loop.measure.model.adapter_strength is not None and self.kind.tags:
            raise InputError(
                "measure.model.adapter_strength",
                f"{self.method} also changes embeddings, which have no strength; omit it.",
            )
        settings = TuneSettings(
            **vars(self.loop.tune),
            **self.tracked(),
            labels=labels,
            method=self.method,
            seed=self.loop.seed,
            trust_remote_code=self.trusts_code(),
        )
        return self.add(Stage("tune", settings), f"{self.method}/tune", [needed])

    def add_point(
        self, subfolder: str, measurement: Measurement, before: Path, labels: Path | None, tuning: Path | None
    ) -> Point:
        """Add the measurement of the method's model, perhaps once more without its tag, and the comparison."""
        model = self.measured_model(measurement.model, tuning)
        # A comparison scores the responses of both models by the base; scores by the tuned model are in no report.
        family = replace(
            measurement.generation_bias,
            relevance=False,
            borrowed_opening=self.opening(),
            nearest_style=self.candidates(),
        )
        # Other families use no system prompt, and no responses that could be opened or exchange their style.
        asks_otherwise = model.system_prompt or family.borrowed_opening or family.nearest_style
        metrics = [FAMILY] if asks_otherwise else measurement.metrics
        tuned = replace(measurement.with_metrics(*metrics), model=model, generation_bias=family)
        needs = [tuning or labels or before]
        after = self.add_measurement(f"{self.method}/{subfolder}after", tuned, needs)
        without_tag = None
        if self.kind.inference_tag and self.loop.measure_without_tag and not subfolder:
            family = replace(family, control_tag="", permutations=0)
            alone = replace(tuned.with_metrics(FAMILY), generation_bias=family, capabilities=[])
            without_tag = self.add_measurement(f"{self.method}/untagged", alone, needs)
        folders = {
            "before": before,
            "after": after,
            "labels": labels,
            "tuning": tuning,
            "after_without_tag": without_tag,
        }
        comparison = CompareSettings(
            **folders,
            **self.tracked(),
            generation_bias=ComparisonSettings(relevance=measurement.generation_bias.relevance),
            trust_remote_code=self.trusts_code(),
        )
        needs = [folder for folder in folders.values() if folder is not None]
        folder = self.add(Stage("compare", comparison), f"{self.method}/{subfolder}compare", needs)
        return Point(self.method, self.loop.seed, measurement.decoding.title(), comparison=folder, **folders)

    def add(self, stage: Stage, name: str, needs: Sequence[Path]) -> Path:
        """Add a stage that needs the stages in the folders `needs`; return its folder."""
        folder = self.stage_folder(name, stage.command, stage.settings)
        settings = replace(stage.settings, output_dir=folder)
        self.stages.append(replace(stage, settings=settings, needs=tuple(needs)))
        return folder

    def tracked(self) -> dict[str, Any]:
        """Return the settings of the tracker of every stage."""
        group = self.loop.group or self.loop.output_dir.name
        return {"report_to": self.loop.report_to, "upload": self.loop.upload, "group": group}

    def trusts_code(self) -> bool:
        """Return whether the base measurement executes code of models; then later stages do, too."""
        return bool(models_with_code(as_settings(self.loop.measure)))


def base_measurement(measurement: Measurement) -> Measurement:
    """Return a loop's measurement without the settings that are a method's: strength, opening and candidates.

    A strength is the base model's if that is an adapter itself.
    """
    model = measurement.model
    if model.adapter_strength is not None and adapter_folder(model.name, model.revision, model.base) is None:
        model = replace(model, adapter_strength=None)
    plain = replace(measurement.generation_bias, borrowed_opening=None, nearest_style=None)
    return replace(measurement, model=model, generation_bias=plain)


def _labelled_measurement(measurement: Measurement, answers_per_cell: int) -> Measurement:
    """Return the settings of the measurement whose responses are labelled, by the first style classifier alone."""
    measurement = measurement.with_metrics(FAMILY)
    one_classifier = replace(
        measurement.generation_bias,
        second_style_classifier=None,  # it must not influence a label
        offensiveness=ClassifierSettings(),
        permutations=0,
        relevance=False,
    )
    prompts = replace(measurement.prompts, answers_per_cell=answers_per_cell)
    return replace(measurement, prompts=prompts, capabilities=[], generation_bias=one_classifier)


def run_plans(
    settings: LoopSettings | AblateSettings,
    plans: Sequence[Plan],
    on_finished: Callable[[Point], None] = lambda point: None,
) -> dict[Path, InputError]:
    """Run every stage of the plans once, and call `on_finished` for each finished point.

    A point ends early if a guard rejects its tuned model or the base model shows no bias; the other points continue.

    Returns:
        The error that ended each such point early, by the folder of the point's comparison.
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
    return {comparison: errors[comparison] for comparison in points if comparison in errors}


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
            if settings.model.name == base.name:
                read_inputs(settings, for_comparisons=stage.for_comparisons)
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
