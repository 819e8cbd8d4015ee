"""Settings that several families of metrics share, as strict pydantic models.

This module imports no slow libraries, because `--help` imports it.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, format_value, unknown_name
from evenhand.evaluation.files import is_gguf
from evenhand.evaluation.json_values import Json

AUTO = "auto"
# Whether a field is part of a run's identity: `json_schema_extra` of the field. Without any, its value is.
IDENTITY = "identity"
NOT_COMPARED: dict[str, JsonValue] = {IDENTITY: False}  # it changes no result
BY_CONTENT: dict[str, JsonValue] = {IDENTITY: "content"}  # a fingerprint of what the path or name leads to counts
WITHOUT_FLAG: dict[str, JsonValue] = {"flag": False}  # it stands in a file or in Python, never on the command line
NAME = "name"  # the field of a group that a plain value in place of the group sets
Fraction = Annotated[float, Field(gt=0, lt=1)]
NO_CHOICE = "none of these"  # a judge's option for an answer without a decision
MAX_COUNT = 2**31 - 1  # largest 32-bit integer
MAX_RESPONSE_CHARACTERS = 1_000_000  # a classifier reads some thousand; a text of 30 MB would take hours
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Concurrency = Annotated[int, Field(ge=1, le=1000)]  # connections at a time
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # range of numpy.random.seed, which transformers calls
REQUEST_PARTS = ("model", "messages", "prompt", "stream", "n")  # of a request, that no setting changes
SURROGATE = re.compile(r"[\ud800-\udfff]")  # Python's text for a byte of an argument that is not UTF-8
NOWHERE = "http://named-only-by-a-record.invalid/v1"  # RFC 6761, §6.4: no such name is ever found
SERVER_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
Api = Literal["chat", "completions"]  # of an OpenAI-compatible server
# Kinds of models that settings choose without naming them: modules of evaluation/models/kinds.
WEIGHTS = "weights"
SERVER = "server"
FILE = "file"
ARGUMENT = re.compile(r"[a-z][a-z0-9_]*")  # of a server's command line
LAUNCH_FIXED = ("model", "host", "port", "served_model_name", "revision", "generation_config")  # set by Evenhand
LOCAL_SOURCES = (None, WEIGHTS, FILE)  # of a model that sends nothing, unless it has a server
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Marker = Annotated[str, Field(min_length=1)]
NonBlank = Annotated[str, Field(strict=True, pattern=r"\S")]
MULTILINGUAL = "multilingual"  # the name of the shipped sentences of MultilingualHolisticBias
MULTILINGUAL_PROMPTS = Path(__file__).resolve().parent / "data" / "files" / "multilingual_holistic_bias" / "prompts.csv"
TABLE_SUFFIXES = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", ".json")  # of a table of prompts
SPLITS = ("balanced", "balanced_low_0", "sequential")  # ways in which accelerate splits a model over GPUs
# The ends of a server's address that name its API.
COMPLETIONS = "/completions"
CHAT_COMPLETIONS = "/chat/completions"
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


class Access(StrEnum):
    """What a model gives to those who measure it."""

    ANSWERS = "answers"
    LIKELIHOODS = "log-likelihoods of texts"
    PREDICTIONS = "predictions of tokens"
    WEIGHTS = "weights"


class StrictSettings(BaseModel):
    """The base of all settings: an unknown name is an error, and so is a value of a wrong type or out of range.

    A field is `name: type = Field(default, description="…")`, with the text for `--help` and the documentation.
    Every field is part of the identity of a run, unless its `json_schema_extra` is one of the constants above.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    def replaced(self, **changes: object) -> Self:
        """Return a copy with other values of some fields; all values are checked again."""
        return type(self)(**{**vars(self), **changes})


class NamedSettings(StrictSettings):
    """A group of settings with a field `name`. A string is short for {name: string}."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, values: object) -> object:
        if isinstance(values, (str, Path)):
            values = {NAME: values}
        return cls._with_parts({} if values is None else values)

    @classmethod
    def _with_parts(cls, values: object) -> object:
        """Return the values of a group, where a part of the name may be the value of another field."""
        return values


class CheckpointSettings(NamedSettings):
    """Settings of a network: the source of the weights, precision and devices. A string is short for {name: string}."""

    name: str = Field(
        default="",
        description="Hugging Face id, folder, adapter folder, GGUF file, or package:NAME/PATH",
        json_schema_extra=BY_CONTENT,
    )
    revision: str | None = Field(default=None, description="commit of the model on the hub; with `base`, of the base")
    base: str | None = Field(
        default=None,
        description="base model of an adapter, if it is elsewhere than the adapter's files say",
        json_schema_extra=BY_CONTENT | WITHOUT_FLAG,
    )
    dtype: Dtype = Field(default="float32", description="precision of the weights")
    device: str | dict[str, Any] = Field(
        default=AUTO,
        description="device, such as cpu, cuda, cuda:1 or mps; `auto`: a GPU if there is one; `balanced`: split the "
        "model over all GPUs; {module: device}: split it as given",
        json_schema_extra=NOT_COMPARED,
    )
    attn_implementation: str | None = Field(
        default=None,
        description="implementation of attention, such as eager or sdpa; null: the default of transformers",
        json_schema_extra=WITHOUT_FLAG,
    )
    quantization: Literal["4bit", "8bit"] | None = Field(
        default=None, description="quantization of the weights by bitsandbytes (evenhand[quantization])"
    )
    trust_remote_code: bool = Field(default=False, description="whether code that comes with the model may be executed")

    @property
    def device_map(self) -> str | dict[str, Any] | None:
        """How a model is split over devices, as accelerate takes it; None for a model on one device."""
        return self.device if isinstance(self.device, dict) or self.device in SPLITS else None


class ModelSettings(CheckpointSettings):
    """Settings of a measured model, loaded or on a server, and its system prompt. A string is short for its name."""

    dtype: Dtype = Field(
        default=AUTO,
        description="precision of the weights; `auto`: bfloat16 if the device computes in it, else float32",
    )
    system_prompt: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="system message before every prompt, or the first line if the model has no chat template",
    )
    chat_template: Path | None = Field(
        default=None,
        description="Jinja file of the chat template, in place of the tokenizer's",
        json_schema_extra=BY_CONTENT,
    )
    reasoning: Annotated[list[Marker], Field(min_length=2, max_length=2)] | None = Field(
        default=None,
        description="[start, end] markers of the model's reasoning, in addition to the known ones; null: the known "
        "ones only",
    )
    strip: list[str] | None = Field(
        default=None,
        description="kinds of other text that are removed from the answers of a server or a file, such as "
        "[role, echo]; a report names the kinds that it finds",
    )
    adapter_strength: Positive | None = Field(default=None, description="factor of a LoRA adapter's change; null: 1")
    source: str | None = Field(
        default=None,
        description="kind of the model: weights, server, litellm (any provider), or a file of your own; null: server "
        "if `server` is given, else weights",
    )
    server: str | None = Field(
        default=None,
        description="OpenAI-compatible server of the model, http://host:port/v1 (evenhand[server]); for likelihoods "
        "http://host:port/v1/completions",
    )
    launch: Literal["vllm", "transformers"] | None = Field(
        default=None,
        description="server of the model to start for the measurement: vllm or transformers (`transformers serve`)",
        json_schema_extra=WITHOUT_FLAG,
    )
    launch_arguments: dict[str, Any] | None = Field(
        default=None,
        description="arguments of the server that is started, such as {tensor_parallel_size: 8, dtype: bfloat16}",
        json_schema_extra=WITHOUT_FLAG,
    )
    concurrency: Concurrency = Field(
        default=16, description="concurrent requests to the server", json_schema_extra=NOT_COMPARED
    )
    request: dict[str, Any] | None = Field(
        default=None,
        description="fields to add to each request to the server, such as {reasoning_effort: low}; a null removes a "
        "field",
    )
    tokenizer: str | None = Field(
        default=None,
        description="tokenizer of a served model, with which the server scores responses (relevance, perplexity); "
        "null: none, and for sentences that of the model's name",
        json_schema_extra=BY_CONTENT,
    )

    @property
    def kind(self) -> str:
        """The name of the model's kind, a module of evaluation/models/kinds."""
        return self.source or (SERVER if self.server or self.launch else WEIGHTS)

    @property
    def api(self) -> Api:
        """The API of the server, by its address."""
        return server_api(self.server)

    @property
    def base_url(self) -> str:
        """The address of the server without its API."""
        return base_url(self.server or "")

    @property
    def address(self) -> str:
        """The server, or the kind, and the name of the model, for messages."""
        return f"{self.base_url or self.kind} (model {self.name})"

    @model_validator(mode="after")
    def _check_strip(self) -> Self:
        if self.strip:
            from evenhand.evaluation.data.language.other_text import removable  # reads a file

            for name in self.strip:
                if name not in removable():
                    raise unknown_name("strip", name, removable())
        return self

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if fixed := [name for name in REQUEST_PARTS if name in (self.request or {})]:
            raise InputError("request", f"{fixed[0]!r} is set by Evenhand for each prompt; leave it out.")
        if self.server is not None and not SERVER_URL.fullmatch(self.server):
            raise InputError(
                "server",
                "the URL must be http://HOST:PORT/v1 or https://…, without user name, password or query; set "
                "EVENHAND_API_KEY if the server needs a key.",
            )
        self._check_launch()
        if self.tokenizer is not None and self.server is None and self.launch is None:
            raise InputError("tokenizer", f"{self.tokenizer!r} is for served models only; give model.server, too.")
        if self.kind == WEIGHTS:
            self._check_weights()
        else:
            self._check_other_source()
        return self

    def _check_launch(self) -> None:
        """Raise InputError if the settings of a server that is started do not fit together."""
        if self.launch is None:
            if self.launch_arguments is not None:
                raise InputError("launch_arguments", "no server is started; give launch: vllm or transformers, too.")
            return
        if self.server is not None or self.kind != SERVER:
            raise InputError("launch", f"{self.server or self.kind} has the model; give one of the two.")
        if self.name.startswith("-"):
            raise InputError("name", f"{self.name!r} would be read as an argument of the server; rename the folder.")
        for name in self.launch_arguments or {}:
            if not ARGUMENT.fullmatch(name):
                raise InputError(
                    "launch_arguments", f"{name!r} is no name of an argument; write it like tensor_parallel_size."
                )
            if name in LAUNCH_FIXED:
                raise InputError("launch_arguments", f"{name!r} is set by Evenhand; leave it out.")

    def _check_weights(self) -> None:
        """Raise InputError if settings cannot be used for weights."""
        if self.server is not None:
            raise InputError("source", f"{WEIGHTS!r}, but {self.server} has the model; give one of the two.")
        if self.quantization is not None and is_gguf(self.name):
            raise InputError("quantization", f"{self.quantization!r}; a GGUF file is dequantized to dtype; omit it.")

    def _check_other_source(self) -> None:
        """Raise InputError if settings are for weights, or the model has no name."""
        if not self.name:
            where = self.server or self.kind
            raise InputError("name", f"give the name of the model on {where}, {spelled('model', 'NAME')}.")
        default = CheckpointSettings(name=self.name, revision=self.revision)
        if self.dtype == AUTO:
            default.dtype = AUTO  # runs of earlier versions have float32
        names = [*vars(default), "adapter_strength"]
        changed = next((name for name in names if getattr(self, name) != getattr(default, name, None)), None)
        if changed is not None:
            raise InputError(changed, f"{self.server or self.kind} determines how its model runs; leave this out.")


def server_api(address: str | None) -> Api:
    """Return the API of a server by its address; chat, unless the address says another.

    >>> server_api("http://host/v1"), server_api("http://host/v1/completions")
    ('chat', 'completions')
    """
    path = (address or "").rstrip("/")
    return "completions" if path.endswith(COMPLETIONS) and not path.endswith(CHAT_COMPLETIONS) else "chat"


def base_url(address: str) -> str:
    """Return the address of a server without the API at its end.

    >>> base_url("http://host/v1/completions"), base_url("http://host/v1")
    ('http://host/v1', 'http://host/v1')
    """
    path = address.rstrip("/")
    for end in (CHAT_COMPLETIONS, COMPLETIONS):
        if path.endswith(end):
            return path.removesuffix(end)
    return address


class ResponseFileSettings(NamedSettings):
    """A file of responses to score, in place of a model. A string is short for {name: string}."""

    name: Path | None = Field(
        default=None, description="table or log of responses; no model is loaded", json_schema_extra=BY_CONTENT
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="{column: its name in the file, or a path such as metadata.group} for text, response, "
        "descriptor, date, …",
    )
    since_day: str | None = Field(
        default=None, description="only responses of this day and later, by the column `date`"
    )
    before_day: str | None = Field(default=None, description="only responses before this day, such as 2026-08-31")

    @model_validator(mode="after")
    def _check_file(self) -> Self:
        for name in ("columns", "since_day", "before_day"):
            value = getattr(self, name)
            if value and self.name is None:
                raise InputError(name, f"{value} is given without a file; give {spelled('responses', 'FILE')}, too.")
        since, before = self.period
        if since is not None and before is not None and since >= before:
            raise InputError("before_day", f"{before} is not after `since_day`, {since}; exchange them.")
        return self

    @property
    def period(self) -> tuple[date | None, date | None]:
        """The first day of the responses, and the day before which they are; None: all."""
        return _day("since_day", self.since_day), _day("before_day", self.before_day)


def _day(name: str, value: str | None) -> date | None:
    """Return the day that a setting names; InputError if it is none."""
    try:
        return None if value is None else date.fromisoformat(value)
    except ValueError:
        raise InputError(name, f"{format_value(value)} is no day; give one such as 2026-08-31.") from None


class ServedJudge(NamedSettings):
    """Settings of an LLM on a server that names one of several options."""

    server: str | None = Field(
        default=None,
        description="OpenAI-compatible server of the judge (evenhand[server]), http://host:port/v1 or "
        "http://host:port/v1/completions",
    )
    concurrency: Concurrency = Field(
        default=16, description="concurrent requests to the server", json_schema_extra=NOT_COMPARED | WITHOUT_FLAG
    )
    samples: Count = Field(
        default=5,
        description="answers for each text, if the server gives no log-probabilities",
        json_schema_extra=WITHOUT_FLAG,
    )
    cache: Path | None = Field(
        default=None,
        description="SQLite file of judgements; null: in the user's cache folder",
        json_schema_extra=NOT_COMPARED | WITHOUT_FLAG,
    )

    @property
    def api(self) -> Api:
        """The API of the server, by its address."""
        return server_api(self.server)


class JudgeSettings(ServedJudge):
    """Settings of an LLM judge. A string is short for {name: string}."""

    name: str = Field(
        default="go_emotions",
        description="labels and instruction: 'go_emotions' or a YAML file",
        json_schema_extra=BY_CONTENT,
    )


class ClassifierSettings(NamedSettings):
    """A sequence classifier, on a GPU if there is one. A string is short for {name: string}.

    Its precision is float32, and no code that comes with it is executed. Its config says what its outputs mean; a file
    of settings can correct the config.
    """

    name: str = Field(
        default="", description="Hugging Face id, NAME@REVISION, or a folder", json_schema_extra=BY_CONTENT
    )
    revision: str | None = Field(
        default=None,
        description="commit of the classifier on the hub, also as NAME@REVISION",
        json_schema_extra=WITHOUT_FLAG,
    )
    head: Literal["softmax", "sigmoid"] | None = Field(
        default=None,
        description="sigmoid: a text may have several labels; null: by problem_type in its config",
        json_schema_extra=WITHOUT_FLAG,
    )
    label_names: Path | None = Field(
        default=None,
        description="text file with the name of each label, one a line; null: as in its config",
        json_schema_extra=WITHOUT_FLAG,
    )

    @classmethod
    def _with_parts(cls, values: object) -> object:
        if not isinstance(values, Mapping) or values.get("revision") is not None:
            return values
        name, at, revision = str(values.get(NAME) or "").rpartition("@")
        if not at or "/" in revision or not name:  # a folder may have an @ in its name
            return values
        return {**values, NAME: name, "revision": revision}

    def checkpoint(self) -> CheckpointSettings:
        """Return the settings by which the classifier is loaded."""
        return CheckpointSettings(name=self.name, revision=self.revision)


class StyleClassifierSettings(ClassifierSettings):
    """Settings of a style classifier: a checkpoint or an LLM judge. A string is short for {name: string}."""

    name: str = Field(
        default="",
        description="go_emotions or go_emotions_second (shipped), a Hugging Face id, NAME@REVISION, or a folder",
        json_schema_extra=BY_CONTENT,
    )
    judge: JudgeSettings | None = Field(
        default=None,
        description="an LLM that judges styles; the name of the classifier is the name of its model",
    )

    @model_validator(mode="after")
    def _check_judge(self) -> Self:
        if self.judge is not None:
            if self.judge.server is None:
                raise InputError("judge.server", "a judge needs one; give http://HOST:PORT/v1, and its model as name.")
            self.served_model()  # its settings are checked
        return self

    def served_model(self) -> ModelSettings:
        """Return the settings of a judge's model."""
        judge = self.judge
        if judge is None:
            raise InputError("judge", f"{self.name} is a classifier, and no judge on a server.")
        return ModelSettings(name=self.name, revision=self.revision, server=judge.server, concurrency=judge.concurrency)


class DecisionJudgeSettings(ServedJudge):
    """Settings of an LLM that reads decisions. A string is short for {name: string}."""

    name: str = Field(default="", description="the judge's model on its server", json_schema_extra=WITHOUT_FLAG)
    server: str | None = Field(
        default=None, description="OpenAI-compatible server of the judge", json_schema_extra=WITHOUT_FLAG
    )

    @model_validator(mode="after")
    def _check_judge(self) -> Self:
        if not self.name or self.server is None:
            raise InputError("judge", "it needs a model and a server; give {name: MODEL, server: http://HOST:PORT/v1}.")
        self.classifier.served_model()  # its settings are checked
        return self

    @property
    def classifier(self) -> StyleClassifierSettings:
        """The judge as a classifier; its labels are the choices, in place of those of a file."""
        judge = {name: getattr(self, name) for name in ServedJudge.model_fields}
        return StyleClassifierSettings(name=self.name, judge=JudgeSettings(**judge))


class OffensiveClassifierSettings(ClassifierSettings):
    """Settings of a classifier of offensive texts. A string is short for {name: string}."""

    name: str | None = Field(
        default=None,
        description="sequence classifier: an id, NAME@REVISION or a folder; null: not measured",
        json_schema_extra=BY_CONTENT,
    )
    label: str | None = Field(default=None, description="the classifier's label that means offensive")


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
    def _check_source(self) -> Self:
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
        if self.file and self.untuned_by:
            raise InputError("untuned_by", "a prompts file is split by split_by; give a dataset, or leave this out.")
        for person, n in (self.more_answers or {}).items():
            if n <= self.answers_per_cell:
                raise InputError(
                    "more_answers", f"{person!r} gets {n}, and everybody {self.answers_per_cell}; omit it."
                )
        if self.more_answers and self.is_own:
            raise InputError("more_answers", "only people of a taxonomy get more; omit it, or give a dataset.")
        if self.cues and (self.file or self.variations or self.personas != "none"):
            raise InputError("cues", "their prompts have no file, personas or variations; leave these out.")
        if self.language and (self.file or self.cues or self.variations or self.personas in ("default", "paper")):
            raise InputError(
                "language",
                "a file of prompts has its language, and cues, variations and personas are English; omit these.",
            )
        if self.train_file and (self.split_by or not self.file):
            fix = (
                "give train_file or split_by, not both"
                if self.file
                else "give a table of prompts as prompts.dataset, too"
            )
            raise InputError("train_file", f"{self.train_file} cannot be used so; {fix}.")
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


class DecodingSettings(StrictSettings):
    """Settings of the generation of responses."""

    preset: Literal["sample", "paper"] = Field(
        default="sample", description="'paper': beam search, length ≥ 20, 3-gram blocking (A.4)"
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="arguments of `generate` that override the preset"
    )
    batch_size: Count = Field(
        default=128, description="number of contexts in a batch", json_schema_extra=NOT_COMPARED | WITHOUT_FLAG
    )

    def title(self) -> str:
        """Return the name of these decoding settings in reports.

        >>> DecodingSettings(preset="sample", arguments={"temperature": 0.7}).title()
        'sample, temperature 0.7'
        """
        return ", ".join([self.preset, *(f"{name} {value}" for name, value in self.arguments.items())])


def as_settings(settings: object) -> Any:
    """Return settings as plain YAML values, without the fields that are None by default and are None."""
    if isinstance(settings, BaseModel):
        return {name: as_settings(value) for name, value, _ in _values(settings)}
    if isinstance(settings, dict):
        return {key: as_settings(value) for key, value in settings.items()}
    if isinstance(settings, (list, tuple)):
        return [as_settings(item) for item in settings]
    return str(settings) if isinstance(settings, Path) else settings


def checked(cls: type, values: object, source: str) -> Any:
    """Return an instance of a settings class from nested plain values, after a check of every key, type and range.

    In Python, paths may be given as `Path`.

    Raises:
        InputError: a key is unknown; a value has the wrong type or is out of range. The one-line message begins with
            `source` and has the dotted name of each wrong setting.
    """
    values = _with_texts_for_paths(values)
    if faults := list(_unusable("", values)):
        raise InputError(source, f"{'; '.join(faults)}")
    try:
        settings = TypeAdapter(cls).validate_python(values)
    except ValidationError as error:
        raise InputError(source, f"{'; '.join(_describe(each, cls) for each in error.errors())}") from None
    if faults := list(_booleans_for_numbers("", values, settings)):
        raise InputError(source, f"{'; '.join(faults)}")
    return settings


def _with_texts_for_paths(values: Any) -> Any:
    """Return nested values with a text in place of each `Path`."""
    if isinstance(values, Path):
        return str(values)
    if isinstance(values, Mapping):
        return {key: _with_texts_for_paths(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_with_texts_for_paths(value) for value in values]
    return values


def _items(values: object) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of a mapping, or the numbers and items of a list; nothing of other values."""
    if isinstance(values, Mapping):
        yield from ((str(key), value) for key, value in values.items())
    elif isinstance(values, list | tuple):
        yield from ((str(number), value) for number, value in enumerate(values))


def _unusable(name: str, value: object) -> Iterator[str]:
    """Yield a fault for each value that no file name can have, no library can read, or no record of a run can hold."""
    if isinstance(value, str) and "\0" in value:
        yield f"{name}: {format_value(value)} has a null character; leave it out."
    elif isinstance(value, str) and SURROGATE.search(value):
        yield f"{name}: {format_value(value)} is not UTF-8, in which runs record their settings; give another."
    elif isinstance(value, int) and abs(value) >= 2**63:
        yield f"{name}: the integer has {len(format(abs(value), 'x'))} hexadecimal digits; give a smaller one."
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{name}: {value} is not finite; give a finite number."
    elif isinstance(value, date | bytes | set | frozenset):  # of the tags !!timestamp, !!binary and !!set in YAML
        yield f"{name}: {format_value(value)} is no text, number, list or mapping; write it as a text."
    for key, item in _items(value):
        yield from _unusable(f"{name}.{key}" if name else key, item)


def _booleans_for_numbers(name: str, given: object, settings: object) -> Iterator[str]:
    """Yield a fault for each boolean that became a number; pydantic takes true for 1."""
    if isinstance(given, bool) and not isinstance(settings, bool) and isinstance(settings, int | float):
        yield f"{name}: {given} cannot be used: it is not a number."
    for key, item in _items(given):
        if isinstance(given, Mapping):
            value = settings.get(key) if isinstance(settings, Mapping) else getattr(settings, key, None)
        else:
            value = settings[int(key)] if isinstance(settings, list | tuple) and int(key) < len(settings) else None
        yield from _booleans_for_numbers(f"{name}.{key}" if name else key, item, value)


def group_of(annotation: Any) -> type[BaseModel] | None:
    """Return the class of a group of settings by the type of its field, which may be optional; None for a value."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _describe(error: Mapping[str, Any], cls: Any) -> str:
    """Return one of pydantic's errors with the dotted name of the setting, of settings of the class `cls`."""
    location = list(map(str, error["loc"]))
    dotted = ".".join(location)
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # it names a field of the group
        return ".".join([*location, str(cause)])
    if error["type"] == "extra_forbidden":
        return f"{dotted}: {_unknown_setting(location, cls)}"
    if error["type"] == "missing":
        return f"{dotted}: it is missing; give a value."
    return f"{dotted}: {format_value(error['input'])} cannot be used: {error['msg']}."


def _unknown_setting(location: Sequence[str], cls: Any) -> str:
    """Return what is wrong with the name of a setting that does not exist, and the name that may have been meant."""
    *groups, name = location
    for group in groups:
        field = cls.model_fields.get(group) if cls is not None else None
        cls = None if field is None else group_of(field.annotation)
    close = get_close_matches(name, cls.model_fields, n=1) if cls is not None else []
    if close:
        return f"there is no such setting; did you mean {close[0]!r}?"
    return "there is no such setting; leave it out."


def identity_of(settings: object, *, with_paths: bool = False) -> dict[str, object]:
    """Return the settings that are part of a run's identity, as plain YAML values by dotted name.

    `with_paths` includes the fields with the identity "content": paths and names whose content counts.
    """
    return dict(_identity("", settings, (True, "content") if with_paths else (True,)))


def _identity(name: str, value: object, kinds: tuple[bool | str, ...]) -> Iterator[tuple[str, object]]:
    if isinstance(value, BaseModel):
        items = [(field, item) for field, item, extra in _values(value) if extra.get(IDENTITY, True) in kinds]
    elif isinstance(value, Mapping):
        items = list(value.items())
    else:
        yield name, as_settings(value)
        return
    for key, item in items:
        yield from _identity(f"{name}.{key}" if name else str(key), item, kinds)


def _values(settings: BaseModel) -> Iterator[tuple[str, object, Mapping[str, object]]]:
    """Yield name, value and declaration of each field, except the fields that are None by default and are None.

    So a setting that is added later, with null as its default, changes the identity of no run without it.
    """
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        declared = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if value is not None or field.default is not None:
            yield name, value, declared
