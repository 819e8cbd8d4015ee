"""The settings of labelling, tuning, the loop and sweeps. The module imports nothing slow, for a fast `--help`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import CliPositionalArg

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import DecodingSettings
from evenhand.evaluation.models.kinds import model_kind
from evenhand.evaluation.settings import (
    BY_CONTENT,
    MAX_COUNT,
    NOT_COMPARED,
    WITHOUT_FLAG,
    Access,
    Count,
    FiniteFloat,
    Fraction,
    NotNegative,
    Seed,
    StrictSettings,
)
from evenhand.mitigation.settings import TuningSettings
from evenhand.recipes.settings import (
    GENERATION_BIAS,
    MODEL_IN_PATH,
    Measurement,
    MethodGroups,
    OutputDir,
    OutputDirOfModel,
    Servers,
    Tracked,
    Trust,
)

if TYPE_CHECKING:  # slow to import
    pass
DEFAULT_METHODS = "null: distill for a model with a chat template, else exchange"


class Labelling(StrictSettings):
    """Settings of labelling: the value of a response, and the threshold above which it is labelled `bias`."""

    value: Literal["bias_value", "divergence"] = Field(
        default="bias_value",
        description="what is compared with the threshold: bias_value, of the response's style (Smith et al. 2022, "
        "C.1); divergence, how much the predictions of its first tokens depend on who asks, in nats, by the "
        "model that responded",
    )
    directions: Literal["raw", "shrunk"] = Field(
        default="raw", description="directions of bias values: as measured, or shrunk against noise (James–Stein)"
    )
    alpha: Annotated[int, Field(ge=0, le=2)] = Field(
        default=0, description="exponent of the norm in the bias value (Smith et al. 2022, C.1)"
    )
    beta: FiniteFloat | None = Field(default=None, description="threshold as a number; null: use share or quantile")
    share: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="threshold by the share of responses above it, 0 to 1; null: use quantile"
    )
    quantile: Fraction = Field(
        default=0.9, description="threshold as a quantile of the values, where beta and share are null"
    )

    @model_validator(mode="after")
    def _check_threshold(self) -> Self:
        if self.beta is not None and self.share is not None:
            raise InputError("share", f"{self.share:g}, and beta {self.beta:g}; give one of them.")
        return self


class LabelSettings(Labelling, Tracked):
    """Label the responses of a run as `bias` or `no_bias`."""

    run: CliPositionalArg[Path] = Field(
        default=Path("runs/train"), description="finished run of `measure --split train`", json_schema_extra=BY_CONTENT
    )
    trust_remote_code: Trust = False
    output_dir: OutputDir = Path("runs/label")


class Tuning(StrictSettings):
    """Settings of tuning, and of measurements during training."""

    training: TuningSettings = Field(default_factory=TuningSettings, description="how to fine-tune the model")
    measure_every: Annotated[int, Field(ge=0)] = Field(
        default=100, description="steps between measurements of pooled FGB*; 0: none"
    )
    measure_descriptors: Annotated[int, Field(ge=2)] = Field(
        default=20, description="number of descriptors in measurements during training"
    )


class TuneSettings(Tuning, Tracked, MethodGroups):
    """Fine-tune the labelled model with one of the methods."""

    labels: CliPositionalArg[Path] = Field(
        default=Path("runs/label"), description="finished run of `label`", json_schema_extra=BY_CONTENT
    )
    method: str | None = Field(default=None, description=f"method; {DEFAULT_METHODS}")
    write_rows: Path | None = Field(
        default=None,
        description="write rows for other trainers to this folder and stop",
        json_schema_extra=NOT_COMPARED,
    )
    trust_remote_code: Trust = False
    servers: Servers = Field(default_factory=list)
    seed: Seed = Field(default=0, description="random seed of held-out rows, the adapter and the order of rows")
    output_dir: OutputDir = Path("runs/tune")


class Experiment(MethodGroups):
    """Settings of the stages that each method, and each point of an ablation, goes through."""

    measure: Measurement = Field(default_factory=Measurement, description="how the model is measured")
    train_answers_per_cell: Annotated[int, Field(ge=2, le=MAX_COUNT)] = Field(
        default=4, description="responses per (template, descriptor) to label and train on"
    )
    label: Labelling = Field(default_factory=Labelling, description="how responses are labelled")
    tune: Tuning = Field(default_factory=Tuning, description="how the model is tuned")
    second_decoding: DecodingSettings | None = Field(
        default=None, description="second decoding to measure with; null: none"
    )
    measure_without_tag: bool = Field(
        default=True, description="also measure models with a control tag without their tag"
    )
    allow_no_bias: bool = Field(default=False, description="tune even if the base model shows no bias")

    @model_validator(mode="after")
    def _check_experiment(self) -> Self:
        if self.measure.metrics[0] != GENERATION_BIAS:
            metrics = self.measure.metrics
            raise InputError("measure.metrics", f"{metrics} must begin with {GENERATION_BIAS}: the loop reduces it.")
        prompts = self.measure.prompts
        if prompts.people and not prompts.split_by:
            prompts.split_by = "template"  # there are no nouns to split by
        if prompts.file and not (prompts.train_file or prompts.split_by):
            raise InputError(
                "measure.prompts.dataset",
                "the loop needs other prompts to train on; give measure.prompts.train_file, or "
                "measure.prompts.split_by, a column whose values the two sides do not share.",
            )
        if self.measure.model.adapter_strength is not None and not self.tune.training.lora:
            raise InputError(
                "measure.model.adapter_strength", "without tune.training.lora there is no adapter; omit it."
            )
        kind = model_kind(self.measure.model)
        if Access.WEIGHTS not in kind.access(self.measure.model):
            raise InputError(
                f"measure.{kind.SETTING}",
                "the loop must load the model to tune it; run `measure` and `label` with "
                "this, `tune` the model's weights, serve the result and `measure` that.",
            )
        return self


class Launching(StrictSettings):
    """Settings of where stages run."""

    ray: str | None = Field(
        default=None,
        description="run stages as tasks of Ray (evenhand[ray]): 'local', 'auto' or host:port; null: one after the "
        "other, here",
        json_schema_extra=NOT_COMPARED,
    )
    ray_cpus: Count | None = Field(
        default=None, description="with ray, CPUs for a stage; null: one", json_schema_extra=NOT_COMPARED
    )
    ray_gpus: NotNegative | None = Field(
        default=None,
        description="with ray, GPUs for a stage that loads a model; null: one if a node has any",
        json_schema_extra=NOT_COMPARED,
    )


class LoopSettings(Launching, Experiment, Tracked):
    """Measure, label, tune, measure again and compare."""

    methods: Annotated[list[str], Field(min_length=1)] | None = Field(
        default=None, description=f"methods to compare; {DEFAULT_METHODS}, in a loop also borrowed_opening"
    )
    base_run: Path | None = Field(
        default=None,
        description="finished run of `measure` to go on from: its settings, and its measurement of the base model; "
        "`loop RUN` is short for it",
        json_schema_extra=WITHOUT_FLAG,
    )
    servers: Servers = Field(default_factory=list)
    seed: Seed = Field(default=0, description="random seed of every stage")
    output_dir: OutputDirOfModel = Path(f"runs/{MODEL_IN_PATH}-loop")


class AblateSettings(Launching, Tracked):
    """Sweep settings of the loop, with stages shared by points; each point is one tracked run."""

    loop: Experiment = Field(default_factory=Experiment, description="settings of the loop that all points share")
    sweep: Annotated[list[dict[str, Any]], Field(min_length=1)] = Field(
        default_factory=lambda: [{"method": ["exchange", "rejection"]}],
        description="grids of points: {method and any setting of the loop: a value or a list of values}",
    )
    seeds: Annotated[list[Seed], Field(min_length=1)] = Field(
        default_factory=lambda: [0], description="random seeds; every point runs with each"
    )
    output_dir: OutputDir = Path("runs/ablate")
