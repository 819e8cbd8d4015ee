"""A point of a loop or of an ablation: the settings of each of its stages, in the order in which they run.

All settings are made before the first stage runs, so that all are checked first. Equal stages of several points have
the same folder.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.generation_bias.settings import ComparisonSettings
from evenhand.evaluation.model_settings import DecodingSettings
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER, adapter_folder
from evenhand.evaluation.runs.tracking import group_name
from evenhand.evaluation.settings import Access, as_settings
from evenhand.mitigation.methods import Method, TrainedMethod, load_method
from evenhand.recipes.automatic import BEFORE, first_measurement, with_precision
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.received import CODE, SERVER, acting_settings
from evenhand.recipes.settings import FAMILIES, GENERATION_BIAS, Measurement, MeasureSettings, settings_of_methods
from evenhand.recipes.sweep.summary import METHOD
from evenhand.recipes.tuning_settings import LabelSettings, LoopSettings, TuneSettings

log = logging.getLogger("evenhand")

StageSettings = MeasureSettings | LabelSettings | TuneSettings | CompareSettings
Settings = TypeVar("Settings", MeasureSettings, LabelSettings, TuneSettings, CompareSettings)
# Returns the folder of a stage, given its name in the loop, its command and its settings.
StageFolder = Callable[[str, str, StageSettings], Path]


@dataclass(frozen=True)
class Point:
    """The settings of all stages of one experiment: one method with one seed, measured with one decoding.

    Attributes:
        before, after: the measurements of the base model, and of the model that the method makes.
        train, label, tune: the measurement of the responses to label, their labels, and the tuning; None if the method
            trains nothing.
        after_without_tag: the measurement of the tuned model without its control tag, or None.
        base_run: the finished run that `before` is, in place of a stage; None: `before` is a stage.
        must_show_bias: whether the measurement of the base model must show a bias.
        swept: the values of the fields that an ablation varies.
    """

    method: str
    seed: int
    before: MeasureSettings
    train: MeasureSettings | None
    label: LabelSettings | None
    tune: TuneSettings | None
    after: MeasureSettings
    after_without_tag: MeasureSettings | None
    compare: CompareSettings
    must_show_bias: bool
    swept: Mapping[str, object] = field(default_factory=dict)
    base_run: Path | None = None

    @property
    def decoding(self) -> str:
        """The title of the decoding."""
        return self.before.decoding.title()

    @property
    def title(self) -> str:
        """The method, the decoding, the swept settings and the seed, such as "distill, sample, seed 0"."""
        swept = [f"{name} {value}" for name, value in self.swept.items() if name != METHOD]
        return ", ".join([self.method, self.decoding, *swept, f"seed {self.seed}"])

    @property
    def comparison(self) -> Path:
        """The folder of the comparison, which identifies the point."""
        return self.compare.output_dir

    @property
    def stages_by_role(self) -> dict[str, StageSettings]:
        """The settings of all stages by the name of their attribute, in the order in which they run."""
        stages = {
            "before": self.before if self.base_run is None else None,
            "train": self.train,
            "label": self.label,
            "tune": self.tune,
            "after": self.after,
            "after_without_tag": self.after_without_tag,
            "compare": self.compare,
        }
        return {role: stage for role, stage in stages.items() if stage is not None}

    @property
    def stages(self) -> list[StageSettings]:
        """The settings of all stages, in the order in which they run."""
        return list(self.stages_by_role.values())


def plan_points(loop: LoopSettings, name: str, stage_folder: StageFolder) -> list[Point]:
    """Return the points of one method: one for the decoding of the loop, and one for its second decoding.

    All methods share the measurement of the base model and the labels; both decodings share the tuning.
    """
    chosen = with_precision(loop.measure, first_measurement(loop.output_dir, loop.measure.metrics))
    loop = loop.replaced(measure=chosen)
    method = load_method(name, settings_of_methods(loop))
    base = base_measurement(loop.measure)
    planner = _Planner(loop, base, method, stage_folder)
    points = [planner.point(base)]
    other = loop.second_decoding
    if other is not None and planner.can_be_measured_with(other):
        second = base.replaced(decoding=other, capabilities=[])
        points.append(planner.point(second, is_second_decoding=True))
    return points


def base_measurement(measurement: Measurement) -> Measurement:
    """Return a loop's measurement for the base model: without `adapter_strength`, which is of the tuned adapters.

    If the base model is an adapter itself, the strength is of that adapter, and stays.
    """
    model = measurement.model
    if model.adapter_strength is not None and adapter_folder(model.name, model.revision, model.base) is None:
        model = model.replaced(adapter_strength=None)
    return measurement.replaced(model=model)


@dataclass(frozen=True)
class _Planner:
    """Makes the settings of the stages of one method; runs nothing.

    A function with the name of a stage, such as `train`, returns the settings of that stage, with its folder. The
    argument `name` of some of them is the name of the stage in the loop, such as `distill/after`.

    Attributes:
        base: the measurement of the base model.
    """

    loop: LoopSettings
    base: Measurement
    method: Method
    stage_folder: StageFolder

    def point(self, measurement: Measurement, *, is_second_decoding: bool = False) -> Point:
        """Return the point whose models are measured by the settings of `measurement`.

        With the second decoding, there is no finished run of the base model, and nothing is measured without the tag.
        """
        subfolder = "second_decoding/" if is_second_decoding else ""
        of_method = f"{self.method.name}/{subfolder}"
        base_run = None if is_second_decoding else self.loop.base_run
        if base_run is None:
            before = self.measurement(f"{subfolder}{BEFORE}", measurement)
        else:
            values = {**vars(measurement), "seed": self.loop.seed, "output_dir": base_run}
            before = MeasureSettings.model_validate(values)
        train = None
        label = None
        tune = None
        if self.method.training_part is not None:
            train = self.train()
            label = self.label(train)
            tune = self.tune(self.method.training_part, label)
        after = self.after(f"{of_method}after", measurement, tune)
        untagged = None if is_second_decoding else self.after_without_tag(after)
        return Point(
            method=self.method.name,
            seed=self.loop.seed,
            before=before,
            train=train,
            label=label,
            tune=tune,
            after=after,
            after_without_tag=untagged,
            compare=self.compare(f"{of_method}compare", before, after, label, tune, untagged),
            must_show_bias=not self.loop.allow_no_bias,
            base_run=base_run,
        )

    def train(self) -> MeasureSettings:
        """Return the measurement of the responses to label, by the first style classifier alone."""
        family = self.base.generation_bias.replaced(
            second_style_classifier=None,  # it must not influence a label
            outcomes=[],
            permutations=0,
            relevance=False,
        )
        prompts = self.base.prompts.replaced(answers_per_cell=self.loop.train_answers_per_cell, more_answers=None)
        measurement = self.base.with_metrics(GENERATION_BIAS).replaced(
            prompts=prompts, capabilities=[], generation_bias=family, offensive_classifier=None
        )
        return self.measurement("train", measurement, {"split": "train"})

    def label(self, train: MeasureSettings) -> LabelSettings:
        """Return the labelling of the responses of `train`."""
        values = {**vars(self.loop.label), "run": train.output_dir, "trust_remote_code": self.trusts_code()}
        return self.stage("label", "label", LabelSettings.model_validate(values))

    def tune(self, method: TrainedMethod, label: LabelSettings) -> TuneSettings:
        """Return the tuning on the labelled responses.

        Raises:
            InputError: the strength of the adapter is given, and the method changes weights that have none.
        """
        if self.loop.measure.model.adapter_strength is not None and method.tags:
            raise InputError(
                "measure.model.adapter_strength",
                f"{self.method.name} also changes embeddings, which have no strength; omit it.",
            )
        values = {
            **vars(self.loop.tune),
            **settings_of_methods(self.loop, [method.name]),
            "labels": label.output_dir,
            "method": method.name,
            "seed": self.loop.seed,
            "trust_remote_code": self.trusts_code(),
            "servers": self.servers(),
        }
        return self.stage(f"{self.method.name}/tune", "tune", TuneSettings.model_validate(values))

    def after(self, name: str, measurement: Measurement, tune: TuneSettings | None) -> MeasureSettings:
        """Return the measurement of the method's model.

        Relevance is left out: a comparison computes it for the responses of both models, by the base model. If the
        method changes no weights, only families that read answers are measured: the others read the weights, which are
        the base's. The files of a tuned adapter name its base, and the revision of the base.
        """
        measurement = measurement.replaced(generation_bias=measurement.generation_bias.replaced(relevance=False))
        trained = self.method.training_part
        if trained is None or not trained.changes_weights:
            families = {name: FAMILIES[name] for name in measurement.metrics}
            reads_answers = [
                name for name, each in families.items() if each.USES_MODEL and each.NEEDS == Access.ANSWERS
            ]
            measurement = measurement.with_metrics(*reads_answers)
        if tune is not None:
            model = measurement.model.replaced(
                name=str(tune.output_dir / ADAPTER_FOLDER),
                revision=None,
                adapter_strength=self.loop.measure.model.adapter_strength,
            )
            measurement = measurement.replaced(model=model)
        values = {"method": self.method.name, **settings_of_methods(self.loop, [self.method.name])}
        return self.measurement(name, measurement, values)

    def after_without_tag(self, after: MeasureSettings) -> MeasureSettings | None:
        """Return the measurement of the tuned model without its control tag.

        None: the model has no tag, or is its base without the tag.
        """
        trained = self.method.training_part
        if trained is None or not trained.control_tag or not self.loop.measure_without_tag or trained.is_activated:
            return None
        family = after.generation_bias.replaced(control_tag="", permutations=0)
        alone = after.with_metrics(GENERATION_BIAS).replaced(generation_bias=family, capabilities=[])
        return self.stage(f"{self.method.name}/untagged", "measure", alone)

    def compare(
        self,
        name: str,
        before: MeasureSettings,
        after: MeasureSettings,
        label: LabelSettings | None,
        tune: TuneSettings | None,
        untagged: MeasureSettings | None,
    ) -> CompareSettings:
        """Return the comparison of the two measurements.

        It has costs also if a finished first run, which may have been a quick one, has none.
        """
        has_costs = before.generation_bias.relevance or self.loop.base_run is not None
        comparison = CompareSettings(
            before=before.output_dir,
            after=after.output_dir,
            labels=None if label is None else label.output_dir,
            tuning=None if tune is None else tune.output_dir,
            after_without_tag=None if untagged is None else untagged.output_dir,
            generation_bias=ComparisonSettings(relevance=has_costs),
            trust_remote_code=self.trusts_code(),
        )
        return self.stage(name, "compare", comparison)

    def measurement(
        self, name: str, measurement: Measurement, values: Mapping[str, object] | None = None
    ) -> MeasureSettings:
        """Return the settings of `measure` for a measurement, with the loop's seed and `values`."""
        values = {**vars(measurement), "seed": self.loop.seed, **(values or {})}
        return self.stage(name, "measure", MeasureSettings.model_validate(values))

    def stage(self, name: str, command: str, settings: Settings) -> Settings:
        """Return the settings of a stage with the loop's tracker and the folder of the stage."""
        group = group_name(self.loop)
        settings = settings.replaced(report_to=self.loop.report_to, upload=self.loop.upload, group=group)
        return settings.replaced(output_dir=self.stage_folder(name, command, settings))

    def can_be_measured_with(self, decoding: DecodingSettings) -> bool:
        """Return whether the method's model can be asked with a decoding; candidates must be sampled, for example."""
        model = FamilyConfig(decoding=decoding).open_model()
        model.check()
        trained = self.method.training_part
        try:
            if trained is not None:
                trained.check_decoding(model.arguments)
            self.method.measured(model).check()
        except InputError as error:
            log.info("%s is not measured with second_decoding: %s", self.method.name, error)
            return False
        return True

    def trusts_code(self) -> bool:
        """Return whether the base measurement executes code of models; then later stages do, too."""
        return any(name.endswith(CODE) for name in self.acting())

    def servers(self) -> list[str]:
        """Return the servers that the base measurement asks; then later stages ask them, too."""
        return [value for name, value in self.acting().items() if name.endswith(SERVER)]

    def acting(self) -> dict[str, Any]:
        """Return the settings of the base measurement that act, by their dotted names."""
        return dict(acting_settings(as_settings(self.loop.measure)))
