"""The settings of each command, as pydantic models. The module imports nothing slow, for a fast `--help`.

The fields that a command shares with a stage of the loop are a base class (`Measurement`, `Labelling`, `Tuning`,
`Experiment`); the command's class adds the settings that the loop sets for its stages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, create_model, model_validator
from pydantic_settings import CliPositionalArg

from evenhand.evaluation import metrics as families
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.model_settings import (
    Access,
    DecodingSettings,
    ModelSettings,
    OffensiveClassifierSettings,
    ResponseFileSettings,
    StyleClassifierSettings,
)
from evenhand.evaluation.models.kinds import has_weights, model_kind
from evenhand.evaluation.prompt_settings import PromptSettings, ReferenceSettings, SentenceSettings
from evenhand.evaluation.settings import (
    BY_CONTENT,
    MAX_COUNT,
    NOT_COMPARED,
    WITHOUT_FLAG,
    Count,
    FiniteFloat,
    Fraction,
    NotNegative,
    Positive,
    Seed,
    StrictSettings,
    group_of,
)
from evenhand.mitigation import methods
from evenhand.mitigation.methods import NoSettings, load_method, method_class
from evenhand.mitigation.settings import TuningSettings
from evenhand.recipes.configs import command_of, shipped

if TYPE_CHECKING:  # slow to import
    from evenhand.evaluation.data.readers.labelled_texts import LabelledTexts

FAMILIES = {name: families.load_family(name)() for name in families.names()}
GENERATION_BIAS = "generation_bias"  # the default metrics; labels are made from its responses, and tuning reduces it
MODEL_IN_PATH = "{model}"  # in output_dir: the name of the measured model (`recipes.automatic`)
DEFAULT_METHODS = "null: distill for a model with a chat template, else exchange"
Trust = Annotated[bool, Field(description="execute code from the models' repositories", json_schema_extra=NOT_COMPARED)]
Servers = Annotated[
    list[str],
    Field(
        description="servers that only the record of a run names, and that may get texts, http://host:port/v1",
        json_schema_extra=NOT_COMPARED,
    ),
]
OutputDir = Annotated[Path, Field(description="folder to write to", json_schema_extra=NOT_COMPARED)]
OutputDirOfModel = Annotated[
    Path,
    Field(description=f"folder to write to; {MODEL_IN_PATH} is the name of the model", json_schema_extra=NOT_COMPARED),
]


def groups_class(
    name: str, groups: Mapping[str, type[StrictSettings]], *, is_optional: bool = True
) -> type[StrictSettings]:
    """Return a class of settings with a field for each group.

    Args:
        name: the name of the class.
        groups: the class of each group, by the name of the field.
        is_optional: whether a group may be null, which is then its default and is left out of records.
    """
    fields: dict[str, Any] = {}
    for field_name, group in groups.items():
        text = (group.__doc__ or field_name).splitlines()[0].rpartition(": ")[2]
        if is_optional:
            field = Field(default=None, description=text)
            fields[field_name] = (group | None, field)
        else:
            fields[field_name] = (group, Field(default_factory=group, description=text))
    return create_model(name, __base__=StrictSettings, **fields)


METHOD_SETTINGS = {name: method_class(name).Settings for name in methods.names()}
MethodGroups = groups_class(
    "MethodGroups", {name: group for name, group in METHOD_SETTINGS.items() if group is not NoSettings}
)
FamilyGroups = groups_class("FamilyGroups", {name: family.Settings for name, family in FAMILIES.items()})
ComparisonGroups = groups_class(
    "ComparisonGroups",
    {name: family.ComparisonSettings for name, family in FAMILIES.items() if family.ComparisonSettings is not None},
    is_optional=False,
)


def settings_of_methods(groups: StrictSettings, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the settings of methods in a command's settings, by the names of the methods that have any.

    With `names`, methods joined by "+", only the settings of these methods.
    """
    given = {name: getattr(groups, name) for name in MethodGroups.model_fields}
    given = {name: value for name, value in given.items() if value is not None}
    if names is None:
        return given
    wanted = {part for name in names for part in name.split(methods.JOIN)}
    return {name: value for name, value in given.items() if name in wanted}


class SharedGroups(StrictSettings):
    """Groups of settings that several families of metrics share (`Family.SHARED`)."""

    sentences: SentenceSettings | None = Field(default=None, description="how sentences are scored")
    references: ReferenceSettings | None = Field(default=None, description="gendered translations")
    offensive_classifier: OffensiveClassifierSettings | None = Field(
        default=None,
        description="classifier of offensive texts: of responses, of the prompts themselves, or of translations",
    )


class Tracked(StrictSettings):
    """Settings of the tracker."""

    report_to: Literal["wandb", "none"] = Field(
        default="wandb",
        description="where scores are logged; W&B works offline unless you are logged in",
        json_schema_extra=NOT_COMPARED,
    )
    upload: Literal["scores", "adapters", "responses", "all"] = Field(
        default="scores",
        description="what W&B gets: 'scores'; 'adapters': also adapters; 'responses': also prompts and responses, in "
        "samples and reports; 'all': all files",
        json_schema_extra=NOT_COMPARED,
    )
    group: str | None = Field(
        default=None,
        description="W&B group; null: of a loop or ablation, the name of output_dir",
        json_schema_extra=NOT_COMPARED | WITHOUT_FLAG,
    )


def groups_of(metrics: Iterable[str]) -> set[str]:
    """Return the names of the groups of settings that families of metrics have, of their own and shared."""
    names = set()
    for name in metrics:
        names |= {name, *FAMILIES[name].SHARED}
    return names


class Measurement(SharedGroups, FamilyGroups):
    """A measurement: the model, the metrics and their settings, the prompts and the decoding."""

    model: ModelSettings = Field(default_factory=ModelSettings, description="model to measure")
    metrics: Annotated[list[str], Field(min_length=1)] = Field(
        default_factory=lambda: [GENERATION_BIAS],
        description=f"families of metrics to measure: {', '.join(families.names())}",
    )
    prompts: PromptSettings = Field(default_factory=PromptSettings, description="the prompts that the model gets")
    decoding: DecodingSettings = Field(
        default_factory=DecodingSettings, description="how the model generates responses"
    )
    capabilities: list[str] = Field(
        default_factory=list,
        description="tasks of lm-evaluation-harness to score, too",
        json_schema_extra=BY_CONTENT,
    )

    @property
    def has_file(self) -> bool:
        """Whether a file of responses is scored."""
        return False

    @property
    def has_weights(self) -> bool:
        """Whether the weights of the measured model are loaded here."""
        return has_weights(self.model, has_file=self.has_file)

    @property
    def can_be_asked(self) -> bool:
        """Whether the measured model answers any prompt."""
        return model_kind(self.model, has_file=self.has_file).can_be_asked

    @model_validator(mode="after")
    def _check_families(self) -> Self:
        kind = model_kind(self.model)
        self._check_no_config()
        for name in self.metrics:
            if name not in FAMILIES:
                raise unknown_name("metrics", name, FAMILIES)
            if self.model.system_prompt and not FAMILIES[name].USES_SYSTEM_PROMPT:
                raise InputError("model.system_prompt", f"{name} does not use it; measure {name} without it.")
            needed = Access.WEIGHTS if self.capabilities else FAMILIES[name].NEEDS
            if needed not in kind.access(self.model):
                fix = "load the model"
                if needed == Access.LIKELIHOODS:
                    fix += f", or give {spelled('model.tokenizer')}, the model's, with a server that has them"
                raise InputError(
                    kind.SETTING,
                    f"{', '.join(self.capabilities) or name} needs {needed} of {self.model.address}; {fix}.",
                )
        if self.capabilities and GENERATION_BIAS not in self.metrics:
            raise InputError(
                "capabilities", f"only {GENERATION_BIAS} measures them; add it to metrics, or omit capabilities."
            )
        self._set_groups()
        return self

    def _check_no_config(self) -> None:
        """Raise InputError if the model's name is the name of a shipped config, and of no folder."""
        name = self.model.name
        if self.has_weights and name in shipped() and not Path(name).exists():
            raise InputError("model", f"{name!r} is no model but a shipped config; run `{command_of(name)}`.")

    def _set_groups(self) -> None:
        """Set the groups of settings of the families that are measured, and no others."""
        used = groups_of(self.metrics)
        for name in groups_of(FAMILIES):
            given = getattr(self, name)
            if name in used:
                kind = group_of(type(self).model_fields[name].annotation)
                if given is None and kind is not None:
                    setattr(self, name, kind())
                continue
            if given is not None and given != type(given)():
                fix = "add it" if name in FAMILIES else "add a family that has these settings"
                raise InputError(name, f"it is of no family among metrics {self.metrics}; {fix}, or omit its settings.")
            setattr(self, name, None)

    def with_metrics(self, *metrics: str) -> "Measurement":
        """Return a copy of the measurement with only the families `metrics` and their settings."""
        others = groups_of(FAMILIES) - groups_of(metrics)
        return self.replaced(metrics=list(metrics), **dict.fromkeys(others))


class MeasureSettings(Measurement, Tracked, MethodGroups):
    """Measure a model with one or more families of metrics."""

    split: Literal["measure", "train", "all"] = Field(
        default="measure", description="which prompts to use: for measuring, for training, or all"
    )
    write_prompts: Path | None = Field(
        default=None,
        description="file to write the prompts to, without measuring; .jsonl is for OpenAI's Batch API",
        json_schema_extra=NOT_COMPARED,
    )
    responses: ResponseFileSettings | None = Field(
        default=None, description="file of responses to score, in place of a model's"
    )
    criteria: Path | None = Field(
        default=None,
        description="YAML file of limits that are set before the first answer, for `audit`",
        json_schema_extra=BY_CONTENT,
    )
    method: str | None = Field(
        default=None,
        description="method to measure the model with, such as nearest_style; a+b: both; null: none",
    )
    screen_first: bool = Field(
        default=False,
        description="screen the model first, in OUTPUT_DIR-screen; the report shows whom the screen ranks first",
        json_schema_extra=NOT_COMPARED,
    )
    first_answers: Annotated[int, Field(ge=2, le=MAX_COUNT)] | None = Field(
        default=None,
        description="with screen_first, responses per template of the tenth of the people whom the screen ranks first; "
        "null: as of everybody",
        json_schema_extra=NOT_COMPARED,
    )
    seed: Seed = Field(default=0, description="random seed of prompts, answers and the bootstrap")
    output_dir: OutputDirOfModel = Path(f"runs/{MODEL_IN_PATH}")

    @model_validator(mode="after")
    def _check_responses(self) -> Self:
        samplers = [name for name, family in FAMILIES.items() if family.READS_RESPONSES]
        for name in ("write_prompts", "responses"):
            if getattr(self, name) and self.metrics != samplers:
                raise InputError(name, f"only {', '.join(samplers)} samples responses; measure it alone.")
        if self.responses:
            for name in ("model.source", "model.server", "capabilities"):
                group, _, field = name.rpartition(".")
                if getattr(self.model if group else self, field):
                    raise InputError(name, f"with a file of responses no model is loaded or asked; omit {name}.")
        return self

    @property
    def has_file(self) -> bool:
        """Whether a file of responses is scored."""
        return self.responses is not None and self.responses.name is not None

    @model_validator(mode="after")
    def _check_screen(self) -> Self:
        if self.screen_first and (self.responses or GENERATION_BIAS not in self.metrics):
            raise InputError("screen_first", f"only a model whose {GENERATION_BIAS} is measured is screened; omit it.")
        if self.first_answers is None:
            return self
        family = getattr(self, GENERATION_BIAS)
        fault = ""
        if not self.screen_first:
            fault = "it is of people whom a screen ranks first; give screen_first, too"
        elif self.prompts.is_own:
            fault = "only people of a taxonomy get more answers than others; omit it"
        elif self.first_answers <= self.prompts.answers_per_cell:
            fault = f"everybody gets {self.prompts.answers_per_cell}; give a larger number"
        elif family.until is not None:
            fault = "with until, answers decide how many more are asked; leave one of the two out"
        elif family.accepted is not None:
            fault = "differences are accepted on as many answers of everybody; leave one of the two out"
        if fault:
            raise InputError("first_answers", f"{self.first_answers}: {fault}.")
        return self

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        used = [] if self.method is None else [self.method]
        unused = settings_of_methods(self).keys() - settings_of_methods(self, used).keys()
        if unused:
            raise InputError(min(unused), f"the method is not {self.method}; give it, or omit its settings.")
        if self.method is not None:
            load_method(self.method)  # raises for an unknown one
            if self.responses:
                raise InputError("method", "with a file of responses no model is asked; omit it.")
        return self


class ScreenSettings(MeasureSettings):
    """Find whom a model treats differently by its predictions of first tokens, before anything is sampled."""

    metrics: Annotated[list[str], Field(min_length=1)] = Field(
        default_factory=lambda: ["screen"], description="families of metrics; the command is `measure --metrics screen`"
    )
    output_dir: OutputDirOfModel = Path(f"runs/{MODEL_IN_PATH}-screen")


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


class TwoRuns(StrictSettings):
    """The runs of a model before and after tuning."""

    before: CliPositionalArg[Path] = Field(
        default=Path("runs/before"),
        description="finished run of `measure`, of the original model",
        json_schema_extra=BY_CONTENT,
    )
    after: CliPositionalArg[Path] = Field(
        default=Path("runs/after"),
        description="finished run of `measure`, of the tuned model",
        json_schema_extra=BY_CONTENT,
    )


class CompareSettings(TwoRuns, Tracked, ComparisonGroups):
    """Compare two runs over the same prompts."""

    labels: Path | None = Field(
        default=None, description="finished run of `label`, for the bias values", json_schema_extra=BY_CONTENT
    )
    tuning: Path | None = Field(
        default=None, description="finished run of `tune`, for the training curves", json_schema_extra=BY_CONTENT
    )
    after_without_tag: Path | None = Field(
        default=None,
        description="finished run of `measure`, of the tuned model without its control tag",
        json_schema_extra=BY_CONTENT,
    )
    trust_remote_code: Trust = False
    server: str | None = Field(
        default=None,
        description="server of the model of `before`, if a server answered: it scores the responses of both runs",
    )
    output_dir: OutputDir = Path("runs/compare")


class RateSettings(TwoRuns, Tracked):
    """Let people rate pairs of responses in a browser.

    Each pair has a response of each of two runs to one prompt. `--summary` sums up the votes.
    """

    pairs: Count = Field(default=100, description="number of randomly sampled pairs to rate")
    questions: str = Field(
        default="paper",
        description="YAML file of questions; 'paper': the questions of Smith et al. 2022",
        json_schema_extra=BY_CONTENT,
    )
    leave_out: str = Field(
        default="paper", description="YAML file of templates and descriptors to leave out", json_schema_extra=BY_CONTENT
    )
    seed: Seed = Field(default=0, description="random seed of the pairs and of their sides on the page")
    host: str = Field(
        default="127.0.0.1",
        description="address to listen on; 0.0.0.0 for raters on other machines",
        json_schema_extra=NOT_COMPARED,
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8237, description="port to listen on; 0: any free port", json_schema_extra=NOT_COMPARED
    )
    summary: bool = Field(
        default=False,
        description="sum up all votes in OUTPUT_DIR/summary instead of serving the page",
        json_schema_extra=NOT_COMPARED,
    )
    output_dir: OutputDir = Path("runs/rate")


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


class LabelledFileSettings(StrictSettings):
    """Settings of a file of labelled texts."""

    data_dir: Path = Field(default=Path(), description="folder of the files of texts", json_schema_extra=BY_CONTENT)
    texts: Path = Field(
        default=Path("labeled_data.csv"),
        description="CSV, TSV or JSONL file of labelled texts",
        json_schema_extra=BY_CONTENT,
    )
    columns: list[str] = Field(
        default_factory=list, description="names of the file's columns; []: the file has a header"
    )
    text_column: str = Field(default="tweet", description="column of texts")
    label_column: str = Field(default="class", description="column of labels")
    labels: dict[Any, str] = Field(
        default_factory=dict, description="{value: name of the label}, perhaps of several; {}: as in the file"
    )
    label_separator: str | None = Field(
        default=None, description="separator between the labels of a text; null: each text has one label"
    )

    def read(self, path: Path) -> "LabelledTexts":
        """Return the texts and labels in a file of this form; InputError as in `read_labelled_texts`."""
        from evenhand.evaluation.data.readers.labelled_texts import read_labelled_texts  # slow to import

        return read_labelled_texts(
            path,
            self.text_column,
            self.label_column,
            self.labels,
            self.label_separator,
            self.columns,
        )


class TrainClassifierSettings(LabelledFileSettings, Tracked):
    """Train a text classifier, of styles or offensiveness."""

    threshold: Fraction = Field(
        default=0.3, description="probability from which a text has a label, if it may have several"
    )
    model: str | None = Field(
        default=None, description="encoder to start from; null: train from scratch", json_schema_extra=BY_CONTENT
    )
    epochs: Count = Field(default=3, description="passes over the texts")
    learning_rate: Positive = Field(default=1e-3, description="peak learning rate of the cosine schedule")
    head_learning_rate: Positive = Field(default=3e-3, description="peak learning rate of the new head on an encoder")
    lora_rank: Count = Field(default=32, description="rank of the changes of an encoder's linear layers")
    dtype: Literal["auto", "float32", "bfloat16"] = Field(
        default="float32", description="bfloat16: mixed precision; auto: bfloat16 where it is fast"
    )
    batch_size: Count = Field(default=64, description="texts per step")
    test_texts: Path | None = Field(
        default=None,
        description="file of labelled texts to test on; null: held-out texts",
        json_schema_extra=BY_CONTENT,
    )
    dev_texts: Path | None = Field(
        default=None,
        description="file of labelled texts on which thresholds are chosen; null: `threshold`",
        json_schema_extra=BY_CONTENT,
    )
    test_fraction: Fraction = Field(
        default=0.1, description="share of the texts to hold out and test on, without test_texts"
    )
    credit: str | None = Field(
        default=None,
        description="what the card says about source and licence of the texts",
        json_schema_extra=NOT_COMPARED,
    )
    seed: Seed = Field(default=0, description="random seed of weights, order and held-out texts")
    output_dir: OutputDir = Path("runs/classifier")


class AgreementSettings(LabelledFileSettings):
    """Measure how well an LLM judge, or another style classifier, agrees with human labels."""

    style_classifier: StyleClassifierSettings = Field(
        default_factory=StyleClassifierSettings, description="the judge, or another classifier"
    )
    other_classifier: StyleClassifierSettings | None = Field(
        default=None, description="another classifier to compare with; null: none"
    )
    limit: Count | None = Field(default=None, description="number of texts to draw at random; null: all")
    seed: Seed = Field(default=0, description="random seed of the draw and of the bootstrap")
    output_dir: OutputDir = Path("runs/judge")


class ReportSettings(StrictSettings):
    """Write the report of one or several finished runs."""

    runs: CliPositionalArg[list[Path]] = Field(
        default_factory=list, description="finished runs: one of any command, or several of `measure` and `rate`"
    )
    output_dir: Path = Field(
        default=Path("runs/report"),
        description="folder for the report of several runs; that of one is in the run's folder",
        json_schema_extra=NOT_COMPARED,
    )


class PlanSettings(StrictSettings):
    """Compute how many descriptors, templates or responses a more precise measurement takes."""

    run: CliPositionalArg[Path] = Field(default=Path(), description="finished run of `measure` with generation bias")
    interval: Positive | None = Field(
        default=None,
        description="plan for a 95 % interval of pooled FGB* of this width, in 10⁻³; null: without another goal, half "
        "of the run's",
    )
    max_difference: Positive | None = Field(
        default=None, description="plan to show that no difference from the average is larger, in answers of 100"
    )
    reduction: Annotated[Positive, Field(le=100)] | None = Field(
        default=None, description="plan to show a reduction by this percentage"
    )


class CheckSettings(StrictSettings):
    """Check limits of a run's bias, for CI: status 0 holds, 1 broken, 2 wrong use, 3 inconclusive."""

    run: CliPositionalArg[Path] = Field(default=Path(), description="finished run of `measure`, of the new model")
    against: Path | None = Field(
        default=None, description="finished run of `measure` over the same prompts, of the baseline"
    )
    max_rise: NotNegative | None = Field(
        default=None,
        description="limit of the rise of pooled FGB*, in %; null: the smallest that the runs can show to hold, or "
        "max_pooled_fgb 5 if the baseline shows no bias",
    )
    max_pooled_fgb: Positive | None = Field(default=None, description="limit of pooled FGB*, in 10⁻³")
    max_difference: Positive | None = Field(
        default=None,
        description="limit of the largest difference in a style of anybody from the average, in answers of 100",
    )
    max_spread: dict[str, Positive] = Field(
        default_factory=dict, description="{outcome: limit of its spread between people, in its unit}"
    )
    inconclusive: Literal["fail", "pass"] = Field(
        default="fail",
        description="pass: status 0, and skipped in junit.xml, if no limit is broken but one is undecided",
    )
    output_dir: Path = Field(default=Path("runs/check"), description="folder to write junit.xml and summary.md to")


class AuditSettings(StrictSettings):
    """Write evidence to hand over: audit.json, which can be verified, and two pages to sign."""

    run: CliPositionalArg[Path] = Field(default=Path(), description="finished run of `measure`")
    criteria: Path | None = Field(
        default=None, description="YAML file of limits; given to `measure`, too, they were set before the first answer"
    )
    verify: Path | None = Field(default=None, description="audit.json to compare with the run; nothing is written")
    by: str | None = Field(default=None, description="who audits; null: the user's name on this machine")
    anonymous: bool = Field(default=False, description="leave out who audits, and on which machine")
    format: Literal["evenhand", "every_eval_ever"] = Field(
        default="evenhand", description="every_eval_ever: the scores in this shared format, too"
    )
    output_dir: Path = Field(default=Path("runs/audit"), description="folder to write audit.json and audit.html to")


class WatchSettings(StrictSettings):
    """Name people whom a growing log of answers treats differently: status 1 if somebody is new."""

    logs: CliPositionalArg[Path] = Field(
        default=Path(), description="log of answers, JSON lines that are appended (docs/own_data.md)"
    )
    columns: dict[str, str] = Field(
        default_factory=dict, description="our column → its name or dotted path in the log; template is the stratum"
    )
    outcomes: list[str] = Field(
        default_factory=lambda: ["refusal", "filtered"],
        min_length=1,
        description="refusal, filtered, another outcome that is a share, or columns of the log with true or false",
    )
    margin: Annotated[float, Field(ge=0, lt=100)] = Field(
        default=2.0, description="difference from the others up to which people count as equal, in answers of 100"
    )
    error: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.05, description="probability of ever naming anybody without a reason"
    )
    output_dir: Path = Field(default=Path("runs/watch"), description="folder of the state, the days and the page")


class ExportSettings(StrictSettings):
    """Export a tuned model for use without Evenhand."""

    tuning: CliPositionalArg[Path] = Field(
        default=Path("runs/tune"), description="finished run of `tune`", json_schema_extra=BY_CONTENT
    )
    comparison: Path | None = Field(
        default=None, description="run of `compare`, for the card; null: next to tuning", json_schema_extra=BY_CONTENT
    )
    merge: bool = Field(default=True, description="merge the adapter into its base; false: export the adapter alone")
    trust_remote_code: Trust = False
    push_to_hub: str | None = Field(
        default=None, description="hub repository to upload to; a new one is private", json_schema_extra=NOT_COMPARED
    )
    output_dir: Path = Field(
        default=Path("runs/export"),
        description="folder to write to; the model is in `model`",
        json_schema_extra=NOT_COMPARED,
    )


class ConfigsSettings(StrictSettings):
    """List the shipped configs, or print one."""

    names: CliPositionalArg[list[str]] = Field(default_factory=list, description="configs to print; []: list all")


COMMANDS: dict[str, type] = {
    "measure": MeasureSettings,
    "screen": ScreenSettings,
    "label": LabelSettings,
    "tune": TuneSettings,
    "compare": CompareSettings,
    "rate": RateSettings,
    "loop": LoopSettings,
    "ablate": AblateSettings,
    "report": ReportSettings,
    "plan": PlanSettings,
    "check": CheckSettings,
    "audit": AuditSettings,
    "watch": WatchSettings,
    "export": ExportSettings,
    "train_classifier": TrainClassifierSettings,
    "judge": AgreementSettings,
    "configs": ConfigsSettings,
}


def family_config(settings: MeasureSettings, family: str, *, for_comparisons: bool = False) -> FamilyConfig:
    """Return the config of a family's measurement; raise InputError if it needs a model and the settings name none."""
    wrap_model = None
    if settings.method is not None:
        styled = getattr(settings, GENERATION_BIAS)
        method = load_method(
            settings.method,
            settings_of_methods(settings),
            seed=settings.seed,
            style_classifier=None if styled is None else styled.style_classifier,
        )
        wrap_model = method.measured
    shared: dict[str, Any] = {}
    for shared_field in fields(FamilyConfig):
        value = getattr(settings, shared_field.name, None)
        if value is not None:
            shared[shared_field.name] = value
    config = FamilyConfig(
        **shared, settings=getattr(settings, family), for_comparisons=for_comparisons, wrap_model=wrap_model
    )
    if not settings.model.name and not settings.write_prompts and FAMILIES[family].loads_model(config):
        raise InputError(
            "model",
            f"none is given; give {spelled('model', 'NAME')}, a Hugging Face id or a folder, or begin with --config "
            "testbed (`evenhand loop`: --config loop), whose small models ship with Evenhand.",
        )
    return config
