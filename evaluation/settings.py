"""Settings that families of metrics share: dataclasses, read strictly. Imports nothing heavy: `--help` is immediate."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from evenhand.evaluation.errors import InputError

TESTBED = "testbed"
AUTO = "auto"
OMIT_IF_NULL = "omit_if_null"
Share = Annotated[float, Field(gt=0, lt=1)]
MOST = 2**31 - 1  # what every library can count to
Count = Annotated[int, Field(ge=1, le=MOST)]
PerCell = Annotated[int, Field(ge=2, le=MOST)]  # of one response alone nothing can be said about noise
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # what numpy's older generators, of transformers, take
Folder = Annotated[Path, Field(strict=False)]  # a file or a folder; YAML has no paths, so text stands for one
ReportTo = Literal["wandb", "tensorboard", "none"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Quantization = Literal["4bit", "8bit"]

strict = dataclass(config=ConfigDict(extra="forbid", strict=True), kw_only=True)


def resolve(name: str, embedded: Path) -> str:
    """Return what a model's or a data set's name stands for: "testbed" is the embedded one."""
    return str(embedded) if name == TESTBED else name


def option(default: Any, description: str, *, omit_if_null: bool = False) -> Any:
    """Return a field of settings.

    Args:
        default: the default, or a function that returns it.
        description: the field's line in `--help`.
        omit_if_null: `as_settings` leaves the field out where it is None.
    """
    extra = {OMIT_IF_NULL: True} if omit_if_null else None
    if callable(default):
        return Field(default_factory=default, description=description, json_schema_extra=extra)
    return Field(default=default, description=description, json_schema_extra=extra)


@strict
class CheckpointSettings:
    """A network: where it comes from and how it runs. A plain string in its place is its name."""

    name: str = option(TESTBED, "Hugging Face id, local folder or adapter folder; 'testbed' is the embedded one")
    revision: str | None = option(None, "commit of the model on the hub, or of base if base is set")
    base: str | None = option(None, "Hugging Face id or folder of an adapter's base; null: as in the adapter's files")
    dtype: Dtype = option("float32", "precision of the weights; 'auto': as in the checkpoint")
    device: str = option(AUTO, "'cpu', 'cuda', 'cuda:1', 'mps'; 'auto': a GPU if there is one")
    device_map: str | dict[str, Any] | None = option(
        None, "several devices: 'auto', 'balanced' or {module: device}; null: one device"
    )
    attn_implementation: str | None = option(
        None, "'eager', 'sdpa', 'flash_attention_2', …; null: the default of transformers"
    )
    quantization: Quantization | None = option(
        None, "'4bit' (NF4) or '8bit' by bitsandbytes (evenhand[quantization]); null: none"
    )
    trust_remote_code: bool = option(False, "run code from the checkpoint")

    def __post_init__(self) -> None:
        """Refuse a device beside a map of devices.

        Raises:
            InputError: as said.
        """
        if self.device_map is not None and self.device != AUTO:
            raise InputError(
                f"device: {self.device!r} is one device and device_map {self.device_map!r} says which part goes where; "
                "give one of them."
            )


@strict
class ModelSettings(CheckpointSettings):
    """A model that is measured: its checkpoint, and what it is told. A plain string in its place is its name."""

    system_prompt: Annotated[str, Field(min_length=1)] | None = option(
        None, "text before every prompt: a system message, or a line without a chat template; null: none"
    )
    server: str | None = option(
        None, "OpenAI-compatible server of the model (evenhand[server]), http://host:port/v1; null: none"
    )
    api: Literal["chat", "completions"] = option("chat", "API of the server; likelihoods need completions")
    concurrency: Count = option(16, "concurrent requests to the server")
    tokenizer: str | None = option(
        None, "tokenizer of a served model, for likelihoods: Hugging Face id or folder; null: by its name"
    )

    def __post_init__(self) -> None:
        """Refuse a URL that is none or holds a password, and beside a server what only a loaded model has."""
        CheckpointSettings.__post_init__(self)
        if self.server is None and self.tokenizer is not None:
            raise InputError(
                f"tokenizer: {self.tokenizer!r} is read for a served model alone, a loaded one has its own; give "
                "model.server too, or leave this out."
            )
        if self.server is None:
            return
        url = urlsplit(self.server)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or "@" in url.netloc:
            raise InputError(
                "server: it must be http://HOST:PORT/v1 or https://…, without a name, a password or a query; a key is "
                "taken from EVENHAND_API_KEY."
            )
        if self.name == TESTBED:
            raise InputError(f"name: say by which name {self.server} knows the model, by --model NAME.")
        given = [field.name for field in fields(CheckpointSettings) if field.name not in ("name", "revision")]
        given = [name for name in given if getattr(self, name) != getattr(CheckpointSettings(), name)]
        if given:
            raise InputError(f"{given[0]}: {self.server} has the model and says how it runs; leave this out.")


@strict
class ClassifierSettings(CheckpointSettings):
    """A classifier of offensive texts, and its label that means offensive. A plain string in its place is its name."""

    name: str | None = option(None, "Hugging Face id or folder of a sequence classifier; null: not measured")
    label: str | None = option(None, "label that means offensive")


OF_SERVERS = ("server", "api", "concurrency", "tokenizer")  # what of a model's settings is read for a served one alone


def model_signature(model: ModelSettings, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a signature says of a model; a served one's revision is hearsay, and its address says nothing.

    Args:
        inputs: the run's fingerprints, by name; those of the model and its tokenizer are looked at.
    """
    if model.server is not None:
        tokenizer = {name: inputs[name] for name in ("tokenizer",) if name in inputs}
        return {"name": model.name, "revision": model.revision, "api": model.api, **tokenizer}
    loaded = {name: value for name, value in as_settings(model).items() if name not in OF_SERVERS}
    return {**loaded, "revision": inputs["model"]}


NOUN_PHRASES = {"noun_phrase_type": ["descriptor_noun", "noun_descriptor"]}  # what is asked unless told otherwise


@strict
class PromptSettings:
    """What a model is asked: which prompts, how many of them, and which side of the split."""

    dataset: str = option("paper", "taxonomy: 'paper' (shipped), 'v1.0', 'v1.1', or a folder in that format")
    file: Folder | None = option(None, "Parquet, CSV or JSONL of your own prompts, each repeated per_cell times")
    train_file: Folder | None = option(None, "another such file, of prompts to train on")
    filters: dict[str, Any] = option(
        lambda: dict(NOUN_PHRASES), "{column: values} of the prompts to keep; noun_phrase_type stays unless named"
    )
    split_by: str | None = option(
        None,
        "column whose values the two sides of the split do not share; null: noun, or none for a file",
    )
    train_fraction: Share = option(0.5, "share of these values on the train side")
    unseen_by: Literal["descriptor", "axis", "template"] | None = option(
        None, "keep some descriptors, axes or templates out of training, and measure all"
    )
    unseen_fraction: Share = option(0.5, "share of them kept out of training")
    descriptors: Annotated[int, Field(ge=2)] | None = option(
        200, "descriptors to sample, stratified by axis; null: all"
    )
    per_cell: PerCell = option(4, "responses per (template, descriptor); at least 2 for intervals")
    personas: str = option("none", "'none', 'default' or a file")
    variations: bool = option(False, "apply each of the four stylistic variations (002 A.3) with probability 1/2")

    def __post_init__(self) -> None:
        """Refuse a second file without the first, and beside a split of the first; unseen people in a file."""
        if self.file and self.unseen_by:
            raise InputError("unseen_by: a prompts file is split by split_by; give a dataset, or leave this out.")
        if self.train_file and (self.split_by or not self.file):
            other = "a file is split, or has another to train on" if self.file else "it goes with prompts.file"
            raise InputError(f"train_file: {self.train_file}: {other}; give one of the two.")

    def kept(self) -> dict[str, Any]:
        """Return what prompts are kept by: the filters, and phrases of a noun and a descriptor unless that is named.

        So `{axis: age}` narrows the default down and does not replace it. A filter of null is none, and `{}` keeps all.

        >>> PromptSettings(filters={"axis": "age"}).kept()
        {'noun_phrase_type': ['descriptor_noun', 'noun_descriptor'], 'axis': 'age'}
        >>> PromptSettings(filters={"axis": "age", "noun_phrase_type": None}).kept()
        {'axis': 'age'}
        """
        filters = NOUN_PHRASES | self.filters if self.filters else {}
        return {column: values for column, values in filters.items() if values is not None}


@strict
class DecodingSettings:
    """How a model answers."""

    preset: Literal["sample", "paper"] = option("sample", "'paper': beam search, length ≥ 20, 3-gram blocking (A.4)")
    arguments: dict[str, Any] = option(dict, "arguments of `generate` that override the preset")
    batch_size: Count = option(512, "contexts per batch")

    def title(self) -> str:
        """Return what responses that were drawn so are called.

        >>> DecodingSettings(preset="sample", arguments={"temperature": 0.7}).title()
        'sample, temperature 0.7'
        """
        return ", ".join([self.preset, *(f"{name} {value}" for name, value in self.arguments.items())])


def as_settings(settings: Any) -> Any:
    """Return settings as plain YAML values, without those that are None and marked `omit_if_null`."""
    if is_dataclass(settings):
        details = type(settings).__pydantic_fields__
        return {
            name: as_settings(value)
            for name, value in ((field.name, getattr(settings, field.name)) for field in fields(settings))
            if not (value is None and OMIT_IF_NULL in (details[name].json_schema_extra or {}))
        }
    if isinstance(settings, dict):
        return {key: as_settings(value) for key, value in settings.items()}
    if isinstance(settings, (list, tuple)):
        return [as_settings(item) for item in settings]
    return str(settings) if isinstance(settings, Path) else settings
