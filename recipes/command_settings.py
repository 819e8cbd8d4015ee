"""The class of settings of each command, and the classes that no other command needs. Nothing slow is imported."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from pydantic_settings import CliPositionalArg

from evenhand.evaluation.model_settings import StyleClassifierSettings
from evenhand.evaluation.settings import (
    BY_CONTENT,
    NOT_COMPARED,
    Count,
    Fraction,
    NotNegative,
    Positive,
    Seed,
    StrictSettings,
)
from evenhand.recipes.settings import ComparisonGroups, MeasureSettings, OutputDir, ScreenSettings, Tracked, Trust
from evenhand.recipes.tuning_settings import AblateSettings, LabelSettings, LoopSettings, TuneSettings

if TYPE_CHECKING:  # slow to import
    from evenhand.evaluation.data.readers.labelled_texts import LabelledTexts


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
