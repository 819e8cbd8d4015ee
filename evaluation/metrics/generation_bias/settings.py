"""Settings of generation bias, and what they name. The module imports no slow library."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from evenhand.evaluation.models.revisions import local_path
from evenhand.evaluation.settings import (
    BY_CONTENT,
    NOT_COMPARED,
    OMITTED_IF_NULL,
    WITHOUT_FLAG,
    AnyPath,
    ClassifierSettings,
    Count,
    StrictSettings,
    StyleClassifierSettings,
)

if TYPE_CHECKING:
    from evenhand.evaluation.metrics import MeasureConfig
    from evenhand.evaluation.models.base import Model

DEFAULT_STYLE_CLASSIFIER = "go_emotions"  # it ships with Evenhand
SMALL_TALK = "small_talk"  # neutral dialogue that ships with Evenhand
SMALL_TALK_FILE = Path(__file__).resolve().parents[2] / "data" / "files" / "small_talk.jsonl"
DEFAULT_OUTCOMES = ("language", "refusal", "length")


class CorpusSettings(StrictSettings):
    """Corpora in which descriptors are counted."""

    paths: list[str] = Field(
        default_factory=list,
        description="JSONL, CSV, Parquet or text files, folders, or hub datasets to count descriptors in, each by "
        "itself",
        json_schema_extra=BY_CONTENT,
    )
    text_column: str = Field("text", description="column of the texts", json_schema_extra=WITHOUT_FLAG)
    subset: str | None = Field(None, description="subset of a hub dataset", json_schema_extra=WITHOUT_FLAG)
    split: str = Field("train", description="split of a hub dataset", json_schema_extra=WITHOUT_FLAG)
    limit: Count | None = Field(
        None, description="maximum number of examples to read; null: all", json_schema_extra=WITHOUT_FLAG
    )


class Settings(StrictSettings):
    """Generation bias: do responses differ in style by descriptor?"""

    style_classifier: StyleClassifierSettings = Field(
        default_factory=lambda: StyleClassifierSettings(name=DEFAULT_STYLE_CLASSIFIER),
        description="the style classifier",
    )
    second_style_classifier: StyleClassifierSettings | None = Field(
        None, description="another style classifier, which has to confirm the results"
    )
    style_clusters: str | None = Field(
        None,
        description="clusters of styles: 'image_chat', 'go_emotions', 'testbed' or a JSON file; null: by the labels of "
        "the classifier",
        json_schema_extra=BY_CONTENT,
    )
    offensiveness: ClassifierSettings = Field(
        default_factory=ClassifierSettings, description="a classifier of offensive responses"
    )
    neutral_dialogue: str | None = Field(
        SMALL_TALK,
        description="JSONL of {text, response} for perplexity; 'small_talk': as shipped, by prompts.language; null: "
        "no perplexity",
        json_schema_extra=BY_CONTENT,
    )
    control_tag: str | None = Field(
        None, description="control tag at the end of the context; null is the tag that the model was tuned with"
    )
    repeated_rows: Literal["warn", "once", "independent"] = Field(
        "warn",
        description="rows of a file with the same prompt and response (case, punctuation and spaces aside); warn: "
        "the report says "
        "how many; once: count each once; independent: each was asked for",
    )
    outcomes: list[str] = Field(
        default_factory=lambda: list(DEFAULT_OUTCOMES),
        description="what else may depend on the descriptor, such as language, refusal or length (an unknown name "
        "lists all), or a column of a file of responses (numbers or classes)",
    )
    corpus: CorpusSettings | None = Field(
        None, description="texts in which descriptors are counted", json_schema_extra=OMITTED_IF_NULL
    )
    accepted: AnyPath | None = Field(
        None,
        description="YAML file of differences that somebody has signed as right",
        json_schema_extra=BY_CONTENT | OMITTED_IF_NULL,
    )
    permutations: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        1999, description="number of permutations of people by which differences are tested; 0 tests nothing"
    )
    until: Literal["decided"] | Annotated[float, Field(gt=0, lt=100)] | None = Field(
        None,
        description="decided: stop asking when it is decided whether the difference is small, medium or large (limits "
        "of 2 and 5 of 100 answers); a number: whether it is above so many of 100; null: ask all",
        json_schema_extra=NOT_COMPARED,
    )
    relevance: bool = Field(
        True, description="whether the model itself scores how well responses fit their prompts, and their perplexity"
    )
    relevance_share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="share of the responses so scored, drawn by prompt; null: 0.1 but 300 or more; 1 under 10 M "
        "parameters",
    )


class ComparisonSettings(StrictSettings):
    """Generation bias before and after: phrases, frequencies of descriptors, relevance."""

    phrases: str | None = Field(
        None,
        description="phrases to count: 'paper', 'testbed' or a YAML file; null: by style_clusters",
        json_schema_extra=BY_CONTENT,
    )
    corpus: CorpusSettings = Field(default_factory=CorpusSettings, description="where descriptors are counted")
    relevance: bool = Field(
        True, description="whether the first run's model scores the responses of both runs: relevance, perplexity"
    )


def measured_model(config: "MeasureConfig") -> "Model":
    """Return the measured model, not loaded, with the control tag of the settings."""
    return config.open_model(config.settings.control_tag)


def neutral_dialogue(config: "MeasureConfig") -> str | None:
    """Return the path of the file of neutral dialogue for perplexity, or None for no file."""
    from evenhand.evaluation.data.languages import language_folder

    name = config.settings.neutral_dialogue
    if name is None:
        return None
    if name != SMALL_TALK:
        return str(local_path(name))
    if config.prompts.language:
        return str(language_folder(config.prompts.language) / SMALL_TALK_FILE.name)
    return str(SMALL_TALK_FILE)
