"""Settings of generation bias, and what they name. The module imports no slow library."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.revisions import local_path
from evenhand.evaluation.settings import (
    CONTENT,
    MAX_COUNT,
    AnyPath,
    CheckpointSettings,
    ClassifierSettings,
    Count,
    StyleClassifierSettings,
    option,
    strict_dataclass,
)

if TYPE_CHECKING:
    from evenhand.evaluation.metrics import MeasureConfig
    from evenhand.evaluation.models.base import Model

SMALL_TALK = "small_talk"  # neutral dialogue that ships with Evenhand
SMALL_TALK_FILE = Path(__file__).resolve().parents[2] / "data" / "files" / "small_talk.jsonl"
Candidates = Annotated[int, Field(ge=2, le=MAX_COUNT)]
OUTCOME_NAMES = ("language", "fluency", "refusal", "length", "readability", "mention", "filtered")
# Names of the classifiers in inputs, signatures and errors.
FIRST, SECOND, OFFENSIVE = "style_classifier", "second_style_classifier", "offensiveness_classifier"


@strict_dataclass
class CorpusSettings:
    """Corpora in which descriptors are counted."""

    paths: list[str] = option(
        list,
        "JSONL, CSV, Parquet or text files, folders, or hub datasets to count descriptors in, each by itself",
        identity=CONTENT,
    )
    text_column: str = option("text", "their column with the texts")
    subset: str | None = option(None, "subset of a hub dataset")
    split: str = option("train", "split of a hub dataset")
    limit: Count | None = option(None, "read so many examples; null: all")


@strict_dataclass
class Settings:
    """Generation bias: do responses differ in style by descriptor?"""

    style_classifier: StyleClassifierSettings = option(StyleClassifierSettings, "sequence classifier of the styles")
    second_style_classifier: StyleClassifierSettings | None = option(None, "confirms results, never labels; null: none")
    style_clusters: str = option(
        "", "clusters of styles: 'image_chat', 'go_emotions', 'testbed' or a JSON file", identity=CONTENT
    )
    offensiveness: ClassifierSettings = option(ClassifierSettings, "the share of offensive responses")
    neutral_dialogue: str | None = option(
        SMALL_TALK,
        "JSONL of {text, response} for perplexity; 'small_talk': as shipped, by prompts.language; null: no perplexity",
        identity=CONTENT,
    )
    control_tag: str | None = option(None, "string at the end of the context; null: the model's own default")
    repeated_rows: Literal["warn", "once", "independent"] = option(
        "warn",
        "rows of a file with the same prompt and response (case, punctuation and spaces aside); warn: the report says "
        "how many; once: count each once; independent: each was asked for",
    )
    outcomes: list[str] = option(
        list,
        f"what else may depend on the descriptor: {', '.join(OUTCOME_NAMES)}, or a column of a file of responses "
        "(numbers or classes)",
    )
    corpus: CorpusSettings | None = option(None, "where descriptors are counted; null: nowhere", omit_if_null=True)
    accepted: AnyPath | None = option(
        None, "YAML file of differences that somebody has signed as right", identity=CONTENT, omit_if_null=True
    )
    permutations: Annotated[int, Field(ge=0, le=1_000_000)] = option(
        1999, "permutations of people by which differences are tested; 0: none"
    )
    relevance: bool = option(True, "score responses by the model itself: fit to their prompts, perplexity")
    borrowed_opening: Count | None = option(
        None,
        "tokens at the start of each response that answer another person; null: none; method `borrowed_opening`: 4",
        omit_if_null=True,
    )
    nearest_style: Candidates | None = option(
        None,
        "candidates, of which the nearest in style to a response to another person is taken; null: none, with the "
        "method `nearest_style` 4",
        omit_if_null=True,
    )
    relevance_share: Annotated[float, Field(gt=0, le=1)] | None = option(
        None, "share of the responses so scored, drawn by prompt; null: 0.1 but 300 or more; 1 under 10 M parameters"
    )


@strict_dataclass
class ComparisonSettings:
    """Generation bias before and after: phrases, frequencies of descriptors, relevance."""

    phrases: str | None = option(
        None, "phrases to count: 'paper', 'testbed' or a YAML file; null: by style_clusters", identity=CONTENT
    )
    corpus: CorpusSettings = option(CorpusSettings, "where descriptors are counted")
    relevance: bool = option(True, "have the first run's model score the responses of both: fit, perplexity")


def classifiers(config: "MeasureConfig") -> dict[str, CheckpointSettings | ClassifierSettings]:
    """Return the configured classifiers by FIRST, SECOND and OFFENSIVE.

    Raises:
        InputError: there is no style classifier or there are no style clusters; an offensiveness classifier without its
            label, or a label without a classifier.
    """
    settings = config.settings
    for name, value in ((FIRST, settings.style_classifier.name), ("style_clusters", settings.style_clusters)):
        if not value:
            raise InputError(
                f"generation_bias.{name}",
                "none is given; give style_classifier, a Hugging Face id or a folder of "
                "`train_classifier`, and style_clusters, such as SamLowe/roberta-base-go_emotions and go_emotions.",
            )
    offensive = settings.offensiveness
    if (offensive.name is None) != (offensive.label is None):
        raise InputError(
            "generation_bias.offensiveness",
            f"the label {offensive.label!r} with the classifier {offensive.name!r}; "
            "give both: the classifier, and its label that means offensive.",
        )
    named = {FIRST: settings.style_classifier, SECOND: settings.second_style_classifier, OFFENSIVE: offensive}
    return {name: model for name, model in named.items() if model is not None and model.name is not None}


def measured_model(config: "MeasureConfig") -> "Model":
    """Return the measured model, not loaded, wrapped as `borrowed_opening` or `nearest_style` asks."""
    from evenhand.evaluation.models.wrapped import BorrowedOpeningModel, NearestStyleModel

    settings, model = config.settings, config.open_model(config.settings.control_tag)
    if settings.borrowed_opening is not None:
        model = BorrowedOpeningModel(model, settings.borrowed_opening)
    if settings.nearest_style is not None:
        model = NearestStyleModel(model, settings.nearest_style, classifiers(config)[FIRST])
    return model


def neutral_dialogue(config: "MeasureConfig") -> str | None:
    """Return the path of the file of neutral dialogue for perplexity, or None for no file."""
    from evenhand.evaluation.data.languages import language_folder

    name = config.settings.neutral_dialogue
    if name is None:
        return None
    if name == SMALL_TALK and (language := config.prompts.language):
        return str(language_folder(language) / SMALL_TALK_FILE.name)
    return str(SMALL_TALK_FILE if name == SMALL_TALK else local_path(name))
