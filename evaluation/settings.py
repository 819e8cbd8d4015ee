"""Settings that several families of metrics share, as strict dataclasses.

This module imports no slow libraries, because `--help` imports it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.models.revisions import is_gguf

AUTO = "auto"
OMIT_IF_NULL, IDENTITY, CONTENT = "omit_if_null", "identity", "content"
NAME = "name"  # the field of a group that a plain value in place of the group sets
Fraction = Annotated[float, Field(gt=0, lt=1)]
MAX_COUNT = 2**31 - 1  # largest 32-bit integer
MAX_RESPONSE_CHARACTERS = 1_000_000  # a classifier reads some thousand; a text of 30 MB would take hours
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Concurrency = Annotated[int, Field(ge=1, le=1000)]  # connections at a time
PerCell = Annotated[int, Field(ge=1, le=MAX_COUNT)]
FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # range of numpy.random.seed, which transformers calls
AnyPath = Path  # path of a file or folder
REQUEST_PARTS = ("model", "messages", "prompt", "stream", "n")  # of a request, that no setting changes
SERVER_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
ReportTo = Literal["wandb", "none"]
Strength = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Marker = Annotated[str, Field(min_length=1)]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]

strict_dataclass = dataclass(config=ConfigDict(extra="forbid"), kw_only=True)


def option(
    default: Any, description: str, *, identity: bool | Literal["content"] = True, omit_if_null: bool = False
) -> Any:
    """Return a dataclass field with a description.

    Args:
        default: the default, or a function that returns the default.
        description: the text for `--help` and the documentation.
        identity: whether the value is part of the identity of a run. With "content", a run's inputs have a fingerprint
            of what the path or name leads to, and that counts instead of the value.
        omit_if_null: `as_settings` omits the field if its value is None.
    """
    extra = {IDENTITY: identity} | ({OMIT_IF_NULL: True} if omit_if_null else {})
    if callable(default):
        return Field(default_factory=default, description=description, json_schema_extra=extra)
    return Field(default=default, description=description, json_schema_extra=extra)


@strict_dataclass
class NamedSettings:
    """A group of settings with a field `name`. A string is short for {name: string}."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, values: Any) -> Any:
        if isinstance(values, (str, Path)):
            return {NAME: values}
        return {} if values is None else values


@strict_dataclass
class CheckpointSettings(NamedSettings):
    """Settings of a network: the source of the weights, precision and devices. A string is short for {name: string}."""

    name: str = option("", "Hugging Face id, folder, adapter folder, GGUF file, or package:NAME/PATH", identity=CONTENT)
    revision: str | None = option(None, "commit of the model on the hub, or of base if base is set")
    base: str | None = option(None, "base of an adapter; null: as in the adapter's files", identity=CONTENT)
    dtype: Dtype = option("float32", "precision of the weights; 'auto': as in the checkpoint")
    device: str = option(AUTO, "'cpu', 'cuda', 'cuda:1', 'mps'; 'auto': a GPU if there is one", identity=False)
    device_map: str | dict[str, Any] | None = option(None, "'auto' or {module: device}; null: one", identity=False)
    attn_implementation: str | None = option(None, "'eager', 'sdpa', …; null: the default of transformers")
    quantization: Literal["4bit", "8bit"] | None = option(None, "bitsandbytes (evenhand[quantization]); null: none")
    trust_remote_code: bool = option(False, "run code from the checkpoint")

    def __post_init__(self) -> None:
        if self.device_map is not None and self.device != AUTO:
            raise InputError(
                "device", f"{self.device!r} cannot be combined with device_map {self.device_map!r}; give one of them."
            )


@strict_dataclass
class ModelSettings(CheckpointSettings):
    """Settings of a measured model, loaded or on a server, and its system prompt. A string is short for its name."""

    system_prompt: Annotated[str, Field(min_length=1)] | None = option(
        None, "text before every prompt: a system message, or a line without a chat template; null: none"
    )
    chat_template: AnyPath | None = option(
        None, "Jinja file of the chat template, in place of the tokenizer's", identity=CONTENT, omit_if_null=True
    )
    reasoning: Annotated[list[Marker], Field(min_length=2, max_length=2)] | None = option(
        None, "[start, end] of its reasoning, in addition to the known markers; null: only these", omit_if_null=True
    )
    adapter_strength: Strength | None = option(None, "factor of a LoRA adapter's change; null: 1", omit_if_null=True)
    server: str | None = option(None, "OpenAI-compatible server (evenhand[server]), http://host:port/v1; null: none")
    api: Literal["chat", "completions"] = option("chat", "API of the server; likelihoods need completions")
    concurrency: Concurrency = option(16, "concurrent requests to the server", identity=False)
    request: dict[str, Any] | None = option(
        None,
        "merged into each request to the server, such as {reasoning_effort: low}; a null in it removes a parameter",
        omit_if_null=True,
    )
    tokenizer: str | None = option(None, "of a served model, for likelihoods; null: by its name", identity=CONTENT)

    def __post_init__(self) -> None:
        CheckpointSettings.__post_init__(self)
        if fixed := [name for name in REQUEST_PARTS if name in (self.request or {})]:
            raise InputError("request", f"{fixed[0]!r} is set by Evenhand for each prompt; leave it out.")
        if self.server is None:
            if self.quantization is not None and is_gguf(self.name):
                raise InputError(
                    "quantization", f"{self.quantization!r}; a GGUF file is dequantized to dtype; omit it."
                )
            if self.tokenizer is not None:
                raise InputError("tokenizer", f"{self.tokenizer!r} is for served models only; give model.server, too.")
            return
        if not SERVER_URL.fullmatch(self.server):
            raise InputError(
                "server",
                "the URL must be http://HOST:PORT/v1 or https://…, without user name, password or query; set "
                "EVENHAND_API_KEY if the server needs a key.",
            )
        if not self.name:
            raise InputError("name", f"give the name of the model on {self.server}, --model NAME.")
        loaded = CheckpointSettings(name=self.name, revision=self.revision)
        names = [*vars(loaded), "adapter_strength"]
        if changed := next((name for name in names if getattr(self, name) != getattr(loaded, name, None)), None):
            raise InputError(changed, f"the server {self.server} determines how its model runs; leave this out.")


@strict_dataclass
class ResponseFileSettings(NamedSettings):
    """A file of responses to score, in place of a model. A string is short for {name: string}."""

    name: AnyPath | None = option(None, "table or log to score; no model is loaded", identity=CONTENT)
    columns: dict[str, str] = option(
        dict, "{column: its name in the file, or a path such as metadata.group} for text, response, descriptor, …"
    )

    def __post_init__(self) -> None:
        if self.columns and self.name is None:
            raise InputError("columns", f"{self.columns} are given without a file; give --responses FILE, too.")


@strict_dataclass
class JudgeSettings(NamedSettings):
    """Settings of an LLM judge. A string is short for {name: string}."""

    name: str = option("go_emotions", "labels and instruction: 'go_emotions' or a YAML file", identity=CONTENT)
    server: str | None = option(None, "OpenAI-compatible server of the judge (evenhand[server]), http://host:port/v1")
    api: Literal["chat", "completions"] = option("chat", "API of the server")
    concurrency: Concurrency = option(16, "concurrent requests to the server", identity=False)
    samples: Count = option(5, "answers for each text, if the server gives no log-probabilities")
    cache: AnyPath | None = option(None, "SQLite file of judgements; null: in the user's cache folder", identity=False)


@strict_dataclass
class HeadSettings(CheckpointSettings):
    """Settings of a sequence classifier and of what its outputs mean. A string is short for {name: string}."""

    head: Literal["softmax", "sigmoid"] | None = option(
        None, "sigmoid: a text may have several labels; null: by problem_type in its config", omit_if_null=True
    )
    label_names: AnyPath | None = option(
        None, "text file with the name of each label, one a line; null: as in its config", omit_if_null=True
    )


@strict_dataclass
class StyleClassifierSettings(HeadSettings):
    """Settings of a style classifier: a checkpoint or an LLM judge. A string is short for {name: string}."""

    judge: JudgeSettings | None = option(None, "an LLM on a server, whose model is name; null: none", omit_if_null=True)

    def __post_init__(self) -> None:
        CheckpointSettings.__post_init__(self)
        if self.judge is not None:
            if self.judge.server is None:
                raise InputError("judge.server", "a judge needs one; give http://HOST:PORT/v1, and its model as name.")
            checkpoint = {field.name: getattr(self, field.name) for field in fields(CheckpointSettings)}
            ModelSettings(**checkpoint, server=self.judge.server)

    def served_model(self) -> ModelSettings:
        """Return the settings of a judge's model."""
        judge = self.judge
        return ModelSettings(
            name=self.name, revision=self.revision, server=judge.server, api=judge.api, concurrency=judge.concurrency
        )


@strict_dataclass
class ClassifierSettings(HeadSettings):
    """Settings of a classifier of offensive texts. A string is short for {name: string}."""

    name: str | None = option(None, "sequence classifier, id or folder; null: not measured", identity=CONTENT)
    label: str | None = option(None, "label that means offensive")


DEFAULT_FILTERS = {"noun_phrase_type": ["descriptor_noun", "noun_descriptor"]}  # for columns without a filter


@strict_dataclass
class PromptSettings:
    """Settings of the prompts: source, filters, number, and split into training and test."""

    dataset: str = option("paper", "taxonomy: 'paper', 'more', 'v1.0', 'v1.1', or such a folder", identity=CONTENT)
    language: str | None = option(
        None,
        "language pack, such as 'es'; dataset is then MMHB's file of descriptors; null: English",
        omit_if_null=True,
    )
    file: AnyPath | None = option(None, "table of prompts, each repeated answers_per_cell times", identity=CONTENT)
    templates: AnyPath | None = option(
        None, "file of templates with {person}, filled with prompts.people", identity=CONTENT, omit_if_null=True
    )
    people: AnyPath | None = option(
        None, "file of people: one a line, or columns, which are crossed", identity=CONTENT, omit_if_null=True
    )
    train_file: AnyPath | None = option(None, "table of prompts to train on", identity=CONTENT)
    descriptor_column: str | None = option(None, "column whose values are compared; null: 'descriptor'")
    filters: dict[str, Any] = option(
        lambda: dict(DEFAULT_FILTERS), "{column: values} of the prompts to use; noun_phrase_type has a default"
    )
    split_by: str | None = option(None, "column whose values the splits do not share; null: noun, or none for a file")
    train_fraction: Fraction = option(0.5, "share of the values of split_by for training")
    untuned_by: Literal["descriptor", "axis", "template", "cue"] | None = option(
        None, "exclude some of these from training"
    )
    untuned_fraction: Fraction = option(0.5, "share of them that training excludes")
    descriptors: Annotated[int, Field(ge=2)] | None = option(200, "descriptors to sample by axis; null: all")
    answers_per_cell: PerCell = option(
        4, "responses per (template, descriptor); 1 is enough, FGB* and shares of variance need 2"
    )
    personas: str = option("none", "'none', 'default' or a file", identity=CONTENT)
    cues: list[Literal["mention", "earlier_turn", "profile", "third_person"]] = option(
        list, "how the model knows the person: everyday requests in place of the paper's templates (chat models)"
    )
    requests: Annotated[int, Field(ge=1)] | AnyPath | None = option(
        None,
        "with cues: a file of requests, one a line, or a number of the shipped 60; null: all",
        identity=CONTENT,
    )
    variations: bool = option(False, "apply each stylistic variation (Smith et al. 2022, A.3) with probability 1/2")

    def __post_init__(self) -> None:
        if (self.templates is None) != (self.people is None):
            raise InputError(
                "templates", "templates and people belong together; give both prompts.templates and people."
            )
        if self.templates and (self.file or self.cues or self.language or self.variations or self.personas != "none"):
            raise InputError("templates", "with people they are the prompts; omit file, cues, language and personas.")
        if self.templates and (self.untuned_by or self.descriptor_column):
            raise InputError("templates", "untuned_by and descriptor_column are for other prompts; leave them out.")
        if self.file and self.untuned_by:
            raise InputError("untuned_by", "a prompts file is split by split_by; give a dataset, or leave this out.")
        if self.cues and (self.file or self.variations or self.personas != "none"):
            raise InputError("cues", "their prompts have no file, personas or variations; leave these out.")
        if self.language and (self.file or self.cues or self.variations or self.personas == "default"):
            raise InputError(
                "language", "a file has its own, and cues, variations and personas are English; omit these."
            )
        if self.train_file and (self.split_by or not self.file):
            fix = "give train_file or split_by, not both" if self.file else "give prompts.file, too"
            raise InputError("train_file", f"{self.train_file} cannot be used so; {fix}.")

    @property
    def source(self) -> str:
        """The name of the prompts: of their file, their templates or their dataset."""
        return str(self.file or self.templates or self.dataset)

    @property
    def is_own(self) -> bool:
        """Whether the prompts are a file, or templates and people."""
        return bool(self.file or self.templates)

    def signature(self, sha256: str) -> dict[str, Any]:
        """Return the part of a score's signature that identifies the prompts; `sha256` is the prompts' hash."""
        filters = self.active_filters()
        varied = {"variations": True} if self.variations else {}
        varied |= {"language": self.language} if self.language else {}
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
            filters["noun_phrase_type"] = ["noun_descriptor"]  # the only order of these
        return {column: values for column, values in filters.items() if values is not None}


@strict_dataclass
class DecodingSettings:
    """Settings of the generation of responses."""

    preset: Literal["sample", "paper"] = option("sample", "'paper': beam search, length ≥ 20, 3-gram blocking (A.4)")
    arguments: dict[str, Any] = option(dict, "arguments of `generate` that override the preset")
    batch_size: Count = option(128, "contexts per batch", identity=False)

    def title(self) -> str:
        """Return the name of these decoding settings in reports.

        >>> DecodingSettings(preset="sample", arguments={"temperature": 0.7}).title()
        'sample, temperature 0.7'
        """
        return ", ".join([self.preset, *(f"{name} {value}" for name, value in self.arguments.items())])


def as_settings(settings: Any) -> Any:
    """Return settings as plain YAML values, without the `omit_if_null` fields that are None."""
    if is_dataclass(settings):
        return {name: as_settings(value) for name, value, _ in _values(settings)}
    if isinstance(settings, dict):
        return {key: as_settings(value) for key, value in settings.items()}
    if isinstance(settings, (list, tuple)):
        return [as_settings(item) for item in settings]
    return str(settings) if isinstance(settings, Path) else settings


def checked(cls: type, values: Any, source: str) -> Any:
    """Return an instance of a settings class from nested plain values, after a check of every key, type and range.

    Raises:
        InputError: a key is unknown; a value has the wrong type or is out of range. The one-line message begins with
            `source` and has the dotted name of each wrong setting.
    """
    if faults := list(_unusable("", values)):
        raise InputError(source, f"{'; '.join(faults)}")
    try:
        settings = TypeAdapter(cls).validate_python(values)
    except ValidationError as error:
        raise InputError(source, f"{'; '.join(map(_describe, error.errors()))}") from None
    if faults := list(_booleans_for_numbers("", values, settings)):
        raise InputError(source, f"{'; '.join(faults)}")
    return settings


def _items(values: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a mapping, or the numbers and items of a list; nothing of other values."""
    if isinstance(values, Mapping):
        yield from ((str(key), value) for key, value in values.items())
    elif isinstance(values, list | tuple):
        yield from ((str(number), value) for number, value in enumerate(values))


def _unusable(name: str, value: Any) -> Iterator[str]:
    """Yield a fault for each text that no file name can have, and for each integer that no library can read."""
    if isinstance(value, str) and "\0" in value:
        yield f"{name}: {format_value(value)} has a null character; leave it out."
    elif isinstance(value, int) and abs(value) >= 2**63:
        yield f"{name}: the integer has {len(format(abs(value), 'x'))} hexadecimal digits; give a smaller one."
    for key, item in _items(value):
        yield from _unusable(f"{name}.{key}" if name else key, item)


def _booleans_for_numbers(name: str, given: Any, settings: Any) -> Iterator[str]:
    """Yield a fault for each boolean that became a number; pydantic takes true for 1."""
    if isinstance(given, bool) and not isinstance(settings, bool) and isinstance(settings, int | float):
        yield f"{name}: {given} cannot be used: it is not a number."
    for key, item in _items(given):
        if isinstance(given, Mapping):
            of_key = settings.get(key) if isinstance(settings, Mapping) else getattr(settings, key, None)
        else:
            of_key = settings[int(key)] if isinstance(settings, list | tuple) and int(key) < len(settings) else None
        yield from _booleans_for_numbers(f"{name}.{key}" if name else key, item, of_key)


def _describe(error: Mapping[str, Any]) -> str:
    """Return one of pydantic's errors with the dotted name of the setting."""
    group = "".join(f"{part}." for part in error["loc"])
    if isinstance(cause := error.get("ctx", {}).get("error"), InputError):  # begins with the name of a field
        return f"{group}{cause}"
    return f"{group[:-1]}: {format_value(error['input'])} cannot be used: {error['msg']}."


def identity_of(settings: Any, *, with_paths: bool = False) -> dict[str, Any]:
    """Return the settings that are part of a run's identity, as plain YAML values by dotted name.

    `with_paths` includes the fields with the identity "content": paths and names whose content counts.
    """
    return dict(_identity("", settings, (True, CONTENT) if with_paths else (True,)))


def _identity(name: str, value: Any, kinds: tuple[bool | str, ...]) -> Iterator[tuple[str, Any]]:
    if is_dataclass(value):
        items = [(field, item) for field, item, extra in _values(value) if extra.get(IDENTITY, True) in kinds]
    elif isinstance(value, Mapping):
        items = list(value.items())
    else:
        yield name, as_settings(value)
        return
    for key, item in items:
        yield from _identity(f"{name}.{key}" if name else str(key), item, kinds)


def _values(settings: Any) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Yield name, value and declaration of each field, except the `omit_if_null` fields that are None."""
    for field in fields(settings):
        value, extra = getattr(settings, field.name), type(settings).__pydantic_fields__[field.name].json_schema_extra
        if value is not None or not (extra or {}).get(OMIT_IF_NULL):
            yield field.name, value, extra or {}
