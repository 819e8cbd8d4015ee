"""Settings of models, servers, files of responses, judges and classifiers, and of the generation of responses.

This module imports no slow libraries, because `--help` imports it.
"""

import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, format_value, unknown_name
from evenhand.evaluation.files import is_gguf
from evenhand.evaluation.settings import (
    AUTO,
    BY_CONTENT,
    NAME,
    NOT_COMPARED,
    WITHOUT_FLAG,
    Count,
    NamedSettings,
    Positive,
    StrictSettings,
)

NO_CHOICE = "none of these"  # a judge's option for an answer without a decision
MAX_RESPONSE_CHARACTERS = 1_000_000  # a classifier reads some thousand; a text of 30 MB would take hours
Concurrency = Annotated[int, Field(ge=1, le=1000)]  # connections at a time
REQUEST_PARTS = ("model", "messages", "prompt", "stream", "n")  # of a request, that no setting changes
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
Marker = Annotated[str, Field(min_length=1)]
SPLITS = ("balanced", "balanced_low_0", "sequential")  # ways in which accelerate splits a model over GPUs
# The ends of a server's address that name its API.
COMPLETIONS = "/completions"
CHAT_COMPLETIONS = "/chat/completions"
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


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
    """Settings of a measured model, loaded or on a server, and its system prompt. A string is the model's name."""

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
    """Return the date in a setting; InputError if it is not a date."""
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
