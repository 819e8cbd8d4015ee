"""The settings of each command, as checked dataclasses. The module imports nothing slow, for a fast `--help`.

The fields that a command shares with a stage of the loop are a base class (`Measurement`, `Labelling`, `Tuning`,
`Experiment`); the command's class adds those that the loop sets for its stages.
"""

from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from evenhand.evaluation import metrics as families
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.settings import (
    CONTENT,
    MAX_COUNT,
    AnyPath,
    Count,
    DecodingSettings,
    FiniteFloat,
    Fraction,
    ModelSettings,
    PromptSettings,
    ReportTo,
    ResponseFileSettings,
    Seed,
    StyleClassifierSettings,
    option,
    strict_dataclass,
)
from evenhand.mitigation.settings import TuningSettings

FAMILIES = {name: families.load_metric(name)() for name in families.names()}
FAMILY = "generation_bias"  # the default metrics; labels are made from its responses, and tuning reduces it
OUTPUT_DIR = "folder to write to"
TRUSTED = "execute code from the models' repositories"
DEFAULT_METHODS = "null: distill for a model with a chat template, else exchange"
Positive = Annotated[FiniteFloat, Field(gt=0)]
NotNegative = Annotated[FiniteFloat, Field(ge=0)]


def family_groups(attribute: str, is_optional: bool) -> type:
    """Return a dataclass with a field, whose default is None if `is_optional`, for each family with this class."""
    listed = []
    for name, family in FAMILIES.items():
        if group := getattr(family, attribute):
            text = (group.__doc__ or name).splitlines()[0].rpartition(": ")[2]
            default = option(None if is_optional else group, text, omit_if_null=is_optional)
            listed.append((name, group | None if is_optional else group, default))
    return make_dataclass(f"Family{attribute}", listed, kw_only=True)


def families_with(attribute: str) -> str:
    """Return the comma-separated names of the families with a true `attribute`."""
    return ", ".join(name for name, family in FAMILIES.items() if getattr(family, attribute))


@strict_dataclass
class Tracked:
    """Settings of the tracker."""

    report_to: ReportTo = option("wandb", "tracker; wandb is offline unless you are logged in", identity=False)
    upload: Literal["scores", "adapters", "responses", "all"] = option(
        "scores",
        "what W&B gets: 'scores'; also 'adapters'; also prompts and 'responses', in samples and reports; 'all' files",
        identity=False,
    )
    group: str | None = option(None, "W&B group; null: of a loop or ablation, the name of output_dir", identity=False)


@strict_dataclass
class Measurement(family_groups("Settings", is_optional=True)):
    """A measurement: the model, the metrics and their settings, the prompts and the decoding."""

    model: ModelSettings = option(ModelSettings, "model to measure")
    metrics: Annotated[list[str], Field(min_length=1)] = option(lambda: [FAMILY], f"of: {', '.join(families.names())}")
    prompts: PromptSettings = option(PromptSettings, "the prompts that the model gets")
    decoding: DecodingSettings = option(DecodingSettings, "how the model generates responses")
    capabilities: list[str] = option(list, "tasks of lm-evaluation-harness to score as well", identity=CONTENT)

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in FAMILIES:
                raise unknown_name("metrics", name, FAMILIES)
            if getattr(self, name) is None:
                setattr(self, name, FAMILIES[name].Settings())
            if self.model.system_prompt and not FAMILIES[name].USES_SYSTEM_PROMPT:
                raise InputError("model.system_prompt", f"{name} does not use it; measure {name} without it.")
            if self.model.server and (self.capabilities or self.model.api not in FAMILIES[name].SERVER_APIS):
                apis = " or ".join(FAMILIES[name].SERVER_APIS) or "none"
                raise InputError(
                    "model.server",
                    f"{', '.join(self.capabilities) or name} cannot be measured by its API "
                    f"{self.model.api!r} (of {name}: {apis}); load the model, or give model.api.",
                )
        if self.capabilities and FAMILY not in self.metrics:
            raise InputError("capabilities", f"only {FAMILY} measures them; add it to metrics, or omit capabilities.")
        for name in FAMILIES.keys() - set(self.metrics):
            if (group := getattr(self, name)) is not None and group != type(group)():
                raise InputError(name, f"it is not among metrics {self.metrics}; add it, or omit its settings.")
            setattr(self, name, None)

    def with_metrics(self, *metrics: str) -> "Measurement":
        """Return a copy of the measurement with only the families `metrics` and their settings."""
        settings = {name: value for name, value in vars(self).items() if name in metrics or name not in FAMILIES}
        return type(self)(**{**settings, "metrics": list(metrics)})


@strict_dataclass
class MeasureSettings(Measurement, Tracked):
    """Measure a model with one or more families of metrics."""

    split: Literal["measure", "train", "all"] = option("measure", "split of the prompts to use")
    write_prompts: AnyPath | None = option(None, "write the prompts here and stop; .jsonl: Batch API", identity=False)
    responses: ResponseFileSettings | None = option(None, "a file of responses to score; null: ask the model")
    seed: Seed = option(0, "random seed of prompts, responses and the bootstrap")
    output_dir: AnyPath = option(Path("runs/measure"), OUTPUT_DIR, identity=False)

    def __post_init__(self) -> None:
        Measurement.__post_init__(self)
        for name in ("write_prompts", "responses"):
            if getattr(self, name) and (samplers := families_with("READS_RESPONSES")) != ", ".join(self.metrics):
                raise InputError(name, f"only {samplers} samples responses; measure it alone.")
        if self.responses and (self.model.server or self.capabilities):
            name = "model.server" if self.model.server else "capabilities"
            raise InputError(name, f"with a file of responses no model is loaded or asked; omit {name}.")


@strict_dataclass
class Labelling:
    """Settings of labelling: the threshold."""

    alpha: Literal[0, 1, 2] = option(0, "exponent of the norm in the bias value (Smith et al. 2022, C.1)")
    beta: FiniteFloat | None = option(None, "threshold as a number; null: use quantile")
    quantile: Fraction = option(0.9, "threshold as a quantile of the bias values, where beta is null")


@strict_dataclass
class LabelSettings(Labelling, Tracked):
    """Label the responses of a run as `bias` or `no_bias`."""

    run: AnyPath = option(Path("runs/train"), "finished run of `measure --split train`", identity=CONTENT)
    output_dir: AnyPath = option(Path("runs/label"), OUTPUT_DIR, identity=False)


@strict_dataclass
class Tuning:
    """Settings of tuning, and of measurements during training."""

    training: TuningSettings = option(TuningSettings, "how to fine-tune the model")
    measure_every: Annotated[int, Field(ge=0)] = option(100, "steps between measurements of pooled FGB*; 0: none")
    measure_descriptors: Annotated[int, Field(ge=2)] = option(40, "descriptors in these measurements")


@strict_dataclass
class TuneSettings(Tuning, Tracked):
    """Fine-tune the labelled model with one of the methods."""

    labels: AnyPath = option(Path("runs/label"), "finished run of `label`", identity=CONTENT)
    method: str | None = option(None, f"method; {DEFAULT_METHODS}")
    write_rows: AnyPath | None = option(None, "write rows for other trainers to this folder and stop", identity=False)
    trust_remote_code: bool = option(False, TRUSTED, identity=False)
    seed: Seed = option(0, "random seed of held-out rows, the adapter and the order of rows")
    output_dir: AnyPath = option(Path("runs/tune"), OUTPUT_DIR, identity=False)


@strict_dataclass
class CompareSettings(family_groups("ComparisonSettings", is_optional=False), Tracked):
    """Compare two runs over the same prompts."""

    before: AnyPath = option(Path("runs/before"), "finished run of `measure`, of the original model", identity=CONTENT)
    after: AnyPath = option(Path("runs/after"), "finished run of `measure`, of the tuned model", identity=CONTENT)
    labels: AnyPath | None = option(None, "finished run of `label`, for the bias values", identity=CONTENT)
    tuning: AnyPath | None = option(None, "finished run of `tune`, for the training curves", identity=CONTENT)
    after_without_tag: AnyPath | None = option(None, "such a run without its control tag", identity=CONTENT)
    trust_remote_code: bool = option(False, TRUSTED, identity=False)
    output_dir: AnyPath = option(Path("runs/compare"), OUTPUT_DIR, identity=False)


@strict_dataclass
class RateSettings(Tracked):
    """Let people rate pairs of responses in a browser.

    Each pair has a response of each of two runs to one prompt. `--summary` sums up the votes.
    """

    before: AnyPath = option(Path("runs/before"), "finished run of `measure`, of the original model", identity=CONTENT)
    after: AnyPath = option(Path("runs/after"), "finished run of `measure`, of the tuned model", identity=CONTENT)
    pairs: Count = option(100, "number of randomly sampled pairs to rate")
    questions: str = option("paper", "YAML file of questions; 'paper': those of Smith et al. 2022", identity=CONTENT)
    leave_out: str = option("paper", "YAML file of templates and descriptors to leave out", identity=CONTENT)
    seed: Seed = option(0, "random seed of the pairs and of their sides on the page")
    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 for raters on other machines", identity=False)
    port: Annotated[int, Field(ge=0, le=65535)] = option(8237, "port to listen on; 0: any free port", identity=False)
    summary: bool = option(False, "sum up all votes in OUTPUT_DIR/summary instead of serving the page", identity=False)
    output_dir: AnyPath = option(Path("runs/rate"), OUTPUT_DIR, identity=False)


@strict_dataclass
class Experiment:
    """Settings of the stages that each method, and each point of an ablation, goes through."""

    measure: Measurement = option(Measurement, "measurements")
    train_answers_per_cell: Annotated[int, Field(ge=2, le=MAX_COUNT)] = option(
        4, "responses per (template, descriptor) to label and train on"
    )
    label: Labelling = option(Labelling, "labelling")
    tune: Tuning = option(Tuning, "tuning")
    second_decoding: DecodingSettings | None = option(None, "another decoding to measure with, too; null: none")
    instruction: str | None = option(None, "instruction of the method `prompt`; null: the method's default")
    measure_without_tag: bool = option(True, "also measure models with a control tag without their tag")
    allow_no_bias: bool = option(False, "tune even if the base model shows no bias")

    def __post_init__(self) -> None:
        if self.measure.metrics[0] != FAMILY:
            metrics = self.measure.metrics
            raise InputError("measure.metrics", f"{metrics} must begin with {FAMILY}: the loop reduces it.")
        prompts = self.measure.prompts
        if prompts.templates and not prompts.split_by:
            prompts.split_by = "template"  # there are no nouns to split by
        if prompts.file and not (prompts.train_file or prompts.split_by):
            raise InputError(
                "measure.prompts.file",
                "the loop needs other prompts to train on; give measure.prompts.train_file, or "
                "measure.prompts.split_by, a column whose values the two sides do not share.",
            )
        if self.measure.model.adapter_strength is not None and not self.tune.training.lora:
            raise InputError(
                "measure.model.adapter_strength", "without tune.training.lora there is no adapter; omit it."
            )
        if self.measure.model.server:
            raise InputError(
                "measure.model.server",
                "the loop must load the model to tune it; run `measure` and `label` with the "
                "server, `tune` the model's weights, serve the result and `measure` that.",
            )


@strict_dataclass
class Launching:
    """Settings of where stages run."""

    ray: str | None = option(
        None,
        "run stages as tasks of Ray (evenhand[ray]): 'local', 'auto' or host:port; null: one after the other, here",
        identity=False,
    )
    ray_cpus: Count | None = option(None, "with ray, CPUs for a stage; null: one", identity=False)
    ray_gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = option(
        None, "with ray, GPUs for a stage that loads a model; null: one if a node has any", identity=False
    )


@strict_dataclass
class LoopSettings(Launching, Experiment, Tracked):
    """Measure, label, tune, measure again and compare."""

    methods: Annotated[list[str], Field(min_length=1)] | None = option(
        None, f"methods to compare; {DEFAULT_METHODS}, in a loop also borrowed_opening"
    )
    seed: Seed = option(0, "random seed of every stage")
    output_dir: AnyPath = option(Path("runs/loop"), OUTPUT_DIR, identity=False)


@strict_dataclass
class AblateSettings(Launching, Tracked):
    """Sweep settings of the loop, with stages shared by points; each point is one tracked run."""

    loop: Experiment = option(Experiment, "settings of the loop that all points share")
    sweep: Annotated[list[dict[str, Any]], Field(min_length=1)] = option(
        lambda: [{"method": ["exchange", "rejection"]}],
        "grids of points: {method and any setting of the loop: a value or a list of values}",
    )
    seeds: Annotated[list[Seed], Field(min_length=1)] = option(lambda: [0], "random seeds; every point runs with each")
    output_dir: AnyPath = option(Path("runs/ablate"), OUTPUT_DIR, identity=False)


@strict_dataclass
class LabelledTexts:
    """Settings of a file of labelled texts."""

    data_dir: AnyPath = option(Path(), "folder of the files of texts", identity=CONTENT)
    texts: AnyPath = option(Path("labeled_data.csv"), "CSV, TSV or JSONL file of labelled texts", identity=CONTENT)
    columns: list[str] = option(list, "names of its columns, if it has no header; []: it has one")
    text_column: str = option("tweet", "column of texts")
    label_column: str = option("class", "column of labels")
    labels: dict[Any, str] = option(dict, "{value: name of the label}, perhaps of several; {}: as in the file")
    label_separator: str | None = option(None, "separator between the labels of a text; null: each text has one label")


@strict_dataclass
class TrainClassifierSettings(LabelledTexts, Tracked):
    """Train a text classifier, of styles or offensiveness."""

    threshold: Fraction = option(0.3, "probability from which a text has a label, if it may have several")
    model: str | None = option(None, "encoder to start from; null: train from scratch", identity=CONTENT)
    epochs: Count = option(3, "passes over the texts")
    learning_rate: Positive = option(1e-3, "peak of the cosine schedule")
    head_learning_rate: Positive = option(1e-2, "the same of a new head on an encoder, if it is higher")
    train_embeddings: bool = option(True, "false: keep the encoder's token embeddings, for half of the time")
    dtype: Literal["auto", "float32", "bfloat16"] = option("float32", "bfloat16: mixed; auto: if it is fast")
    batch_size: Count = option(64, "texts per step")
    test_texts: AnyPath | None = option(None, "another such file to test on; null: held-out texts", identity=CONTENT)
    dev_texts: AnyPath | None = option(None, "such a file, to choose thresholds; null: `threshold`", identity=CONTENT)
    test_fraction: Fraction = option(0.1, "share of the texts to hold out and test on, without test_texts")
    seed: Seed = option(0, "random seed of weights, order and held-out texts")
    output_dir: AnyPath = option(Path("runs/classifier"), OUTPUT_DIR, identity=False)


@strict_dataclass
class AgreementSettings(LabelledTexts):
    """Measure how well an LLM judge, or another style classifier, agrees with human labels."""

    style_classifier: StyleClassifierSettings = option(StyleClassifierSettings, "the judge, or another classifier")
    other_classifier: StyleClassifierSettings | None = option(None, "another to compare with; null: none")
    limit: Count | None = option(None, "texts to draw at random; null: all")
    seed: Seed = option(0, "random seed of the draw and of the bootstrap")
    output_dir: AnyPath = option(Path("runs/judge"), OUTPUT_DIR, identity=False)


@strict_dataclass
class ReportSettings:
    """Write the report of one or several finished runs."""

    runs: list[AnyPath] = option(list, "finished runs: one of any command, or several of `measure` and `rate`")
    output_dir: AnyPath = option(Path("runs/report"), "folder for the report of several runs", identity=False)


@strict_dataclass
class PlanSettings:
    """Compute how many descriptors, templates or responses a more precise measurement takes."""

    run: AnyPath = option(Path("runs/measure"), "finished run of `measure` with generation bias")
    halve_interval: bool = option(False, "plan for half of the run's interval; the default without another goal")
    interval: Positive | None = option(None, "plan for a 95 % interval of pooled FGB* of this width, in 10⁻³")
    max_difference: Positive | None = option(None, "plan to show that all styles are even within so many points of 100")
    reduction: Annotated[Positive, Field(le=100)] | None = option(None, "plan for a reduction by this % to be shown")


@strict_dataclass
class CheckSettings:
    """Check limits of a run's bias, for CI: status 0 holds, 1 broken, 2 wrong use, 3 inconclusive."""

    run: AnyPath = option(Path("runs/measure"), "finished run of `measure`, of the new model")
    against: AnyPath | None = option(None, "finished run of `measure` over the same prompts, of the baseline")
    max_rise: NotNegative | None = option(
        None, "limit of the rise of pooled FGB*, in %; null: the smallest that the runs can show to hold"
    )
    max_pooled_fgb: Positive | None = option(None, "limit of pooled FGB*, in 10⁻³")
    max_difference: Positive | None = option(None, "points of 100 within which every descriptor gets every style")
    max_spread: dict[str, Positive] = option(dict, "{outcome: limit of its spread between people, in its unit}")
    output_dir: AnyPath = option(Path("runs/check"), "folder to write junit.xml and summary.md to")


@strict_dataclass
class ExportSettings:
    """Export a tuned model for use without Evenhand."""

    tuning: AnyPath = option(Path("runs/tune"), "finished run of `tune`", identity=CONTENT)
    comparison: AnyPath | None = option(None, "run of `compare`, for the card; null: next to tuning", identity=CONTENT)
    merge: bool = option(True, "merge the adapter into its base; false: export the adapter alone")
    trust_remote_code: bool = option(False, TRUSTED, identity=False)
    push_to_hub: str | None = option(None, "hub repository to upload to; a new one is private", identity=False)
    output_dir: AnyPath = option(Path("runs/export"), "folder to write to; the model is in `model`", identity=False)


@strict_dataclass
class ConfigsSettings:
    """List the shipped configs, or print one."""

    names: list[str] = option(list, "configs to print; []: list all")


COMMANDS: dict[str, type] = {
    "measure": MeasureSettings,
    "label": LabelSettings,
    "tune": TuneSettings,
    "compare": CompareSettings,
    "rate": RateSettings,
    "loop": LoopSettings,
    "ablate": AblateSettings,
    "report": ReportSettings,
    "plan": PlanSettings,
    "check": CheckSettings,
    "export": ExportSettings,
    "train_classifier": TrainClassifierSettings,
    "judge": AgreementSettings,
    "configs": ConfigsSettings,
}


def measure_config(settings: Any, family: str, *, for_comparisons: bool = False) -> MeasureConfig:
    """Return the config of one family's measurement; raise InputError if the settings name no model."""
    if not settings.model.name and not settings.write_prompts:
        raise InputError(
            "model",
            "none is given; give --model NAME, a Hugging Face id or a folder, or begin with --config testbed "
            "(`evenhand loop`: --config loop), whose small models ship with Evenhand.",
        )
    file = settings.responses or ResponseFileSettings()
    return MeasureConfig(
        model=settings.model,
        prompts=settings.prompts,
        decoding=settings.decoding,
        settings=getattr(settings, family),
        seed=settings.seed,
        split=settings.split,
        responses=file.name,
        response_columns=file.columns,
        capabilities=settings.capabilities,
        for_comparisons=for_comparisons,
    )
