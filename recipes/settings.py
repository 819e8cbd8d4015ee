"""What each command is told: dataclasses, checked strictly. Imports nothing heavy, so `--help` is immediate.

What a run and a stage of an experiment have in common is a class of its own (`Measurement`, `Labelling`, `Tuning`,
`Experiment`); the command's settings are that and what only the run has. So what the loop sets by itself is not there
to be given.
"""

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from evenhand.evaluation import families
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.settings import (
    TESTBED,
    Count,
    DecodingSettings,
    Finite,
    Folder,
    ModelSettings,
    PerCell,
    PromptSettings,
    ReportTo,
    Seed,
    Share,
    option,
    strict,
)
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.recipes import testbed
from evenhand.recipes.family_settings import check_model, check_reads_responses, family_fields

FAMILY = "generation_bias"  # what is measured unless told otherwise, what labels are made of and tuning removes
SHOW, WHERE = "print the report", "where everything is written"
TRACKED, GROUP = "wandb is offline unless you are logged in", "name that joins the stages of one experiment"
KEPT, TRUSTED = "upload files as W&B artifacts", "run code of the models read"


@strict
@family_fields(lambda family: family.Settings, when_named=True)
class Measurement:
    """What is measured, and how: the model, the metrics with their settings, the prompts, the decoding."""

    model: ModelSettings = option(ModelSettings, "the model that is measured")
    metrics: Annotated[list[str], Field(min_length=1)] = option(
        lambda: [FAMILY], f"families of metrics: {', '.join(families.names())}"
    )
    prompts: PromptSettings = option(PromptSettings, "what the model is asked")
    decoding: DecodingSettings = option(DecodingSettings, "how it answers")
    capabilities: list[str] = option(list, "tasks of lm-evaluation-harness to score, too")

    def __post_init__(self) -> None:
        """Give the families that are named their settings, and refuse any other's."""
        for name in self.metrics:
            if getattr(self, name, None) is None:
                setattr(self, name, families.settings_of(name).Settings())
        check_model(self.model, self.metrics, self.capabilities)
        if self.capabilities and FAMILY not in self.metrics:
            raise InputError(f"capabilities: a cost beside {FAMILY}; name it among metrics, or leave them out.")
        for name in families.names():
            if name not in self.metrics and (group := getattr(self, name)) is not None:
                given = [field for field, value in vars(group).items() if value != getattr(type(group)(), field)]
                raise InputError(
                    f"{'.'.join([name, *given[:1]])}: {name} is not among metrics [{', '.join(self.metrics)}]; name it "
                    "there too, or leave its settings out."
                )

    def with_metrics(self, *metrics: str) -> "Measurement":
        """Return the same measurement by these metrics: those that stay keep their settings."""
        kept = {name: value for name, value in vars(self).items() if name in metrics or name not in families.names()}
        return type(self)(**{**kept, "metrics": list(metrics)})


@strict
class MeasureSettings(Measurement):
    """Measure a model by one or more families of metrics: rows → scores and a report."""

    split: Literal["measure", "train", "all"] = option("measure", "which side of the split of prompts to use")
    write_prompts: Folder | None = option(None, "write what is to be answered here, and stop")
    responses: Folder | None = option(None, "score this file's responses; load no model")
    seed: Seed = option(0, "of prompts, responses and the bootstrap")
    show: bool = option(True, SHOW)
    report_to: ReportTo = option("wandb", TRACKED)
    log_artifacts: bool = option(False, KEPT)
    group: str | None = option(None, GROUP)
    output_dir: Folder = option(Path("runs/measure"), WHERE)

    def __post_init__(self) -> None:
        """Refuse responses for families that ask the model themselves, and those of nobody; see `Measurement`."""
        Measurement.__post_init__(self)
        for name in ("write_prompts", "responses"):
            if getattr(self, name):
                check_reads_responses(name, self.metrics)
        if self.responses and self.model.name == TESTBED:
            raise InputError("responses: say which model gave them, by --model NAME; it is not loaded.")
        if self.responses and self.model.server:
            raise InputError("model.server: with responses nobody is asked; leave this out.")
        if self.responses and self.capabilities:
            raise InputError("capabilities: with responses no model is loaded that could be asked; leave them out.")


@strict
class Labelling:
    """How responses are labelled."""

    alpha: Literal[0, 1, 2] = option(0, "exponent of the norm in the bias value (002 C.1)")
    beta: Finite | None = option(None, "threshold as a number; null: use the quantile")
    quantile: Share = option(0.9, "threshold as a quantile of the bias values, where beta is null")
    cross_fitted: bool = option(False, "take each response out of its own bias direction")
    exclude_parrots: bool = option(False, "leave responses out that repeat their prompt")
    exclude_clusters: list[str] = option(list, "leave responses out that are in these style clusters")
    exclude_above: Share = option(0.5, "summed probability of a cluster's styles from which a response is in it")


@strict
class LabelSettings(Labelling):
    """Label the responses of a measuring run `bias` or `no_bias`, and plan the threshold."""

    responses: Folder = option(Path("runs/train"), "a finished measuring run, on train prompts")
    seed: Seed = option(0, "of the plan's sampling")
    report_to: ReportTo = option("wandb", TRACKED)
    log_artifacts: bool = option(False, KEPT)
    group: str | None = option(None, GROUP)
    output_dir: Folder = option(Path("runs/label"), WHERE)


@strict
class Tuning:
    """How a model is tuned, and measured on the way."""

    training: TuningSettings = option(TuningSettings, "how to train")
    measure_every: Annotated[int, Field(ge=0)] = option(100, "measure pooled FGB* every so many steps; 0: never")
    measure_descriptors: Annotated[int, Field(ge=2)] = option(40, "descriptors in that small measurement")


@strict
class TuneSettings(Tuning):
    """Tune the labelled model for style equality, by one of the methods."""

    labels: Folder = option(Path("runs/label"), "a finished labelling run")
    method: str = option("control_tags", "module of mitigation/methods")
    trust_remote_code: bool = option(False, TRUSTED)
    seed: Seed = option(0, "of held-out rows, the adapter, and the order of rows")
    report_to: ReportTo = option("wandb", TRACKED)
    log_artifacts: bool = option(False, KEPT)
    group: str | None = option(None, GROUP)
    output_dir: Folder = option(Path("runs/tune"), WHERE)


@strict
@family_fields(lambda family: family.ComparisonSettings, when_named=False)
class CompareSettings:
    """Compare two measuring runs over the same prompts: differences with intervals, and the report."""

    before: Folder = option(Path("runs/before"), "measuring run of the original model")
    after: Folder = option(Path("runs/after"), "measuring run of the tuned model")
    labels: Folder | None = option(None, "labelling run, for the threshold plan")
    tuning: Folder | None = option(None, "tuning run, for its curves")
    after_without_tag: Folder | None = option(None, "measuring run of the tuned model without its control tag")
    trust_remote_code: bool = option(False, TRUSTED)
    show: bool = option(True, SHOW)
    report_to: ReportTo = option("wandb", TRACKED)
    log_artifacts: bool = option(False, KEPT)
    group: str | None = option(None, GROUP)
    output_dir: Folder = option(Path("runs/compare"), WHERE)


@strict
class RateSettings:
    """Let people judge the responses of two measuring runs side by side, in a browser, and sum up their votes."""

    before: Folder = option(Path("runs/before"), "measuring run of the original model")
    after: Folder = option(Path("runs/after"), "measuring run of the tuned model, on the same prompts")
    pairs: Count = option(100, "pairs that each rater is shown, drawn at random")
    questions: str = option("paper", "YAML file of questions by name; 'paper': the three of 002")
    leave_out: str = option("paper", "YAML file of templates and descriptors not to show; 'paper': ours after 002")
    seed: Seed = option(0, "of the pairs, and of the sides that they are shown on")
    host: str = option("127.0.0.1", "address to listen on; raters at other machines need another, such as 0.0.0.0")
    port: Annotated[int, Field(ge=0, le=65535)] = option(8237, "port to listen on; 0: any free one")
    import_votes: Folder | None = option(None, "CSV of votes to add to output_dir's, in place of serving")
    summary: bool = option(False, "sum up output_dir's votes into its folder `summary`, in place of serving")
    show: bool = option(True, "print the report of the summary")
    report_to: ReportTo = option("wandb", f"of the summary; {TRACKED}")
    log_artifacts: bool = option(False, KEPT)
    group: str | None = option(None, GROUP)
    output_dir: Folder = option(Path("runs/rate"), WHERE)


@strict
class Experiment:
    """What every method, and every point of an ablation, goes through."""

    measure: Measurement = option(Measurement, "all measurements, and the responses that are labelled")
    train_per_cell: PerCell = option(4, "responses per (template, descriptor) to label and tune on")
    label: Labelling = option(Labelling, "labelling")
    tune: Tuning = option(Tuning, "tuning")
    second_decoding: DecodingSettings | None = option(
        None, "measure before and after tuning under this decoding too, and compare; null: under measure.decoding alone"
    )
    rounds: Count = option(1, "label and tune again the responses of the tuned model, so many times in all")
    instruction: str | None = option(None, "what the method `prompt` tells the model; null: the method's own text")
    measure_without_tag: bool = option(True, "measure models tuned with control tags without their tag, too")
    allow_no_bias: bool = option(False, "go on even where no bias of the base is shown, and nothing can be removed")

    def __post_init__(self) -> None:
        """Refuse a served model: it cannot be tuned, and what was tuned would have to be served first."""
        if self.measure.model.server:
            raise InputError(
                "measure.model.server: a loop loads the model, to tune it; measure and label by the server, tune what "
                "it serves, and measure again what is served then."
            )


@strict
class Launching:
    """Where stages run, and how many at once."""

    launcher: Literal["processes", "ray"] = option("processes", "what runs stages: this machine or Ray (evenhand[ray])")
    jobs: Count | None = option(None, "stages at work at once, each in its own process; null: one, by ray all that fit")
    ray_address: str | None = option(None, "of a cluster, 'auto' or host:port; null: a Ray of this machine's own")
    ray_cpus: Count | None = option(None, "CPUs of a stage; null: one")
    ray_gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = option(
        None, "GPUs of a stage that loads a model; null: one where there is any"
    )

    def __post_init__(self) -> None:
        """Refuse what Ray alone reads where it is not asked for."""
        given = [name for name, value in vars(self).items() if name.startswith("ray_") and value is not None]
        if given and self.launcher != "ray":
            raise InputError(f"{given[0]}: read by Ray alone; give --launcher ray, or leave it out.")

    def most_at_once(self) -> float:
        """Return how many stages may be at work at once."""
        return self.jobs or (math.inf if self.launcher == "ray" else 1)


@strict
class LoopSettings(Launching, Experiment):
    """The whole loop: measure → label → tune → measure again → report, for each method."""

    methods: Annotated[list[str], Field(min_length=1)] = option(
        lambda: ["exchange", "dpo"], "modules of mitigation/methods, each tuned by itself"
    )
    seed: Seed = option(0, "of every stage")
    report_to: ReportTo = option("wandb", TRACKED)
    log_artifacts: bool = option(False, KEPT)
    output_dir: Folder = option(Path("runs/loop"), WHERE)

    def __post_init__(self) -> None:
        """See `Experiment` and `Launching`."""
        Experiment.__post_init__(self)
        Launching.__post_init__(self)


@strict
class AblateSettings(Launching):
    """Sweep any fields of the loop over shared stages: one table, one plot, the Pareto front."""

    loop: Experiment = option(Experiment, "what all points have in common")
    sweep: Annotated[list[dict[str, Any]], Field(min_length=1)] = option(
        lambda: [{"method": ["exchange", "dpo"]}],
        "grids of points: {`method`, and any field of the loop: one value or a list of them}",
    )
    seeds: Annotated[list[Seed], Field(min_length=1)] = option(lambda: [0], "run every point once with each")
    report_to: ReportTo = option("wandb", f"one run per point; {TRACKED}")
    log_artifacts: bool = option(False, KEPT)
    output_dir: Folder = option(Path("runs/ablate"), WHERE)


@strict
class TrainClassifierSettings:
    """Train a small text classifier on labelled texts, for offensiveness or styles without a hub."""

    texts: Folder = option(Path("labeled_data.csv"), "CSV, TSV or JSONL file of labelled texts")
    columns: list[str] = option(list, "names of its columns, where it has no header; []: it has one")
    text_column: str = option("tweet", "its column of texts")
    label_column: str = option("class", "its column of labels")
    labels: dict[Any, str] = option(
        dict, "{value: name of the label}, several values may have one name; {}: as they are"
    )
    label_separator: str | None = option(None, "what stands between the labels of a text; null: it has one label")
    threshold: Share = option(0.3, "probability from which a text is given a label, where it may have several")
    model: str | None = option(
        None, "Hugging Face id or folder to start from, a classifier or an encoder; null: a small one from scratch"
    )
    architecture: Literal["bert", "modernbert"] = option(
        "bert", "from scratch; 'modernbert' averages over the words of a text, and learns many labels sooner"
    )
    epochs: Count = option(3, "passes over the texts")
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = option(1e-3, "peak of the cosine")
    batch_size: Count = option(64, "texts to a step")
    test_texts: Folder | None = option(None, "file like texts that it is measured on; null: texts held out")
    test_fraction: Share = option(0.1, "share of the texts to test on, where there are no test_texts")
    seed: Seed = option(0, "of weights, order and what is held out")
    report_to: ReportTo = option("wandb", TRACKED)
    log_artifacts: bool = option(False, KEPT)
    group: str | None = option(None, GROUP)
    output_dir: Folder = option(Path("runs/classifier"), WHERE)


@strict
class ReportSettings:
    """Make reports again from finished runs: of one folder its own, of several one page side by side."""

    folders: list[Folder] = option(
        list, "finished runs, `evenhand report FOLDER …`: one of any command, or several of `measure` and `rate`"
    )
    output_dir: Folder = option(Path("runs/report"), "where several runs side by side are written")


@strict
class ExportSettings:
    """Export a tuned model as a folder that needs no Evenhand, with its card, and upload it if told to."""

    tuning: Folder = option(Path("runs/tune"), "a finished tuning run")
    comparison: Folder | None = option(
        None, "comparison of the tuned model with its base, for the card; null: `compare` beside the tuning, if it is"
    )
    merge: bool = option(True, "merge the adapter into its base; false: export the adapter, which names its base")
    trust_remote_code: bool = option(False, TRUSTED)
    push_to_hub: str | None = option(None, "id on the hub to upload the folder to, private if it is new")
    output_dir: Folder = option(Path("runs/export"), "where; the model is in its folder `model`")


@strict
class ConfigsSettings:
    """List the configs that ship with Evenhand, for `--config NAME`, or print one of them."""

    names: list[str] = option(list, "`evenhand configs NAME` prints it, to be copied and changed; []: a line on each")


COMMANDS: dict[str, type] = {
    "measure": MeasureSettings,
    "label": LabelSettings,
    "tune": TuneSettings,
    "compare": CompareSettings,
    "rate": RateSettings,
    "loop": LoopSettings,
    "ablate": AblateSettings,
    "report": ReportSettings,
    "export": ExportSettings,
    "train_classifier": TrainClassifierSettings,
    "configs": ConfigsSettings,
}

POSITIONAL = {"report": "folders", "configs": "names"}  # the list that stands behind a command without its flag


def measure_config(settings: Any, family: str) -> MeasureConfig:
    """Return what a family is told by the settings of a measurement."""
    shared = (settings.model, settings.prompts, settings.decoding, getattr(settings, family))
    embedded, further = testbed.EMBEDDED.get(family, {}), (settings.responses, settings.capabilities)
    return MeasureConfig(*shared, settings.seed, settings.split, embedded, *further)


def check_inputs(settings: MeasureSettings) -> None:
    """Look at what each family will read, before anything heavy is imported.

    Raises:
        InputError: something is not there, or cannot be used.
    """
    if settings.write_prompts:  # nothing else is read
        return
    for name in dict.fromkeys(settings.metrics):
        families.settings_of(name).inputs(measure_config(settings, name))
