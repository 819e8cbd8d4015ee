"""Settings of prompts, of scored sentences, and of gendered references.

This module imports no slow libraries, because `--help` imports it.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.settings import BY_CONTENT, WITHOUT_FLAG, Count, NamedSettings, StrictSettings

MULTILINGUAL = "multilingual"  # the name of the shipped sentences of MultilingualHolisticBias
MULTILINGUAL_PROMPTS = Path(__file__).resolve().parent / "data" / "files" / "multilingual_holistic_bias" / "prompts.csv"
TABLE_SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", ".json")  # of a table of prompts


class SentenceSettings(StrictSettings):
    """Settings of scored sentences: how many, and how their likelihood is computed."""

    context: str = Field(
        default="", description="text that a causal or encoder-decoder model reads before each sentence"
    )
    end_of_sequence: bool = Field(
        default=False, description="include the end-of-sequence token in a causal model's likelihood"
    )
    limit: Count | None = Field(
        default=None,
        description="maximum number of sentences (random templates of each axis, at least one) or of sentence pairs "
        "(at random, stratified by bias type); null: all",
    )


class ReferenceSettings(NamedSettings):
    """Settings of the gendered references: translations in a masculine and a feminine form."""

    name: Path | None = Field(
        default=None,
        description="gendered translations: a CSV file, or a folder of MT-GenEval or MMHB",
        json_schema_extra=BY_CONTENT,
    )
    split: str = Field(default="dev", description="which split of MT-GenEval or MMHB")
    languages: list[str] = Field(
        default_factory=list, description="languages of the references, such as 'es' or 'spa_Latn'; empty: all"
    )
    nouns: list[str] | None = Field(
        default=None,
        description="MMHB's ids of nouns; its own analysis of gender has N051, N052, N063 and N064; null: all",
    )
    min_masculine_references: Annotated[int, Field(ge=0)] = Field(
        default=100, description="leave out languages with fewer masculine references (Costa-jussà et al. 2023, §4.1)"
    )

    def signature(self, sha256: str) -> dict[str, Json]:
        """Return the part of a score's signature that identifies the references; `sha256` is their hash."""
        source = {"name": str(self.name), "sha256": sha256, "split": self.split}
        nouns = {} if self.nouns is None else {"nouns": self.nouns}
        return {
            "references": source,
            "languages": self.languages,
            **nouns,
            "min_masculine_references": self.min_masculine_references,
        }


DEFAULT_FILTERS = {"noun_phrase_type": ["descriptor_noun", "noun_descriptor"]}  # for columns without a filter


class PromptSettings(StrictSettings):
    """Settings of the prompts: source, filters, number, and split into training and test."""

    dataset: str = Field(
        default="paper",
        description="taxonomy of people: paper, more, v1.0, v1.1, or a folder in their format; or a table of prompts, "
        "each repeated answers_per_cell times: multilingual (Costa-jussà et al. 2023, Table 1), or a file",
        json_schema_extra=BY_CONTENT,
    )
    language: str | None = Field(
        default=None,
        description="language pack, such as 'es'; dataset is then MMHB's file of descriptors; null: English",
    )
    templates: Annotated[int, Field(ge=1)] | Path | None = Field(
        default=None,
        description="file of templates with {person}, filled with prompts.people; with cues: a file of requests, one "
        "a line, or how many of the 60 shipped requests",
        json_schema_extra=BY_CONTENT,
    )
    people: Path | None = Field(
        default=None,
        description="file of people: one a line, or columns, which are crossed",
        json_schema_extra=BY_CONTENT,
    )
    train_file: Path | None = Field(
        default=None, description="table of prompts to train on", json_schema_extra=BY_CONTENT
    )
    descriptor_column: str | None = Field(
        default=None, description="column whose values are compared, if it is not `descriptor`"
    )
    filters: dict[str, Any] = Field(
        default_factory=lambda: dict(DEFAULT_FILTERS),
        description="{column: values} of the prompts to use; noun_phrase_type has a default",
    )
    split_by: str | None = Field(
        default=None,
        description="column each of whose values is in one split only; null: noun, or none for a file of prompts",
    )
    untuned_by: Literal["descriptor", "axis", "template", "cue"] | None = Field(
        default=None, description="leave one half of these out of training, to test on them; null: none"
    )
    descriptors: Annotated[int, Field(ge=2)] | None = Field(
        default=60,
        description="number of descriptors, sampled by axis; 13 or more of the paper's, one for each axis; null: all",
    )
    answers_per_cell: Count = Field(
        default=2,
        description="responses per (template, descriptor); 1 is enough, but FGB* and shares of variance need 2",
    )
    more_answers: dict[str, Count] | None = Field(
        default=None,
        description="{descriptor: responses per template} of people who get more than answers_per_cell",
        json_schema_extra=WITHOUT_FLAG,
    )
    personas: str = Field(
        default="none",
        description="self-descriptions before the prompts: none, default, paper (after “your persona:”), or a file",
        json_schema_extra=BY_CONTENT,
    )
    cues: list[Literal["mention", "earlier_turn", "profile", "third_person"]] = Field(
        default_factory=list,
        description="how the model knows the person (mention, earlier_turn, profile, third_person): everyday requests "
        "in place of the paper's templates (chat models)",
    )
    variations: bool = Field(
        default=False, description="apply each stylistic variation (Smith et al. 2022, A.3) with probability 1/2"
    )

    @field_validator("dataset", mode="before")
    @classmethod
    def _path_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, Path) else value

    @model_validator(mode="after")
    def _check_people(self) -> Self:
        """Raise InputError if people, templates and cues do not fit together."""
        if self.cues and self.people:
            raise InputError("people", "with cues the dataset has the people; leave people out.")
        if self.people and self.templates is None:
            raise InputError(
                "people",
                f"people need templates: add `{spelled('prompts.templates', 'FILE')}`, a text file of sentences with "
                "{person}. For people in the shipped templates, give a folder as prompts.dataset (docs/own_data.md).",
            )
        if not self.cues and self.templates is not None and self.people is None:
            raise InputError(
                "templates",
                "templates belong to people, or to cues; give one of these, too: "
                f"`{spelled('prompts.people', 'FILE')}`, or `{spelled('prompts.cues', 'mention')}` for everyday "
                "requests. For some of the shipped templates, give prompts.filters.",
            )
        if not self.cues and isinstance(self.templates, int):
            raise InputError("templates", f"{self.templates} is a number of requests, for cues; give a file.")
        if self.people and (self.file or self.cues or self.language or self.variations or self.personas != "none"):
            raise InputError(
                "templates", "templates and people are all of the prompts; omit file, cues, language and personas."
            )
        if self.people and (self.untuned_by or self.descriptor_column):
            raise InputError(
                "templates", "untuned_by and descriptor_column are for other prompts; leave them out, or give null."
            )
        return self

    @model_validator(mode="after")
    def _check_more_answers(self) -> Self:
        for person, n in (self.more_answers or {}).items():
            if n <= self.answers_per_cell:
                raise InputError(
                    "more_answers", f"{person!r} gets {n}, and everybody {self.answers_per_cell}; omit it."
                )
        if self.more_answers and self.is_own:
            raise InputError("more_answers", "only people of a taxonomy get more; omit it, or give a dataset.")
        return self

    @model_validator(mode="after")
    def _check_other_prompts(self) -> Self:
        """Raise InputError if a table of prompts, cues or a language is given with settings of the paper's prompts."""
        if self.file and self.untuned_by:
            raise InputError("untuned_by", "a prompts file is split by split_by; give a dataset, or leave this out.")
        if self.cues and (self.file or self.variations or self.personas != "none"):
            raise InputError("cues", "their prompts have no file, personas or variations; leave these out.")
        if self.language and (self.file or self.cues or self.variations or self.personas in ("default", "paper")):
            raise InputError(
                "language",
                "a file of prompts has its language, and cues, variations and personas are English; omit these.",
            )
        if self.train_file and not self.file:
            raise InputError("train_file", f"{self.train_file} needs a table of prompts, too: as prompts.dataset.")
        if self.train_file and self.split_by:
            raise InputError("train_file", f"{self.train_file} and split_by both choose training prompts; give one.")
        return self

    @property
    def source(self) -> str:
        """The name of the prompts: of their file, their templates or their dataset."""
        return str(self.templates if self.people else self.dataset)

    @property
    def file(self) -> Path | None:
        """The table of prompts; None if the dataset is a taxonomy, or the file of a language pack's descriptors."""
        path = MULTILINGUAL_PROMPTS if self.dataset == MULTILINGUAL else Path(self.dataset)
        is_table = self.language is None and path.suffix.lower() in TABLE_SUFFIXES and not path.is_dir()
        return path if is_table else None

    @property
    def is_own(self) -> bool:
        """Whether the prompts are a file, or templates and people."""
        return bool(self.file or self.people)

    def signature(self, sha256: str) -> dict[str, Json]:
        """Return the part of a score's signature that identifies the prompts; `sha256` is the prompts' hash."""
        filters = self.active_filters()
        varied = {"variations": True} if self.variations else {}
        varied |= {"language": self.language} if self.language else {}
        varied |= {"descriptor_column": self.descriptor_column} if self.descriptor_column else {}
        return {
            "name": self.source,
            "sha256": sha256,
            "descriptors": self.descriptors,
            "filters": filters,
        } | varied

    def active_filters(self) -> dict[str, Any]:
        """Return the values that prompts must have, by column; `{}` or a null removes the default filter.

        >>> PromptSettings(filters={"axis": "age"}).active_filters()
        {'noun_phrase_type': ['descriptor_noun', 'noun_descriptor'], 'axis': 'age'}
        """
        filters = DEFAULT_FILTERS | self.filters if self.filters else {}
        if (self.language or self.file) and DEFAULT_FILTERS.items() <= filters.items():
            filters["noun_phrase_type"] = ["noun_descriptor"]  # the only order in language packs and files
        return {column: values for column, values in filters.items() if values is not None}
