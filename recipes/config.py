"""What a command is told: dataclasses, read strictly from YAML and from `--field value`.

A mistyped key, a wrong type or a value out of range is one error before any work starts. This module imports nothing
heavy, so that `--help` answers at once.
"""

import argparse
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from evaluation.errors import InputError, unknown_name
from mitigation.settings import TuningSettings

TESTBED = "testbed"
Share = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
PerCell = Annotated[int, Field(ge=2)]  # of one response alone nothing can be said about noise
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seed = Annotated[int, Field(ge=0)]
ReportTo = Literal["wandb", "tensorboard", "none"]


def resolve(name: str, embedded: Path) -> str:
    """Return what a model's or a data set's name stands for: "testbed" is the embedded one."""
    return str(embedded) if name == TESTBED else name


def option(default: Any, description: str) -> Any:
    """Return a field with its default and its line in `--help`."""
    if callable(default):
        return Field(default_factory=default, description=description)
    return Field(default=default, description=description)


strict = dataclass(config=ConfigDict(extra="forbid"), kw_only=True)


@strict
class MeasureConfig:
    """Measure a model by one or more families of metrics: rows → scores and a report."""

    model: str = option(TESTBED, "Hugging Face id, local folder or adapter folder; 'testbed' is the embedded one")
    revision: str | None = option(None, "commit of a model on the hub")
    trust_remote_code: bool = option(False, "run code that comes with the model")
    dtype: Literal["float32", "bfloat16", "float16"] = option("float32", "precision that the model runs in")
    metrics: Annotated[list[str], Field(min_length=1)] = option(
        lambda: ["generation_bias"], "metric families, modules of recipes/measuring: generation_bias, sentence_pairs, …"
    )
    pairs: str = option(
        TESTBED, "sentence pairs: 'testbed', 'crows_pairs', 's_jsd_de' (or another language), or a CSV or JSONL file"
    )
    pair_columns: dict[str, str] = option(
        dict, "columns of your own file: {more: NAME, less: NAME, pair_id: NAME, bias_type: NAME, direction: NAME}"
    )
    perturbed: bool = option(False, "remove the last character of each sentence of a pair first (001, Table 3)")
    references: Path | None = option(None, "gendered translations: a CSV file, or a folder of MT-GenEval or MMHB")
    reference_split: str = option("dev", "which split of MT-GenEval or MMHB")
    languages: list[str] = option(list, "languages of the references, as 'es' or 'spa_Latn'; empty: all there are")
    fewest_masculine: Annotated[int, Field(ge=0)] = option(
        100, "leave languages out that have fewer masculine references than so many (004, §4.1)"
    )
    directions: Annotated[list[Literal["en-xx", "xx-en", "xx-xx"]], Field(min_length=1)] = option(
        lambda: ["en-xx"], "from and to English, and between the other languages"
    )
    translations: Path | None = option(
        None, "folder of translations, SOURCE-TARGET.txt, a line for each source; null: the model translates"
    )
    tokenize: str = option("flores200", "tokenizer of sacrebleu; 'flores101' is the paper's, '13a' needs no download")
    context: str = option(
        "", "what a causal or encoder-decoder model reads before a sentence whose likelihood is asked"
    )
    end_of_sequence: bool = option(False, "count the end of the sentence in a causal model's likelihood of it")
    dataset: str = option("paper", "taxonomy: 'paper' (shipped), 'v1.0', 'v1.1', or a folder in that format")
    prompts_file: Path | None = option(None, "Parquet, CSV or JSONL of your own prompts, taken whole as they are")
    filters: dict[str, Any] = option(
        lambda: {"noun_phrase_type": ["descriptor_noun", "noun_descriptor"]}, "keep prompts by column: {column: values}"
    )
    split: Literal["measure", "train", "all"] = option("measure", "which side of the train/measure split to use")
    split_by: Literal["noun", "descriptor", "template"] = option("noun", "what the two sides do not share")
    train_fraction: Share = option(0.5, "share of the nouns, descriptors or templates on the train side")
    unseen_by: Literal["descriptor", "axis", "template"] | None = option(
        None, "leave some of them out of the train side, and measure all: does tuning help people it never saw?"
    )
    unseen_fraction: Share = option(0.5, "share of the descriptors, axes or templates that are unseen")
    descriptors: Annotated[int, Field(ge=2)] | None = option(200, "sample so many, stratified by axis; null: all")
    per_cell: PerCell = option(4, "responses per (template, descriptor); intervals need 4")
    personas: str = option("none", "'none', 'default' (ours) or a file of your own")
    variations: bool = option(False, "apply the four stylistic variations (002 A.3), each with probability 1/2")
    control_tag: str | None = option(None, "string at the end of the context; null: the model's own default")
    decoding: Literal["sample", "paper"] = option("sample", "'paper': beam search, length ≥ 20, 3-gram blocking (A.4)")
    decoding_arguments: dict[str, Any] = option(dict, "any arguments of `generate`, over the preset's")
    batch_size: Count = option(512, "contexts generated at once")
    style_classifier: str = option(TESTBED, "Hugging Face id or folder of a sequence classifier")
    second_style_classifier: str | None = option(
        "auto", "one that never labels, to confirm; 'auto': the testbed's second beside its first; null: none"
    )
    style_clusters: str = option(TESTBED, "cluster file: 'testbed', 'image_chat' or a JSON path")
    offensiveness_classifier: str | None = option(
        None, "Hugging Face id or folder of a sequence classifier; the share of offensive responses; null: none"
    )
    offensive_label: str | None = option(None, "its label that means offensive")
    neutral_dialogue: str | None = option(TESTBED, "JSONL of {text, response} for perplexity; null: none")
    permutations: Annotated[int, Field(ge=0)] = option(99, "of the test of no dependence on the descriptor")
    seed: Seed = option(0, "of sampling prompts and responses, and of the bootstrap")
    show: bool = option(True, "print the report")
    report_to: ReportTo = option("wandb", "wandb is offline unless you are logged in")
    group: str | None = option(None, "name that joins the stages of one experiment")
    output_dir: Path = option(Path("runs/measure"), "where everything is written")


@strict
class LabelConfig:
    """Label the responses of a measuring run `bias` or `no_bias`, and plan the threshold."""

    responses: Path = option(Path("runs/train"), "a finished measuring run, on train prompts")
    alpha: Literal[0, 1, 2] = option(0, "exponent of the norm in the bias value (002 C.1)")
    beta: Annotated[float, Field(allow_inf_nan=False)] | None = option(
        None, "threshold as a number; null: use the quantile"
    )
    quantile: Share = option(0.9, "threshold as a quantile of the bias values, where beta is null")
    cross_fitted: bool = option(False, "take each response out of its own bias direction")
    exclude_parrots: bool = option(False, "leave `no_bias` responses out that repeat their prompt")
    exclude_clusters: list[str] = option(list, "leave `no_bias` responses out that are in these style clusters")
    exclude_above: Share = option(0.5, "summed probability of a cluster's styles from which a response is in it")
    seed: Seed = option(0, "of the plan's sampling")
    report_to: ReportTo = option("wandb", "wandb is offline unless you are logged in")
    group: str | None = option(None, "name that joins the stages of one experiment")
    output_dir: Path = option(Path("runs/label"), "where everything is written")


@strict
class TuneConfig:
    """Tune the labelled model for style equality, by one of the methods."""

    labels: Path = option(Path("runs/label"), "a finished labelling run")
    method: str = option("control_tags", "module of mitigation/methods")
    training: TuningSettings = option(TuningSettings, "how to train")
    measure_every: Annotated[int, Field(ge=0)] = option(100, "measure pooled FGB* every so many steps; 0: never")
    measure_descriptors: Annotated[int, Field(ge=2)] = option(40, "descriptors in that small measurement")
    report_to: ReportTo = option("wandb", "wandb is offline unless you are logged in")
    group: str | None = option(None, "name that joins the stages of one experiment")
    output_dir: Path = option(Path("runs/tune"), "where everything is written")


@strict
class CompareConfig:
    """Compare two measuring runs over the same prompts: differences with intervals, and the report."""

    before: Path = option(Path("runs/before"), "measuring run of the original model")
    after: Path = option(Path("runs/after"), "measuring run of the tuned model")
    labels: Path | None = option(None, "labelling run, for the threshold plan")
    tuning: Path | None = option(None, "tuning run, for its curves")
    untagged: Path | None = option(None, "measuring run of the tuned model without its control tag")
    phrases: str | None = option(None, "phrases to count: 'paper', 'testbed' or a YAML path; null: by the model")
    corpus: str | None = option(
        None, "count descriptors in this corpus: JSONL, CSV, Parquet or text file, folder, or a hub dataset; null: none"
    )
    corpus_text_column: str = option("text", "column of the corpus with the texts")
    corpus_subset: str | None = option(None, "subset of a hub dataset")
    corpus_split: str = option("train", "split of a hub dataset")
    corpus_limit: Count | None = option(None, "read so many examples of the corpus; null: all")
    show: bool = option(True, "print the report")
    report_to: ReportTo = option("wandb", "wandb is offline unless you are logged in")
    group: str | None = option(None, "name that joins the stages of one experiment")
    output_dir: Path = option(Path("runs/compare"), "where everything is written")


@strict
class LoopConfig:
    """The whole loop: measure → label → tune → measure again → report, for each method."""

    measure: MeasureConfig = option(MeasureConfig, "all measurements, and the responses that are labelled")
    train_per_cell: PerCell = option(4, "responses per (template, descriptor) to label and tune on")
    label: LabelConfig = option(LabelConfig, "labelling")
    methods: Annotated[list[str], Field(min_length=1)] = option(
        lambda: ["control_tags", "kto"], "modules of mitigation/methods, each tuned by itself"
    )
    tune: TuneConfig = option(TuneConfig, "tuning")
    rounds: Count = option(1, "label and tune again the responses of the tuned model, so many times in all")
    untagged: bool = option(True, "measure models tuned with control tags without their tag, too")
    seed: Seed = option(0, "of every stage")
    report_to: ReportTo = option("wandb", "wandb is offline unless you are logged in")
    output_dir: Path = option(Path("runs/loop"), "where everything is written")


@strict
class AblateConfig:
    """Sweep any fields of the loop over shared stages: one table, one plot, the Pareto front."""

    loop: LoopConfig = option(LoopConfig, "what all points have in common")
    sweep: Annotated[list[dict[str, Any]], Field(min_length=1)] = option(
        lambda: [{"method": ["control_tags", "kto"]}],
        "grids of points: {`method`, and any field of the loop: one value or a list of them}",
    )
    seeds: Annotated[list[Seed], Field(min_length=1)] = option(lambda: [0], "run every point once with each")
    jobs: Count = option(1, "points at work at once, each in its own process")
    report_to: ReportTo = option("wandb", "one run per point; wandb is offline unless you are logged in")
    output_dir: Path = option(Path("runs/ablate"), "where everything is written")


@strict
class TrainClassifierConfig:
    """Train a small text classifier on labelled texts, for measuring offensiveness without a hub."""

    texts: Path = option(Path("labeled_data.csv"), "CSV or JSONL file of labelled texts")
    text_column: str = option("tweet", "its column of texts")
    label_column: str = option("class", "its column of labels")
    labels: dict[Any, str] = option(
        dict, "{value: name of the label}, several values may have one name; {}: as they are"
    )
    model: str | None = option(None, "Hugging Face id or folder to start from; null: a small BERT from scratch")
    epochs: Count = option(3, "passes over the texts")
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = option(1e-3, "peak of the cosine")
    batch_size: Count = option(64, "texts to a step")
    held_out: Share = option(0.1, "share of the texts that it is measured on and never sees")
    seed: Seed = option(0, "of weights, order and what is held out")
    report_to: ReportTo = option("wandb", "wandb is offline unless you are logged in")
    group: str | None = option(None, "name that joins the stages of one experiment")
    output_dir: Path = option(Path("runs/classifier"), "where everything is written")


COMMANDS: dict[str, type] = {
    "measure": MeasureConfig,
    "label": LabelConfig,
    "tune": TuneConfig,
    "compare": CompareConfig,
    "loop": LoopConfig,
    "ablate": AblateConfig,
    "train_classifier": TrainClassifierConfig,
}


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser: one subcommand per config, one flag per field."""
    root = argparse.ArgumentParser(
        prog="evenhand",
        description="Does your model treat people differently by who they say they are, how sure are you, "
        "and can you make it stop?",
    )
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, config in COMMANDS.items():
        summary = (config.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        command.add_argument("--config", type=Path, metavar="FILE.yaml", help="settings; flags go over them")
        for flag, field_type, default, text in _flags(config):
            shown = "" if default is MISSING else f" (default: {_shown(default)})"
            command.add_argument(
                f"--{flag}", metavar=_type_name(field_type), help=f"{text}{shown}".replace("%", "%%"), default=MISSING
            )
    return root


def read_config(command: str, file: Path | None, overrides: Mapping[str, str]) -> Any:
    """Return the command's config from a YAML file and `{dotted.field: text}` overrides.

    Raises:
        InputError: the file cannot be read; a key is unknown; a value has the wrong type or is out of range.
    """
    config = COMMANDS[command]
    settings = _read_yaml(file) if file else {}
    types_of = {flag: field_type for flag, field_type, _, _ in _flags(config)}
    for flag, text in overrides.items():
        target = settings
        *parents, last = flag.split(".")
        for parent in parents:
            if target.get(parent) is None:
                target[parent] = {}
            target = target[parent]
            if not isinstance(target, dict):
                raise InputError(f"{file}: {parent}: {target!r} is not a group of settings, but --{flag} is given.")
        target[last] = _parsed(flag, text, types_of[flag])
    return checked(config, settings, str(file) if file else "command line")


def checked(config: type, settings: Mapping[str, Any], source: str) -> Any:
    """Return `config(**settings)`, every key, type and range checked; `source` is named in the error."""
    try:
        return TypeAdapter(config).validate_python(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            known = [flag for flag, *_ in _flags(config)]
            raise unknown_name(f"{source}: key", where, known) from None
        raise InputError(f"{source}: {where}: {first['input']!r} cannot be used: {first['msg']}.") from None


def as_settings(config: Any) -> dict[str, Any]:
    """Return a config as plain YAML values."""
    return _plain(asdict(config))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--config: {file} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"--config: {file} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(settings or {}, dict):
        raise InputError(f"--config: {file} holds {type(settings).__name__}, not `field: value` lines.")
    return settings or {}


def _flags(config: type, prefix: str = "") -> list[tuple[str, Any, Any, str]]:
    """Return (dotted name, type, default, help text) of every field, nested configs unfolded."""
    hints, found = typing.get_type_hints(config, include_extras=True), []
    for field in fields(config):
        default, text = field.default, field.metadata.get("help", "")
        if hasattr(default, "description"):  # a pydantic Field
            text = default.description or ""
            default = default.get_default(call_default_factory=not is_dataclass(hints[field.name]))
        if is_dataclass(hints[field.name]):
            found += _flags(hints[field.name], f"{prefix}{field.name}.")
        else:
            found.append((f"{prefix}{field.name}", hints[field.name], default, text))
    return found


def _parsed(flag: str, text: str, field_type: Any) -> Any:
    """Return the flag's text as what a YAML file would have held; its type is checked later."""
    if text == "null":
        return None
    if typing.get_origin(field_type) is Annotated:
        return _parsed(flag, text, typing.get_args(field_type)[0])
    origin = typing.get_origin(field_type)
    if _is_list_of_names(field_type):
        return [part.strip() for part in text.split(",")]
    if origin in (dict, list):
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            example = "{column: [value]}" if origin is dict else "[value, value]"
            raise InputError(f"--{flag}: {text!r} is not YAML such as '{example}'.") from None
    if origin is Literal:
        return next((value for value in typing.get_args(field_type) if str(value) == text), text)
    return text


def _is_list_of_names(field_type: Any) -> bool:
    if typing.get_origin(field_type) is not list:
        return False
    (item,) = typing.get_args(field_type)
    return item is str or typing.get_origin(item) is Literal


def _type_name(field_type: Any) -> str:
    origin = typing.get_origin(field_type)
    if origin is Annotated:
        return _type_name(typing.get_args(field_type)[0])
    if origin is Literal:
        return "{" + ",".join(map(str, typing.get_args(field_type))) + "}"
    if origin in (types.UnionType, typing.Union):
        return "|".join(_type_name(part) for part in typing.get_args(field_type) if part is not type(None))
    if origin is list:
        return "A,B" if _is_list_of_names(field_type) else "[V,V]"
    if origin is dict:
        return "{K:V}"
    return field_type.__name__.upper()


def _shown(default: Any) -> str:
    if isinstance(default, Sequence) and not isinstance(default, str):
        return ",".join(map(str, default))
    return "null" if default is None else str(default)
