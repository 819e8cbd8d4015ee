"""Settings of generation bias: of the family, and of its parts, whose settings stand in their own files."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from evenhand.evaluation.metrics.generation_bias import decision
from evenhand.evaluation.metrics.generation_bias.parts import corpus, costs, decisions, outcomes, phrases, quality
from evenhand.evaluation.model_settings import StyleClassifierSettings
from evenhand.evaluation.settings import BY_CONTENT, NOT_COMPARED, WITHOUT_FLAG, StrictSettings

DEFAULT_STYLE_CLASSIFIER = "go_emotions"  # it ships with Evenhand


class FamilySettings(StrictSettings):
    """Settings that all parts share: classifiers, accepted differences, the number of permutations."""

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
    control_tag: str | None = Field(
        None,
        description="control tag at the end of the context; null: the tag that the model was tuned with",
        json_schema_extra=WITHOUT_FLAG,
    )
    repeated_rows: Literal["warn", "once", "independent"] = Field(
        "warn",
        description="rows of a file with the same prompt and response (case, punctuation and spaces aside); warn: "
        "count all, and the report says how many; once: count them once; independent: count all, each was "
        "asked for",
    )
    accepted: Path | None = Field(
        None,
        description="YAML file of differences that somebody has signed as right",
        json_schema_extra=BY_CONTENT,
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
    max_difference: Annotated[float, Field(gt=0, le=100)] | None = Field(
        None,
        description="with until 'decided': stop asking when it is decided whether anybody differs from the average by "
        "more than so many of 100 answers in a style",
        json_schema_extra=NOT_COMPARED,
    )
    max_rise: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None,
        description="with until 'decided' and `against`: stop asking when it is decided whether pooled FGB* is more "
        "than so many % above the baseline's",
        json_schema_extra=NOT_COMPARED,
    )
    against: Path | None = Field(
        None,
        description="finished run of `measure` over the same prompts, of the baseline of `max_rise`",
        json_schema_extra=NOT_COMPARED,
    )


# The fields of the last class come first, in documentation and `--help`.
class Settings(
    costs.Settings, corpus.Settings, decisions.Settings, outcomes.Settings, quality.Settings, FamilySettings
):
    """Generation bias: do responses differ in style by descriptor?"""


class ComparisonSettings(
    costs.ComparisonSettings, corpus.ComparisonSettings, phrases.ComparisonSettings, decision.ComparisonSettings
):
    """Generation bias before and after: limits, phrases, frequencies of descriptors, relevance."""
